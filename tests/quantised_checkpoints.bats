#!/usr/bin/env bats
# Model folders with quantised matrices (FP8, compressed-tensors, GPTQ, AWQ, bitsandbytes): computed with as bf16, beside a folder that has the numbers of the same codes

load helper

setup_file() {
	load helper
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || exit 1
	random_model random --hidden 96 --ffn 160 --seed 5
	seq 3 2 140 >text.ids
	seq 7 5 200 >next.ids
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
	rm -rf bad
}

mkquantised() {
	"$PYTHON" "$ROOT/tests/bin/mkquantised.py" "$@"
}

# quantised SCHEME: the folder SCHEME and SCHEME.bf16, once
quantised() {
	[ -e "$1" ] || mkquantised random "$1" "$1" "$1.bf16"
}

# change SCHEME PROGRAM: bad is the folder, changed
change() {
	quantised "$1"
	rm -rf bad
	cp -r "$1" bad
	mkquantised --change bad "$2"
}

# refused STATUS SCHEME PROGRAM PART ...: the folder, changed, is refused with these parts of a message
refused() {
	local part status=$1
	change "$2" "$3"
	run "-$status" --separate-stderr kv-prefill -q -m bad --ids text.ids
	for part in "${@:4}"; do
		[[ "$stderr" == *"$part"* ]] || { echo "$2: $3: $stderr"; return 1; }
	done
}

@test "the numbers that other programs give of recorded matrices are those of the formulas in NumPy" {
	mkquantised --check "$ROOT"/tests/fixtures/quantised/*.safetensors
}

@test "logits, text and rows are those of the numbers in bf16, byte for byte, for every scheme" {
	local scheme
	for scheme in $(mkquantised --list); do
		quantised "$scheme"
		kv-prefill -q -m "$scheme" --ids --logits one.npy -o one.kv text.ids
		kv-prefill -m "$scheme.bf16" --ids --logits other.npy -o other.kv text.ids
		cmp one.npy other.npy || fail "$scheme: other logits"
		same_values one.kv other.kv '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
		kv-decode -q -m "$scheme" --ids --ignore-eos -n 12 one.kv >one.ids
		kv-decode -m "$scheme.bf16" --ids --ignore-eos -n 12 other.kv | cmp - one.ids
	done
}

@test "rounded products are those of weights in bf16, and threads change nothing" {
	quantised awq
	for j in 1 2 5; do
		kv-prefill -q -m awq -j $j --products auto --ids -o $j.kv text.ids
	done
	cmp 1.kv 2.kv
	cmp 1.kv 5.kv
	kv-prefill -m awq.bf16 --products auto --ids -o other.kv text.ids
	same_values 1.kv other.kv '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
}

@test "what is made of matrices is said, and that activations and the cache are not quantised" {
	quantised fp8-blocks
	run -0 --separate-stderr kv-prefill -m fp8-blocks --ids -o x.kv text.ids
	assert_regex "$stderr" 'fp8-blocks/config.json: quantization_config: the model is meant for quantised activations; here they are not quantised'
	assert_regex "$stderr" 'fp8-blocks: 13 matrices are quantised \(FP8\): computed with as copies in bf16, 0\.2 MiB of memory'
	change int-channel 'q["kv_cache_scheme"] = {"num_bits": 8}
q["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8, "dynamic": True}
for name in "q_proj.input_scale", "k_scale", "v_scale":
    t[L + name] = "F32", np.ones(1, np.float32)'
	run -0 --separate-stderr kv-prefill -m bad --ids -o bad.kv text.ids
	assert_regex "$stderr" 'here they are not quantised'
	assert_regex "$stderr" 'kv_cache_scheme is not applied'
	kv-prefill -q -m int-channel --ids -o x.kv text.ids
	same_values x.kv bad.kv '[l.keys for l in s.layers]'
	refused 5 int-channel 't[L + "k_scale"] = "F32", np.ones(1, np.float32)' 'self_attn.k_scale: not a tensor of this architecture'
}

@test "the fingerprint is of the stored tensors: another model than the one in bf16" {
	quantised gptq
	kv-prefill -q -m gptq --ids -o x.kv text.ids
	kv-prefill -m gptq.bf16 --ids -o y.kv text.ids
	[ "$(see x.kv 's.model["weights"]')" != "$(see y.kv 's.model["weights"]')" ]
	run -4 kv-decode -q -m gptq.bf16 --ids -n 1 x.kv
	change gptq 't[L + "q_proj.g_idx"][1][:2] = 1'
	run -4 kv-decode -q -m bad --ids -n 1 x.kv
}

@test "learned tokens and gates of a quantised folder run as those of a folder in bf16" {
	quantised nf4-nested
	for m in nf4-nested nf4-nested.bf16; do
		"$PYTHON" "$ROOT/tests/bin/mkadapter.py" a-$m --model $m
		"$PYTHON" "$ROOT/tests/bin/mkgate.py" mlp $m g-$m
		kv-prefill -q -m $m --ids --gate g-$m -o $m.kv text.ids
		kv-observe -q -m $m --lookahead a-$m -o seen.kv $m.kv
		kv-score --method lookahead -o $m.scored.kv seen.kv
	done
	same_values nf4-nested.kv nf4-nested.bf16.kv '[list(x) for l in s.layers for x in l.gate_scores.values]'
	same_values nf4-nested.scored.kv nf4-nested.bf16.scored.kv '[l.scores for l in s.layers]'
}

@test "rows of queries, keys and values that are one matrix in the file are quantised as one" {
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" phi3-bf16 phi3 "$DEMO/tokenizer.json"
	for scheme in fp8-tensor fp8-blocks int-channel; do
		mkquantised phi3 $scheme phi3-$scheme phi3-$scheme.bf16
		kv-prefill -q -m phi3-$scheme --ids --logits one.npy -o one.kv text.ids
		kv-prefill -m phi3-$scheme.bf16 --ids --logits other.npy -o other.kv text.ids
		cmp one.npy other.npy
	done
}

@test "experts of a mixture are quantised each, and so are the matrices of latent attention" {
	local family scheme
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" qwen3_moe-bf16 qwen3_moe "$DEMO/tokenizer.json" \
		deepseek_v3-experts deepseek_v3 "$DEMO/tokenizer.json"
	for family in qwen3_moe deepseek_v3; do
		for scheme in fp8-blocks int-channel nf4; do
			mkquantised $family $scheme $family-$scheme $family-$scheme.bf16
			kv-prefill -q -m $family-$scheme --ids --logits one.npy -o one.kv text.ids
			kv-prefill -m $family-$scheme.bf16 --ids --logits other.npy -o other.kv text.ids
			cmp one.npy other.npy
		done
	done
}

@test "a GPU computes with the copies" {
	PATH=$O/emulated:$PATH
	quantised gptq-order
	head -n 12 text.ids >few.ids
	kv-prefill -q -m gptq-order --device cuda --ids --logits one.npy -o one.kv few.ids
	kv-prefill -m gptq-order.bf16 --device cuda --ids --logits other.npy -o other.kv few.ids
	cmp one.npy other.npy
}

@test "modules of their own bits, a matrix that is plain, and an order of groups that is not set" {
	change gptq 'q["dynamic"] = {"+:.*q_proj": {"bits": 8, "group_size": 32}}
own = RANDOM(np.random.default_rng(4), gptq(8, 32), 64, 96)
t.update((L + "q_proj." + k, v) for k, v in own.items())
np.save("own.npy", NUMBERS(own, gptq(8, 32), 64, 96))'
	cp -r gptq.bf16 bad.bf16
	mkquantised --change bad.bf16 't[L + "q_proj.weight"] = "BF16", np.load("own.npy")'
	kv-prefill -q -m bad --ids -o x.kv text.ids
	kv-prefill -m bad.bf16 --ids -o y.kv text.ids
	same_values x.kv y.kv '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
	change gptq 't[L + "q_proj.weight"] = "BF16", np.load("own.npy")
for part in "qweight", "qzeros", "scales", "g_idx":
    del t[L + "q_proj." + part]'
	kv-prefill -q -m bad --ids -o x.kv text.ids
	same_values x.kv y.kv '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
	# zero points of each group as they are, as first releases of compressed-tensors had them
	change pack-zeros 't[L + "q_proj.weight_zero_point"] = "I8", (unpack(t[L + "q_proj.weight_zero_point"][1], 4, 0) - 8).astype(np.int8)'
	kv-prefill -q -m bad --ids -o x.kv text.ids
	kv-prefill -q -m pack-zeros --ids -o y.kv text.ids
	same_values x.kv y.kv '[l.keys for l in s.layers]'
	change pack 't[L + "q_proj.weight_g_idx"] = "I32", np.full(96, 0xffffffff, np.uint32)'
	kv-prefill -q -m bad --ids -o x.kv text.ids
	kv-prefill -q -m pack --ids -o y.kv text.ids
	same_values x.kv y.kv '[l.keys for l in s.layers]'
}

@test "methods, formats and keys that are not known are refused by name" {
	local method
	for method in hqq aqlm quanto eetq mxfp4 modelopt auto-round; do
		refused 5 gptq "q['quant_method'] = '$method'" "quantised weights ($method) are not supported" '--allow-config quantization_config'
	done
	refused 5 gptq 'q["riddle"] = 1' 'unknown key "riddle" of GPTQ' '--allow-config quantization_config.riddle'
	refused 5 gptq 'q["bits"] = 3' 'bits 3 is not supported'
	refused 5 gptq 'del q["bits"]' 'no "bits"'
	refused 5 gptq 'q["checkpoint_format"] = "marlin"' 'checkpoint_format "marlin" is not supported'
	refused 5 gptq 'q["group_size"] = 0' 'group_size 0 is not supported'
	refused 5 awq 'q["version"] = "gemv"' 'version "gemv" is not supported'
	refused 5 awq 'q["desc_act"] = True' 'desc_act true is not supported'
	refused 5 awq 'q["bits"] = 8' 'bits 8 is not supported'
	refused 5 nf4 'q["load_in_8bit"] = True' 'load_in_8bit true is not supported'
	refused 5 nf4 'q["load_in_4bit"] = False' 'load_in_4bit false is not supported'
	refused 5 fp8-blocks 'q["fmt"] = "e5m2"' 'fmt "e5m2" is not supported'
	refused 5 fp8-blocks 'q["activation_scheme"] = "odd"' 'activation_scheme "odd" is not supported'
	refused 5 fp8-blocks 'q["weight_block_size"] = [128]' 'weight_block_size [128] is not supported'
	refused 5 pack 'q["format"] = "nvfp4-pack-quantized"' 'format "nvfp4-pack-quantized" is not supported'
	refused 5 pack 'q["sparsity_config"] = {"format": "sparse-24-bitmask"}' 'sparsity_config {"format":"sparse-24-bitmask"} is not supported'
	refused 5 pack 'q["transform_config"] = {"config_groups": 1}' 'transform_config'
	refused 5 pack 'q["config_groups"] = {}' 'no config_groups with weights'
	refused 5 pack 'q["config_groups"]["group_0"]["weights"]["num_bits"] = 2' 'num_bits 2 is not supported'
	refused 5 pack 'q["config_groups"]["group_0"]["weights"]["strategy"] = "tensor_group"' 'strategy "tensor_group" is not supported'
	refused 5 pack 'q["config_groups"]["group_0"]["weights"]["scale_bits"] = 6' 'unknown key "scale_bits" of weights'
}

@test "what GPTQModel, transformers, llm-compressor and Qwen write into configurations is understood" {
	change gptq 'q.update({"method": "gptq", "format": "gptq", "pack_dtype": "int32", "lm_head": False, "damp_percent": 0.1, "true_sequential": True, "act_group_aware": True, "model_seqlen": None, "tokenizer": None, "dataset": None, "backend": "auto", "batch_size": 1, "cache_block_outputs": True, "meta": {"quantizer": ["gptqmodel:7.7.0"]}})'
	kv-prefill -q -m bad --ids -o x.kv text.ids
	change awq 'q.update({"method": "awq", "format": "gemm", "checkpoint_format": "gemm", "zero_point": False, "sym": True, "desc_act": False, "damp_percent": 0.1, "meta": None, "modules_to_not_convert": ["visual"]})'
	kv-prefill -q -m bad --ids -o x.kv text.ids
	change nf4 'q.update({"_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_quant_storage": "uint8", "llm_int8_threshold": 6.0, "llm_int8_skip_modules": None, "llm_int8_enable_fp32_cpu_offload": False})'
	kv-prefill -q -m bad --ids -o x.kv text.ids
	change float-channel 'q.update({"kv_cache_scheme": None, "sparsity_config": {}, "transform_config": {}, "global_compression_ratio": 1.5, "version": "0.20.1", "moe_sparsity_config": None})
q["config_groups"]["group_0"].update(format="float-quantized", output_activations=None, input_activations={"dynamic": True, "strategy": "token"})
q["config_groups"]["group_0"]["weights"].update(dynamic=False, observer="minmax", observer_kwargs={}, actorder=None, block_structure=None, group_size=None)'
	kv-prefill -q -m bad --ids -o x.kv text.ids
	change fp8-blocks 'q.update({"fmt": "e4m3", "modules_to_not_convert": ["lm_head"], "scale_fmt": "ue8m0"})'
	kv-prefill -q -m bad --ids -o x.kv text.ids
}

@test "tensors that are missing, of another type or shape, or one too many are refused by name" {
	refused 3 fp8-blocks 'del t[L + "q_proj.weight_scale_inv"]' 'no tensor model.layers.0.self_attn.q_proj.weight_scale_inv'
	refused 3 fp8-blocks 'q["weight_block_size"] = [64, 64]' 'weight_scale_inv: want [1][2], file has [1][1]'
	refused 5 fp8-blocks 't[L + "q_proj.weight"] = "F8_E5M2", t[L + "q_proj.weight"][1]' 'q_proj.weight: dtype F8_E5M2 is not supported there: want F8_E4M3'
	refused 3 float-channel 't[L + "q_proj.weight_scale"] = "BF16", t[L + "q_proj.weight_scale"][1][1:]' 'weight_scale: want [64][1], file has [63][1]'
	refused 3 pack 't[L + "q_proj.weight_shape"][1][1] = 95' 'weight_shape: want 64, 96 there'
	refused 3 pack 'q["config_groups"]["group_0"]["weights"]["group_size"] = 64' '96 columns are not groups of 64'
	refused 3 pack 't[L + "q_proj.weight_packed"] = "I32", t[L + "q_proj.weight_packed"][1][:, 1:].copy()' 'weight_packed: want [64][12], file has [64][11]'
	refused 3 pack-zeros 'q["config_groups"]["group_0"]["weights"]["symmetric"] = True' 'zero points, but the configuration says'
	refused 3 pack-zeros 'del t[L + "q_proj.weight_zero_point"]' 'no tensor model.layers.0.self_attn.q_proj.weight_zero_point'
	refused 3 gptq 'del t[L + "q_proj.scales"]' 'no tensor model.layers.0.self_attn.q_proj.scales'
	refused 3 gptq 't[L + "q_proj.g_idx"][1][7] = 2' 'g_idx: column 7 is in group 2 of 2'
	refused 3 gptq 't[L + "q_proj.g_idx"][1][7] = 0xffffffff' 'g_idx: column 7 is in group -1 of 2'
	refused 3 gptq 'q["group_size"] = 32' 'qzeros: want [3][8], file has [2][8]'
	refused 3 gptq 't[L + "q_proj.qweight"] = "I32", t[L + "q_proj.qweight"][1][1:].copy()' 'qweight: want [12][64], file has [11][64]'
	refused 5 gptq 't[L + "q_proj.weight"] = "BF16", np.zeros((64, 96), "<u2")' 'self_attn.q_proj.weight: not a tensor of this architecture'
	refused 3 awq 'q["group_size"] = 64' '96 inputs are not groups of 64'
	refused 3 nf4 'del t[L + "q_proj.weight.absmax"]' 'no tensor model.layers.0.self_attn.q_proj.weight.absmax'
	refused 3 nf4 't[L + "q_proj.weight.quant_map"][1][3] = 0' 'quant_map: value 3 is 0, not -0.3949'
	refused 3 nf4 'x = t[L + "q_proj.weight.quant_state.bitsandbytes__nf4"]; x[1][:1] = 32' 'not a JSON object'
	refused 3 nf4 'k = L + "q_proj.weight.quant_state.bitsandbytes__nf4"; t[k] = "U8", np.frombuffer(t[k][1].tobytes().replace(b"64,", b"65,", 1), np.uint8)' 'no blocksize that is a power of two'
	refused 3 nf4 't[L + "q_proj.weight"] = "U8", t[L + "q_proj.weight"][1][1:].copy()' 'want 3072 bytes for [64][96], file has 3071'
}

@test "numbers that are not finite are refused, and where they are is said" {
	refused 3 fp8-blocks 't[L + "q_proj.weight"][1][5, 9] = 0x7f' 'q_proj.weight: row 5, column 9 is not finite'
	refused 3 fp8-tensor 't[L + "q_proj.weight"][1][63, 95] = 0xff' 'q_proj.weight: row 63, column 95 is not finite'
	refused 3 float-channel 't[L + "q_proj.weight_scale"][1][40] = 0x7fc0' 'q_proj.weight: row 40, column 0 is not finite'
	refused 3 gptq 't[L + "q_proj.scales"][1][1, 33] = np.inf' 'q_proj.qweight: row 33, column 64 is not finite'
	refused 3 awq 't[L + "q_proj.scales"][1][0, 2] = 65504' 'q_proj.qweight: row 2, column'
	refused 3 nf4 't[L + "q_proj.weight.absmax"][1][3] = np.nan' 'q_proj.weight: row 2, column 0 is not finite'
}

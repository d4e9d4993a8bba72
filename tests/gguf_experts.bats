#!/usr/bin/env bats
# GGUF files of gpt-oss, of DeepSeek with latent attention, and of other mixtures: the folder's model, or a refusal by name

load helper
load gguf

# Layers of gpt-oss as files have them: each second one sees all, the limit of the activation is 7, bounds of yarn are not rounded.
OSS='{"swiglu_limit": 7.0, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"], "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": false}}'

# changed CASE PYTHON [OPTION]: x.gguf <- the case's, whose keys k = {name: (kind, value)} and tensors t = {name: (shape, type, bytes)} the code may
# change
changed() {
	[ -e "$1" ] || family "$1"
	"$PYTHON" - "$ROOT/tests/bin" "$1" "$2" "${3:-}" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		from mkgguf import *
		k, t = read_folder(sys.argv[2], old=sys.argv[4] == "--old")
		t = {name: rest for name, *rest in t}
		exec(sys.argv[3])
		write("x.gguf", k, [(name, *rest) for name, rest in t.items()])
	END
}

# near A B: logits within 1e-5 in the L2 norm
near() {
	"$PYTHON" -c 'import numpy as np, sys
a, b = (np.load(f).astype(float) for f in sys.argv[1:])
error = np.linalg.norm(a - b) / np.linalg.norm(b)
sys.exit(f"{error}" if not error < 1e-5 else 0)' "$1" "$2"
}

# continued MODEL SNAPSHOT: 24 tokens
continued() {
	kv-decode -q -m "$1" --ids --ignore-eos -n 24 "$2"
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf 'The harbour of Elmford is' >text
}

@test "gpt-oss: sinks, biases, experts upright, windows in turns and yarn are the folder's, in f32, bf16 and MXFP4" {
	family gpt_oss "$OSS"
	family gpt_oss-bf16 "$OSS"
	same_families gpt_oss gpt_oss-bf16
	diff <(continued gpt_oss gpt_oss.kv) <(continued gpt_oss.gguf gpt_oss.gguf.kv)
	family gpt_oss-blocks "$OSS"
	"$PYTHON" "$ROOT/tests/bin/mxfp4experts.py" gpt_oss-blocks blocks elements
	gguf blocks blocks.gguf
	gguf elements elements.gguf
	same_families blocks elements
	cmp blocks.gguf.logits elements.gguf.logits
	# blocks as they are, not as numbers
	[ "$(stat -c %s blocks.gguf)" -lt "$(stat -c %s elements.gguf)" ]
	# a text longer than a few rows
	seq 3 110 >ids
	both blocks
	cmp blocks.logits blocks.gguf.logits
}

@test "gpt-oss: a message ends with <|end|>, and a text does not" {
	local word
	family gpt_oss "$OSS"
	same_families gpt_oss
	for word in '<|end|>' '<|call|>' '<|return|>' '<|endoftext|>'; do
		changed gpt_oss "k['tokenizer.ggml.merges'] = (STRING, [])
k['tokenizer.ggml.eos_token_id'] = (U32, 1535)
n = int(np.load('gpt_oss.gguf.logits')[-1].argmax())
k['tokenizer.ggml.eot_token_id'] = (U32, n if '$word' == '<|end|>' else 1535)
k['tokenizer.ggml.tokens'][1][n] = '$word'"
		kv-prefill -q -m x.gguf --ids -o x.kv ids
		run -0 kv-decode -q -m x.gguf --ids -n 5 x.kv
		assert_equal "$(wc -w <<<"$output")" "$([ "$word" = '<|end|>' ] && echo 5 || echo 0)"
		rm x.kv
	done
}

@test "latent attention: old files are the folder's to the byte, and new ones in another order of the same products" {
	local c
	for c in deepseek_v2 deepseek_v2-greedy deepseek_v2-experts deepseek_v3; do
		family "$c" '{}' --old
		same_families "$c"
		gguf "$c" "$c.gguf"
		both "$c"
		near "$c.gguf.logits" "$c.logits"
		diff <(continued "$c" "$c.kv") <(continued "$c.gguf" "$c.gguf.kv")
	done
	for c in deepseek_v2-lite deepseek_v3-experts; do
		both "$c"
		near "$c.gguf.logits" "$c.logits"
	done
	# more rows than a step has go through other products
	seq 3 130 >ids
	both deepseek_v2-lite
	near deepseek_v2-lite.gguf.logits deepseek_v2-lite.logits
	# in one file one layer may have the old form
	changed deepseek_v2 'old = dict((n, rest) for n, *rest in read_folder("deepseek_v2", old=True)[1])
del t["blk.1.attn_k_b.weight"], t["blk.1.attn_v_b.weight"]
t["blk.1.attn_kv_b.weight"] = old["blk.1.attn_kv_b.weight"]'
	kv-prefill -m x.gguf --ids --logits l -o x.kv ids
	kv-prefill -m deepseek_v2 --ids --logits want -o y.kv ids
	near l want
}

@test "latent attention: matrices of keys and of values in blocks are computed with as they are" {
	family deepseek_v2-64 '{"qk_nope_head_dim": 32, "v_head_dim": 32, "kv_lora_rank": 64}'
	for n in 48 108; do
		seq 3 $((n + 2)) >ids
		changed deepseek_v2-64 '
def q8_0(x):
    x = x.reshape(-1, 32)
    d = (np.abs(x).max(1) / 127).astype(np.float16)
    q = np.round(x / np.where(d == 0, 1, d)[:, None].astype(np.float32)).astype(np.int8)
    blocks = np.concatenate([d.view(np.int8).reshape(-1, 2), q], 1)
    return blocks.tobytes(), (d.astype(np.float32)[:, None] * q.astype(np.float32)).tobytes()
wide = dict(t)
for name, (shape, kind, raw) in t.items():
    if name.endswith(("attn_k_b.weight", "attn_v_b.weight")):
        blocks, numbers = q8_0(np.frombuffer(raw, "<f4"))
        t[name], wide[name] = (shape, 8, blocks), (shape, 0, numbers)
assert wide != t
write("wide.gguf", k, [(name, *rest) for name, rest in wide.items()])'
		kv-prefill -q -m x.gguf --ids --dtype f32 --logits a -o x.kv ids
		kv-prefill -q -m wide.gguf --ids --dtype f32 --logits b -o y.kv ids
		cmp a b
	done
}

@test "routers: groups, corrections, scales and experts for all rows are the folder's" {
	family ernie4_5_moe '{"moe_layer_end_index": "absent"}'
	same_families glm4_moe dots1 ernie4_5_moe granitemoeshared glm4_moe-normed cohere-normed
	# files that are older than the keys of groups
	family deepseek_v3-experts '{"n_routed_experts": 256, "n_group": 8, "topk_group": 4}' --old
	family deepseek_v2-experts '{"n_routed_experts": 160, "n_group": 8, "topk_group": 3}' --old
	same_families deepseek_v3-experts deepseek_v2-experts
}

@test "gate and up of all experts may be in one tensor" {
	local c
	same_families qwen3_moe granitemoe glm4_moe
	for c in qwen3_moe granitemoe glm4_moe; do
		changed "$c" '
for n in [n for n in t if n.endswith("ffn_gate_exps.weight")]:
    up = n.replace("gate", "up")
    gates, ups = (np.frombuffer(t[m][2], "<f4").reshape(t[m][0]) for m in (n, up))
    both = np.concatenate([gates, ups], axis=1)
    t[n.replace("gate", "gate_up")] = (both.shape, 0, both.tobytes())
    del t[n], t[up]'
		kv-prefill -q -m x.gguf --ids --logits l -o x.kv ids
		cmp l "$c.logits"
	done
	rm x.kv
	changed gpt_oss 't["blk.0.ffn_gate_up_exps.weight"] = ((5, 48, 40), 0, bytes(5 * 48 * 40 * 4))'
	refused 5 'blk.0.ffn_gate_up_exps.weight: not a tensor of this architecture'
}

@test "layers that guess further tokens are counted in a file, and are left out" {
	local more='
k["glm4moe.block_count"] = (U32, 5)
k["glm4moe.nextn_predict_layers"] = (U32, 1)
t.update({n.replace("blk.3.", "blk.4."): rest for n, rest in t.items() if n.startswith("blk.3.")})
t["blk.4.nextn.eh_proj.weight"] = ((1, 2), 0, bytes(8))
'
	same_families glm4_moe
	changed glm4_moe "$more"
	run -0 --separate-stderr kv-prefill -m x.gguf --ids --logits l -o x.kv ids
	# shellcheck disable=SC2154 # bats sets it
	assert_regex "$stderr" "ignored tensors that are not the model's"
	cmp l glm4_moe.logits
	rm x.kv
	changed glm4_moe "${more}k['glm4moe.nextn_predict_layers'] = (U32, 5)"
	refused 3 'key glm4moe.nextn_predict_layers is 5, of 5 layers'
}

@test "with a file: eviction, a store, quantised rows, retrieval, a draft and several texts are what the folder gives" {
	local c
	family gpt_oss-blocks "$OSS"
	mv gpt_oss-blocks numbers
	"$PYTHON" "$ROOT/tests/bin/mxfp4experts.py" numbers gpt_oss elements
	gguf gpt_oss gpt_oss.gguf
	family deepseek_v2-64 '{}' --old
	seq 40 339 >long
	head -n 60 long >ids
	for c in gpt_oss deepseek_v2-64; do
		for m in "$c" "$c.gguf"; do
			kv-prefill -q -m "$m" --ids --dtype f32 -w 8 --mass -o "$m.kv" ids
			kv-score --method snapkv --kernel 3 "$m.kv" | kv-evict -q --rate 0.4 -o "$m.small.kv"
			kv-decode -q -m "$m" --ids --ignore-eos -n 12 "$m.kv" >"$m.text"
			kv-decode -q -m "$m" --ids --ignore-eos -n 12 "$m.small.kv" >"$m.small"
			kv-decode -q -m "$m" --ids --ignore-eos -n 12 --draft "$m.small.kv" "$m.kv" | diff "$m.text" -
			kv-prefill -q -m "$m" --ids --dtype f32 --score 'snapkv window=8 kernel=3' --evict rate=0.4 -o "$m.fused.kv" ids
			kv-quantize -q --keys int8 --values int8 -o "$m.q8.kv" "$m.kv"
			kv-decode -q -m "$m" --ids --ignore-eos -n 12 "$m.q8.kv" >"$m.q8"
			kv-index -q --pages -o "$m.pages.kv" "$m.kv"
			kv-decode -q -m "$m" --ids --ignore-eos -n 12 --retrieve 'quest budget=100' --offload "$m.pages.kv" | diff "$m.text" -
			kv-prefill -q -m "$m" --ids --dtype f32 --store "$m.store" -o /dev/null long
			run -0 --separate-stderr kv-prefill -v -m "$m" --ids --dtype f32 --store "$m.store" -o "$m.stored.kv" long
			# shellcheck disable=SC2154 # bats sets it
			[[ "$stderr" == *"256 of 300 tokens from $m.store"* ]]
			kv-prefill -q -m "$m" --ids --dtype f32 -o "$m.long.kv" long
			diff <(continued "$m" "$m.stored.kv") <(continued "$m" "$m.long.kv")
			mkdir "$m.all"
			kv-decode -q -m "$m" --ids --ignore-eos -n 12 -o "$m.all" "$m.kv" "$m.small.kv" >/dev/null
		done
		for file in text small q8; do diff "$c.$file" "$c.gguf.$file"; done
		for file in small fused q8 stored; do same_numbers "$c.$file.kv" "$c.gguf.$file.kv"; done
		same_numbers "$c.all/$c.kv" "$c.gguf.all/$c.gguf.kv"
	done
	# another model than the folder, but where all tensors are the same ones
	run -4 --separate-stderr kv-decode -m gpt_oss.gguf --ids -n 1 gpt_oss.kv
	assert_regex "$stderr" 'weights'
	run -0 kv-decode -q -m deepseek_v2-64.gguf --ids --ignore-eos -n 12 deepseek_v2-64.kv
	assert_output "$(cat deepseek_v2-64.text)"
}

@test "tensors of gpt-oss that are missing or of another shape are refused by name" {
	family gpt_oss "$OSS"
	changed gpt_oss 'del t["blk.1.attn_sinks.weight"]'
	refused 3 'no tensor model.layers.1.self_attn.sinks'
	changed gpt_oss 't["blk.2.attn_sinks.weight"] = ((5,), 0, bytes(20))'
	refused 3 'model.layers.2.self_attn.sinks: want [6], file has [5]'
	changed gpt_oss 'shape, kind, raw = t["blk.0.ffn_up_exps.weight"]; t["blk.0.ffn_up_exps.weight"] = ((4, *shape[1:]), kind, raw[:len(raw) // 5 * 4])'
	refused 3 'model.layers.0.mlp.experts.up_proj.weight: want [5][24][40], file has [4][24][40]'
	changed gpt_oss 'k["gpt-oss.expert_count"] = (U32, 4)'
	refused 3 'model.layers.0.mlp.router.weight: want [4][40], file has [5][40]'
	changed gpt_oss 'del t["blk.3.ffn_gate_exps.weight"]'
	refused 3 'no tensor model.layers.3.mlp.experts.gate_proj'
	changed gpt_oss 'del t["blk.3.ffn_down_exps.bias"]'
	refused 3 'no tensor model.layers.3.mlp.experts.down_proj.bias'
	changed gpt_oss 't["blk.3.ffn_down_exps.bias"] = ((5, 41), 0, bytes(4 * 5 * 41))'
	refused 3 'model.layers.3.mlp.experts.down_proj.bias: want [5][40], file has [5][41]'
	changed gpt_oss 'del t["blk.0.ffn_gate_inp.bias"]'
	refused 3 'no tensor model.layers.0.mlp.router.bias'
	changed gpt_oss 't["blk.0.exp_probs_b.bias"] = ((5,), 0, bytes(20))'
	refused 5 'blk.0.exp_probs_b.bias: not a tensor of this architecture'
	changed gpt_oss 'k["gpt-oss.expert_gating_func"] = (U32, 2)'
	refused 5 'key gpt-oss.expert_gating_func is not supported in this architecture'
}

@test "widths of latent attention that contradict each other are refused by key, and a matrix in two forms by name" {
	local key=deepseek2.attention
	changed deepseek_v3-experts "k['$key.key_length_mla'] = (U32, 16)"
	refused 3 "key $key.key_length_mla is 16, of which 16 channels are rotated"
	changed deepseek_v3-experts "k['$key.key_length_mla'] = (U32, 41)"
	refused 3 'model.layers.0.self_attn.q_b_proj.weight: want [123][72], file has [120][72]'
	changed deepseek_v3-experts "k['$key.key_length'] = (U32, 73)"
	refused 3 "key $key.key_length is 73, and rows of the cache have 72 channels there"
	changed deepseek_v3-experts "k['$key.value_length'] = (U32, 40)"
	refused 3 "key $key.value_length is 40, and rows of the cache have 56 channels there"
	changed deepseek_v3-experts "del k['$key.value_length_mla']"
	refused 3 "no key $key.value_length_mla"
	changed deepseek_v3-experts "k['$key.value_length_mla'] = (U32, 39)"
	refused 3 'model.layers.0.self_attn.v_b_proj.weight: want [3][39][56], file has [3][40][56]'
	changed deepseek_v3-experts "del k['$key.kv_lora_rank']"
	refused 3 "no key $key.kv_lora_rank"
	changed deepseek_v3-experts "del k['$key.key_length_mla'], k['$key.value_length_mla']"
	refused 3 'model.layers.0.self_attn.q_b_proj.weight: want [216][72], file has [120][72]'
	changed deepseek_v3-experts 'del t["blk.2.attn_v_b.weight"]'
	refused 3 'no tensor model.layers.2.self_attn.v_b_proj.weight'
	changed deepseek_v3-experts 'shape, kind, raw = t["blk.2.attn_k_b.weight"]; t["blk.2.attn_k_b.weight"] = ((shape[0], shape[2], shape[1]), kind, raw)'
	refused 3 'model.layers.2.self_attn.k_b_proj.weight: want [3][56][24], file has [3][24][56]'
	changed deepseek_v3-experts 't["blk.1.attn_kv_b.weight"] = ((192, 56), 0, bytes(192 * 56 * 4))'
	refused 3 'model.layers.1.self_attn.kv_b_proj.weight and model.layers.1.self_attn.k_b_proj.weight: the same matrix in two forms'
	changed deepseek_v3 'del k["deepseek2.rope.scaling.yarn_log_multiplier"]'
	refused 5 'yarn without key deepseek2.rope.scaling.yarn_log_multiplier above 0 is not supported'
	changed deepseek_v3 'k["deepseek2.attention.temperature_scale"] = (F32, 0.1)'
	refused 5 'key deepseek2.attention.temperature_scale is not supported in this architecture'
}

@test "what a router cannot be is refused by key" {
	local c=deepseek_v3-experts
	changed $c 'k["deepseek2.expert_gating_func"] = (U32, 4)'
	refused 5 'key deepseek2.expert_gating_func is 4, which is not supported: want 1 (softmax) or 2 (sigmoid)'
	changed $c 'k["deepseek2.expert_group_count"] = (U32, 4)'
	refused 3 '9 experts in 4 groups (n_group): not a whole number each'
	changed $c 'k["deepseek2.expert_gating_func"] = (U32, 1)'
	refused 5 'key deepseek2.expert_weights_norm is true, which is not supported with scores that are a softmax'
	changed $c 'k["deepseek2.expert_gating_func"] = (U32, 1); del k["deepseek2.expert_weights_norm"]'
	refused 5 'model.layers.2.mlp.gate.e_score_correction_bias: not a tensor of this architecture'
	changed $c 'k["deepseek2.expert_shared_count"] = (U32, 2)'
	refused 3 'model.layers.2.mlp.shared_experts.gate_proj.weight: want [16][40], file has [8][40]'
	changed $c 'k["deepseek2.leading_dense_block_count"] = (U32, 1)'
	refused 3 'no tensor model.layers.1.mlp.gate.weight'
	changed $c 'del t["blk.3.exp_probs_b.bias"]'
	refused 3 'no tensor model.layers.3.mlp.gate.e_score_correction_bias'
	family ernie4_5_moe '{"moe_layer_end_index": "absent"}'
	changed ernie4_5_moe 'k["ernie4_5-moe.expert_shared_feed_forward_length"] = (U32, 41)'
	refused 5 'key ernie4_5-moe.expert_shared_feed_forward_length is 41, which is not supported: want 2 times 20'
	changed ernie4_5_moe 'k["ernie4_5-moe.expert_weights_scale"] = (F32, 2.0)'
	refused 5 'key ernie4_5-moe.expert_weights_scale is not supported in this architecture'
}

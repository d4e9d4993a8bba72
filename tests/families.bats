#!/usr/bin/env bats
# bats file_tags=slow
# Families of models: what transformers computes of tiny random ones, recorded by tests/oracle/families.py, and what else a family must not break

load helper
load families

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

@test "Llama with biases, and with every scaling of rotary embedding, is what transformers computes" {
	recorded llama llama-biases llama-linear llama-llama3 llama-dynamic llama-yarn llama-yarn-mscale llama-yarn-factor
}

@test "Mistral, Qwen2 and Qwen3 are what transformers computes" {
	recorded mistral qwen2 qwen2-yarn qwen3 qwen3-yarn
}

@test "sliding windows in all layers, by layer_types, by number and by rotary embedding are what transformers computes" {
	recorded mistral-window ministral qwen2-window qwen3-window phi3-window smollm3-window
}

@test "Gemma 1, 2 and 3 are what transformers computes" {
	recorded gemma gemma2 gemma3 gemma3-nested
}

@test "Phi-3, SmolLM3, Granite and OLMo-2 are what transformers computes" {
	recorded phi3 phi3-partial phi3-longrope phi3-longrope-short smollm3 smollm3-biases granite olmo2
}

@test "OLMo-3, whose layers with a window have no scaling of rotary embedding, is what transformers computes" {
	recorded olmo3 olmo3-yarn
}

@test "EXAONE 4, whose layers without a window do not rotate where others have one, is what transformers computes" {
	recorded exaone4 exaone4-llama3 exaone4-typed
}

@test "Ministral 3, whose queries depend on their position, is what transformers computes" {
	recorded ministral3 ministral3-window
}

@test "GLM-4, whose rotary embedding rotates channels side by side, is what transformers computes" {
	recorded glm glm4 glm4-biases
}

@test "ERNIE 4.5, Helium, Seed-OSS, InternLM 3 and EXAONE 3 are what transformers computes" {
	recorded ernie4_5 ernie4_5-biases helium seed_oss internlm3 exaone
}

@test "networks without a gate, Arcee and Nemotron, are what transformers computes" {
	recorded arcee arcee-biases nemotron
}

@test "LayerNorm: StarCoder2, StableLM and OLMo are what transformers computes" {
	recorded starcoder2 stablelm olmo
}

@test "norms of each head with weights of their own, Command R+ and StableLM 2 12B, are what transformers computes" {
	recorded cohere-normed stablelm-12b stablelm-normed stablelm-parallel
}

@test "queries, keys and values that are clamped, OLMo and OLMoE with clip_qkv, are what transformers computes" {
	recorded olmo-clip olmoe-clip
}

@test "queries, keys and values of a head in one matrix, GPT-NeoX, Falcon and InternLM 2, are what transformers computes" {
	recorded gpt_neox gpt_neox-in-turn falcon falcon-40b falcon-11b internlm2 internlm2-biases
}

@test "scales by depth and width, MiniCPM, are what transformers computes with Granite's keys" {
	recorded minicpm minicpm-longrope
}

@test "CWM, MiMo and Apertus, whose activation has parameters, are what transformers computes" {
	recorded cwm mimo apertus apertus-biases
}

@test "attention and network beside each other, Phi-2 and Command R, are what transformers computes" {
	recorded phi cohere cohere-biases cohere2
}

@test "latent attention, DeepSeek-V2 and V3, is what transformers computes, rows as its cache has them" {
	recorded deepseek_v2 deepseek_v2-lite deepseek_v2-biases deepseek_v2-64 deepseek_v3 deepseek_v3-halves
	recorded deepseek_v3-wide deepseek_v2-greedy deepseek_v2-experts deepseek_v3-experts
}

@test "latent attention under other names, Kimi K2, GLM-4.7-Flash and MiniCPM3, is what transformers computes" {
	recorded kimi_k2 kimi_k2-experts glm4_moe_lite glm4_moe_lite-types minicpm3 minicpm3-biases
}

@test "the text part of a model that sees images is what transformers computes" {
	recorded gemma3-wrapped mistral3 mistral3-inner
	echo '1 2 3' >ids
	run -0 --separate-stderr kv-prefill -m "$(family mistral3)" --ids -o x.kv ids
	[[ "$stderr" == *"ignored tensors that are not the model's: 1 (vision_tower.no_such.weight)" ]] || fail "$stderr"
	[ "$(see x.kv 's.head["model"]["architecture"]')" = mistral ]
}

@test "with weights of bf16 a family is what transformers computes of them in f32" {
	recorded {llama,mistral,ministral,qwen2,qwen3,phi3,smollm3,granite,olmo2,olmo3,exaone4,ministral3,glm,glm4}-bf16 \
		{ernie4_5,helium,seed_oss,internlm3,exaone,arcee,nemotron,starcoder2,phi,stablelm,olmo,cohere,cohere2,deepseek_v2,deepseek_v3}-bf16 \
		{kimi_k2,glm4_moe_lite,minicpm3,minicpm,apertus,gpt_neox,falcon,internlm2,cwm,mimo}-bf16
}

@test "GPT-NeoX and InternLM 2 have their head under either name, and what old files and extra layers leave is passed over" {
	local name
	text_ids 12
	for name in gpt_neox internlm2; do
		kv-prefill -m "$(family $name)" --ids --dtype f32 -o want.kv ids
		rm -rf x
		cp -r "$(family $name)" x
		"$PYTHON" - x/model.safetensors <<-'END'
			import json, struct, sys
			data = open(sys.argv[1], "rb").read()
			n, = struct.unpack("<Q", data[:8])
			header = {name.replace("embed_out.", "lm_head.").replace("output.weight", "lm_head.weight"): v
			          for name, v in json.loads(data[8:8 + n]).items()}
			end = len(data) - 8 - n
			header["gpt_neox.layers.0.attention.bias"] = {
			    "dtype": "BOOL", "shape": [1, 1, 2, 2], "data_offsets": [end, end + 4]}
			text = json.dumps(header).encode()
			open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:] + bytes(4))
		END
		run -0 --separate-stderr kv-prefill -m x --ids --dtype f32 -o got.kv ids
		assert_regex "$stderr" 'ignored tensors that are not the model.s: 1 \(gpt_neox.layers.0.attention.bias\)'
		same_logits want.kv got.kv
	done
	run -0 --separate-stderr kv-prefill -m "$(family mimo)" --ids -o x.kv ids
	assert_regex "$stderr" 'not the model.s: 1 \(model.mtp_layers.0.input_proj.weight\)'
	cp -r "$(family mimo)" y
	sed -i 's/"num_nextn_predict_layers": 1/"num_nextn_predict_layers": 0/' y/config.json
	run -5 --separate-stderr kv-prefill -m y --ids -o x.kv ids
	assert_regex "$stderr" 'model.mtp_layers.0.input_proj.weight: not a tensor of this architecture'
}

@test "the record has every case that mkfamily.py makes" {
	run -0 json "$ROOT/tests/fixtures/families.json" '"\n".join(o)'
	assert_output "$("$PYTHON" "$ROOT/tests/bin/mkfamily.py" --list)"
}

@test "chunks, layer by layer and token by token give the same logits in every family" {
	local m name pairs=() names="qwen2 qwen3 phi3-partial smollm3 granite olmo2 olmo3-yarn exaone4 ministral3 glm4-biases exaone nemotron starcoder2 phi cohere2 llama-yarn mistral-window ministral gemma2 gemma3 \
		cohere-normed stablelm-12b olmo-clip gpt_neox falcon-40b internlm2 minicpm minicpm3 kimi_k2 cwm apertus"
	text_ids 40
	# shellcheck disable=SC2086 # words
	families $names
	for name in $names; do
		m=$(family $name)
		kv-prefill -m "$m" --ids --dtype f32 -o $name.whole.kv ids
		kv-prefill -m "$m" --ids --dtype f32 --chunk 7 -o $name.chunks.kv ids
		kv-prefill -m "$m" --ids --dtype f32 --score recent --evict rate=1 -o $name.layers.kv ids
		head -c $(($(cut -d ' ' -f 1-39 ids | wc -c) - 1)) ids >most && cut -d ' ' -f 40 ids >last
		kv-prefill -m "$m" --ids --dtype f32 -o most.kv most
		kv-prefill -m "$m" --ids --dtype f32 -r most.kv -o $name.two.kv last
		for other in chunks layers two; do pairs+=("$name.whole.kv" "$name.$other.kv"); done
	done
	same_logits "${pairs[@]}"
}

@test "keys move to other positions by the rotary embedding of their model and layer" {
	local name pairs=()
	text_ids 40
	for name in llama-linear llama-yarn ministral3 glm4 ernie4_5 phi llama-yarn-mscale qwen2-yarn phi3-partial phi3-longrope smollm3 deepseek_v2-lite deepseek_v3 \
		minicpm3 kimi_k2 gpt_neox falcon-11b internlm2 stablelm-12b cohere-normed minimax_m2; do
		kv-prefill -m "$(family $name)" --ids --dtype f32 --mass -o full.kv ids
		kv-score --method h2o full.kv >x.kv
		kv-evict -q --rate 0.4 x.kv -o a.$name.kv
		kv-evict -q --rate 0.4 --positions compact x.kv -o b.$name.kv
		run ! cmp -s a.$name.kv b.$name.kv
		pairs+=({a,b}."$name".kv)
	done
	"$PYTHON" "$ORACLE/renumber.py" "${pairs[@]}"
}

@test "methods, selection, retrieval and observation run on every family, and stay within its limits" {
	local m name
	text_ids 40
	for name in qwen3-yarn phi3-partial smollm3 granite olmo2 glm4 stablelm phi cohere gemma gpt_neox falcon internlm2 apertus; do
		m=$(family $name)
		kv-prefill -m "$m" --ids --observe 8 --mass -o full.kv ids
		for method in snapkv knorm keydiff h2o; do
			kv-score --method $method full.kv | kv-evict --rate 0.5 >small.kv
			run -0 kv-decode -m "$m" --ids --ignore-eos -n 2 small.kv
		done
		kv-prefill -m "$m" --ids --score 'snapkv window=4 kernel=1' --evict rate=0.3 -o fused.kv ids
		kv-prefill -m "$m" --ids --select 'tsp layer=1' -o tsp.kv ids
		kv-prefill -m "$m" --ids --select 'gemfilter layer=1 budget=12' -o gem.kv ids
		kv-observe -m "$m" --ids-from ids -o seen.kv full.kv
		kv-quantize1b -g 16 full.kv >bits.kv
		kv-decode -m "$m" --ids --ignore-eos -n 3 full.kv >full.ids
		kv-decode -m "$m" --ids --ignore-eos -n 3 --retrieve 'fier budget=100' bits.kv >read.ids
		diff full.ids read.ids
		run -0 kv-check fused.kv tsp.kv gem.kv seen.kv
	done
}

@test "what a family cannot have is refused with the reason" {
	local name
	text_ids 40
	for name in phi3-partial smollm3; do
		kv-prefill -m "$(family $name)" --ids -o full.kv ids
		run -5 --separate-stderr kv-index --low-rank -o x.kv full.kv
		[[ "$stderr" == *"keys of low rank (ShadowKV) are not supported for this model"* ]]
		[ ! -e x.kv ]
	done
	for name in phi3 granite olmo2 llama-biases gemma gemma2; do
		kv-prefill -m "$(family $name)" --ids -o full.kv ids
		run -5 --separate-stderr kv-observe -m "$(family $name)" --lookahead "$DEMO/lookahead" -o x.kv full.kv
		[[ "$stderr" == *"lookahead adapters are not supported for models of type "* ]]
	done
}

@test "documents that are merged have the keys of one text, and once all tokens run again its rows" {
	local m name
	seq 10 30 >a && seq 40 75 >b && cat a b >ab
	for name in llama ministral3 exaone4-llama3 glm4 ernie4_5 nemotron phi cohere; do
		m=$(family $name)
		for text in a b ab; do kv-prefill -m "$m" --ids --dtype f32 -o $text.kv $text; done
		kv-merge -q -o merged.kv a.kv b.kv
		kv-recompute -q -m "$m" --rate 1 -o again.kv merged.kv
		"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
import numpy as np
one, merged, again = (kvread.read(open(f + ".kv", "rb")) for f in ("ab", "merged", "again"))
def differ(a, l):
    x, y = (np.array([s.array(l, what, g) for what in ("keys", "values") for g in range(3)]) for s in (one, a))
    return np.abs(x - y).max() / np.abs(x).max()
assert differ(merged, 0) < 1e-6 and differ(merged, 3) > 0.1, "layer 0 of the merged documents"
assert all(differ(again, l) < 1e-5 for l in range(4)), "rows that ran again"' "$FORMAT" || fail "$name"
	done
}

@test "behind a LayerNorm without weights all inputs are equally long: KVzip+ is KVzip by value norms" {
	local m
	m=$(family olmo)
	text_ids 40
	kv-prefill -q -m "$m" --ids --dtype f32 -o full.kv ids
	kv-observe -q -m "$m" --repeat-context --chunk 2048 -o plain.kv full.kv
	kv-observe -q -m "$m" --repeat-context --value-norms --chunk 2048 -o plus.kv full.kv
	"$PYTHON" -c '
import json, pathlib, struct, sys
sys.path.insert(0, sys.argv[1])
import kvread
import numpy as np
plain, plus = (kvread.read(open(f, "rb")) for f in ("plain.kv", "plus.kv"))
raw = (pathlib.Path(sys.argv[2]) / "model.safetensors").read_bytes()
n = 8 + struct.unpack("<Q", raw[:8])[0]
at = json.loads(raw[8:n])["model.layers.2.self_attn.o_proj.weight"]["data_offsets"]
wo = np.frombuffer(raw[n + at[0]:n + at[1]], "<f4").reshape(40, 72)
for h in range(6):              # the first 4 rows are sinks
    x, y = (np.array(s.layers[2].paid.values[h // 2][h % 2])[4:] for s in (plain, plus))
    v = np.array(plain.array(2, "values", h // 2))[4:]
    long = y / x / np.linalg.norm(v @ wo[:, h * 12:h * 12 + 12].T, axis=1)
    assert np.abs(long * 40 ** 0.5 - 1).max() < 1e-3, (h, long)' "$FORMAT" "$m"
}

@test "a snapshot of one rotary embedding is refused by a model of another" {
	text_ids 20
	kv-prefill -m "$(family llama-yarn)" --ids -o yarn.kv ids
	cp -r "$(family llama-yarn)" other
	sed -i 's/"factor": 4.0/"factor": 2.0/' other/config.json
	run -4 --separate-stderr kv-decode -m other -n 1 yarn.kv
	[[ "$stderr" == *"rope.factor: 4 snapshot, 2 model"* && "$stderr" == *"rope.attention_factor: "* ]]
}

@test "longrope turns all keys of a text by its length, and refuses one that grows beyond the change" {
	local m
	m=$(family phi3-longrope)
	text_ids 20
	kv-prefill -m "$m" --ids -o long.kv ids
	[ "$(see long.kv 's.head["model"]["rope"]["factors"][1]')" = 2.0 ]
	run -0 kv-decode -m "$m" --ids --ignore-eos -n 3 long.kv
	text_ids 14
	kv-prefill -m "$m" --ids -o short.kv ids
	[ "$(see short.kv 's.head["model"]["rope"]["factors"][1]')" = 1.1 ]
	run -0 kv-decode -m "$m" --ids --ignore-eos -n 2 short.kv
	run -5 --separate-stderr kv-decode -m "$m" --ids --ignore-eos -n 9 short.kv
	[[ "$stderr" == *"differently beyond 16 tokens, and the text began below"* ]]
	run -5 --separate-stderr kv-prefill -m "$m" --ids -r short.kv -o x.kv ids
	[[ "$stderr" == *"position 14 + 14 tokens: this model (longrope) scales RoPE differently beyond 16 tokens"*"from its beginning"* ]]
	[ ! -e x.kv ]
	kv-prefill -m "$m" --ids -r long.kv -o more.kv ids
	run -0 kv-check more.kv
}

@test "rows of a prompt's beginning are reused, stored and converted in every family" {
	local m name pairs=()
	text_ids 300
	cut -d ' ' -f 1-280 ids >begin
	for name in qwen2 qwen3 phi3-partial smollm3 granite olmo2 olmo3-yarn exaone4 ministral3 glm4-biases exaone nemotron starcoder2 phi cohere2 llama-yarn mistral-window ministral gemma2 gemma3; do
		m=$(family $name)
		kv-prefill -m "$m" --ids --dtype f32 -o $name.cold.kv ids
		kv-prefill -m "$m" --ids --dtype f32 -o begin.kv begin
		kv-prefill -m "$m" --ids --dtype f32 --reuse begin.kv -o $name.reused.kv ids
		kv-prefill -m "$m" --ids --dtype f32 --store store -o /dev/null begin
		run -0 --separate-stderr kv-prefill -v -m "$m" --ids --dtype f32 --store store -o $name.stored.kv ids
		[[ "$stderr" == *"256 of 300 tokens from store"* ]] || fail "$name: $stderr"
		kv-convert $name.cold.kv >cold.safetensors
		kv-convert cold.safetensors >back.kv
		run -0 kv-diff $name.cold.kv back.kv
		pairs+=("$name".{cold,reused}.kv "$name".{cold,stored}.kv)
	done
	same_logits "${pairs[@]}"
	# each family has its own blocks
	[ "$(find store -name '*.kv' | wc -l)" -eq 20 ]
}

@test "with longrope a long prompt does not take the rows of a short one, nor the other way round" {
	local m
	m=$(family phi3-longrope-short)
	text_ids 300
	cut -d ' ' -f 1-256 ids >begin
	kv-prefill -m "$m" --ids --dtype f32 --store store -o short.kv begin
	kv-prefill -m "$m" --ids --dtype f32 --store store -o long.kv ids
	kv-prefill -m "$m" --ids --dtype f32 -o cold.kv ids
	same_logits cold.kv long.kv
	[ "$(find store -name '*.kv' | wc -l)" -eq 2 ]
	run -5 kv-prefill -m "$m" --ids --dtype f32 --reuse short.kv -o x.kv ids
	assert_output --partial 'this model (longrope) scales RoPE differently beyond 256 tokens, and '
	run -5 kv-prefill -m "$m" --ids --dtype f32 --reuse long.kv -o x.kv begin
	assert_output --partial 'the prompt has 256 tokens'
}

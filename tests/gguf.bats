#!/usr/bin/env bats
# bats file_tags=slow
# A GGUF file of llama.cpp in place of a model folder: the same model, or a refusal by name

load helper

# gguf FOLDER FILE [OPTION ...]: the folder as a GGUF file, written by other code
gguf() {
	"$PYTHON" "$ROOT/tests/bin/mkgguf.py" "$@"
}

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	gguf "$DEMO" demo.gguf
	printf 'The harbour of Elmford is' >text
	kv-prefill -m "$DEMO" --logits logits -o demo.kv text
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/{demo.gguf,text,logits,demo.kv} .
}

# changed PYTHON: x.gguf <- the demo model's, whose keys k = {name: (kind, value)}, tensors t = [(name, shape, type, bytes)] and options
# the code may change
changed() {
	"$PYTHON" - "$ROOT/tests/bin" "$DEMO" "$1" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		from mkgguf import *
		k, t = read_folder(sys.argv[2])
		options = {}
		exec(sys.argv[3])
		write("x.gguf", k, t, **options)
	END
}

# refused STATUS MESSAGE: by kv-prefill with x.gguf, in one line, and without output
refused() {
	run "-$1" --separate-stderr kv-prefill -m x.gguf -o x.kv text
	# shellcheck disable=SC2154 # bats sets it
	[[ "$stderr" == *"x.gguf: "*"$2"* ]] || { echo "$stderr"; return 1; }
	# shellcheck disable=SC2154 # bats sets it
	assert_equal "${#stderr_lines[@]}" 1
	[ ! -e x.kv ]
}

# same_as_demo FILE: text to logits, keys and values as of the folder
same_as_demo() {
	run -0 --separate-stderr kv-prefill -m "$1" --logits l -o x.kv text
	assert_equal "$stderr" ''
	cmp l logits
	same_numbers x.kv demo.kv
}

# family CASE [JSON]: a tiny model as a folder, with these keys of config.json, and as a GGUF file
family() {
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" "$1" "$1" "$DEMO/tokenizer.json"
	"$PYTHON" - "$1/config.json" "${2:-{\}}" <<-'END'
		import json, sys
		c = json.load(open(sys.argv[1]))
		c.update(json.loads(sys.argv[2]))
		json.dump(c, open(sys.argv[1], "w"))
	END
	gguf "$1" "$1.gguf"
}

# same_families CASE ...: logits to the byte, and all that a snapshot says of the model but its weights
same_families() {
	local c m
	seq 3 50 >ids
	for c; do
		[ -e "$c.gguf" ] || family "$c"
		for m in "$c" "$c.gguf"; do
			kv-prefill -m "$m" --ids --logits "$m.logits" -o "$m.kv" ids
			kv-info --json "$m.kv" | "$PYTHON" -c 'import json, sys
o = json.load(sys.stdin)["model"]
o.pop("weights")
print(o)' >"$m.info"
		done
		cmp "$c.logits" "$c.gguf.logits" || fail "$c: other logits"
		assert_equal "$(cat "$c.info")" "$(cat "$c.gguf.info")"
	done
}

@test "a GGUF file works as its folder does: ids, logits, keys and values, text" {
	same_as_demo demo.gguf
	for m in "$DEMO" demo.gguf; do
		kv-tokenize -m "$m" "$ROOT/examples/prompts/harbour.txt" >"$(basename "$m").ids"
		kv-prefill -q -m "$m" text | kv-decode -m "$m" -n 40 >"$(basename "$m").text"
	done
	cmp demo-model.ids demo.gguf.ids
	cmp demo-model.text demo.gguf.text
	# the same vocabulary has the same fingerprint
	run -0 kv-info demo.kv
	assert_line "$(kv-info x.kv | grep ^tokenizer)"
}

@test "versions 2 and 3, any alignment and split files are the same model, and a name may be in the environment" {
	gguf "$DEMO" two.gguf --version 2 --alignment 64
	same_as_demo two.gguf
	rm x.kv
	gguf "$DEMO" parts.gguf --split 3
	same_as_demo parts-00001-of-00003.gguf
	rm x.kv
	KV_MODEL=demo.gguf kv-prefill -o y.kv text
	same_numbers y.kv demo.kv
	rm parts-00002-of-00003.gguf
	run -1 --separate-stderr kv-prefill -m parts-00001-of-00003.gguf -o z.kv text
	assert_regex "$stderr" 'parts-00002-of-00003.gguf: No such file'
	run -5 --separate-stderr kv-prefill -m parts-00003-of-00003.gguf -o z.kv text
	assert_regex "$stderr" 'part 3 of a split model: name the first one'
}

@test "families are the same models: rows of queries and keys, biases, fused matrices, norms, multipliers, windows" {
	same_families llama llama-biases qwen2 qwen3 phi3 phi3-partial granite olmo2 phi3-window
	family smollm3 '{"no_rope_layers": null, "no_rope_layer_interval": 4}'
	family gemma2 '{"query_pre_attn_scalar": 12}'
	same_families smollm3 gemma gemma2 gemma3
}

@test "mixtures of experts are the same models: Mixtral under Llama's name, Qwen's, OLMoE, Granite's" {
	same_families mixtral qwen2_moe qwen3_moe olmoe granitemoe mixtral-bf16 qwen3_moe-bf16
}

@test "families with LayerNorm, parallel blocks, other rotations and other names of tensors are the same models" {
	family starcoder2 '{"sliding_window": null}'
	same_families phi olmo cohere cohere-biases exaone glm glm4 glm4-biases ernie4_5 ernie4_5-biases seed_oss arcee-biases nemotron starcoder2 stablelm
}

@test "a window and layers without one are the same: OLMo 3, Command R7B, EXAONE 4, and EXAONE 4 has none where no key says so" {
	same_families olmo3 cohere2 exaone4 exaone4-typed exaone4-llama3
	# with 64 layers llama.cpp gives it one
	"$PYTHON" - "$ROOT/tests/bin" exaone4-llama3 <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		from mkgguf import *
		k, t = read_folder(sys.argv[2])
		k["exaone4.block_count"] = (U32, 64)
		t += [(f"blk.{i}" + n[len("blk.0"):], s, y, b) for i in range(4, 64) for n, s, y, b in t if n.startswith("blk.0.")]
		write("x.gguf", k, t)
	END
	kv-prefill -m x.gguf --ids -o x.kv ids
	run -0 kv-info x.kv
	assert_line --regexp '4096'
}

@test "an old file of Mixtral, with a tensor for each expert, is the same model" {
	family mixtral
	"$PYTHON" - "$ROOT/tests/bin" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		import mkgguf
		keys, tensors = mkgguf.read_folder("mixtral")
		apart = []
		for name, shape, kind, raw in tensors:
		    if "_exps" not in name:
		        apart.append((name, shape, kind, raw))
		        continue
		    one = len(raw) // shape[0]
		    apart += [(name.replace("_exps", f".{e}"), shape[1:], kind, raw[e * one:(e + 1) * one]) for e in range(shape[0])]
		mkgguf.write("mixtral.gguf", keys, apart)
	END
	same_families mixtral
}

@test "scalings of rotary embedding are the same: linear, Llama 3's, yarn, longrope" {
	same_families llama-linear llama-llama3 llama-yarn qwen2-yarn phi3-longrope phi3-longrope-short ministral3
	# yarn's usual factor of attention, written out
	family olmo3-yarn '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.138629436111989}}'
	same_families olmo3-yarn
}

@test "Ministral's scale of queries is refused where rotary embedding is not scaled, and so is a factor of attention that llama.cpp does not obey" {
	family ministral3
	"$PYTHON" - "$ROOT/tests/bin" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		from mkgguf import *
		k, t = read_folder("ministral3")
		k["mistral3.rope.scaling.type"] = (STRING, "none")
		write("x.gguf", k, t)
		k["mistral3.rope.scaling.type"] = (STRING, "yarn")
		k["mistral3.rope.scaling.yarn_attn_factor"] = (F32, 1.5)
		write("y.gguf", k, t)
	END
	refused 5 'key mistral3.attention.temperature_scale is supported with yarn only'
	mv y.gguf x.gguf
	refused 5 'yarn_attn_factor other than 1 are not supported'
}

@test "Llama 3's four numbers are found again from the factors, and other factors are refused" {
	local scaling='{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}'
	changed 'f = llama3_factors({"rope_theta": 500000.0, "rope_scaling": '"$scaling"'}, 32)
t.append(vector("rope_freqs.weight", f))'
	kv-prefill -m x.gguf -o x.kv text
	run -0 kv-info x.kv
	assert_line --regexp 'rope +llama3, theta 500000, factor 32, low 1, high 4, original context 8192'
	rm x.kv
	# low and high as nobody has them: the same angles
	changed 'f = llama3_factors({"rope_theta": 500000.0, "rope_scaling": dict('"$scaling"', low_freq_factor=1.0, high_freq_factor=16.0, original_max_position_embeddings=1000)}, 32)
t.append(vector("rope_freqs.weight", f))'
	kv-prefill -m x.gguf -o x.kv text
	run -0 kv-info x.kv
	assert_line --regexp 'rope +llama3, theta 500000, factor 32, low 1, high 16, original context 1000'
	rm x.kv
	changed 't.append(vector("rope_freqs.weight", [1 + n / 10 for n in range(16)]))'
	refused 5 'tensor rope_freqs.weight: its factors are not those of Llama 3'
	changed 't.append(vector("rope_freqs.weight", [1.0] * 16))'
	same_as_demo x.gguf
	rm x.kv
	changed 't.append(vector("rope_freqs.weight", [1.0] * 15))'
	refused 3 'tensor rope_freqs.weight: want 16 factors'
}

@test "weights in f16 and f32 are the folder's in the same type" {
	local type
	for type in f16 f32; do
		random_model "$type" --dtype "$type" --seed 3 --bias
		gguf "$type" "$type.gguf"
		same_families "$type"
	done
}

@test "weights in blocks give the logits of the numbers that they stand for" {
	changed '
def q8_0(x):
    x = x.reshape(-1, 32)
    d = (np.abs(x).max(1) / 127).astype(np.float16)
    q = np.round(x / np.where(d == 0, 1, d)[:, None].astype(np.float32)).astype(np.int8)
    blocks = np.concatenate([d.view(np.int8).reshape(-1, 2), q], 1)
    return blocks.tobytes(), (d.astype(np.float32)[:, None] * q.astype(np.float32))
wide, blocks = [], []
for name, shape, number, raw in t:
    if len(shape) == 2:
        raw, numbers = q8_0(as_f32(np.frombuffer(raw, "<u2"), "BF16"))
        blocks.append((name, shape, 8, raw))
        wide.append((name, shape, 0, numbers.astype("<f4").tobytes()))
    else:
        blocks.append((name, shape, number, raw))
        wide.append(blocks[-1])
write("wide.gguf", k, wide)
t = blocks'
	kv-prefill -m x.gguf --dtype f32 --logits a -o x.kv text
	kv-prefill -m wide.gguf --dtype f32 --logits b -o y.kv text
	"$PYTHON" -c 'import numpy as np, sys
a, b = np.load("a"), np.load("b")
error = np.linalg.norm(a - b) / np.linalg.norm(b)
sys.exit(f"{error}" if error > 1e-5 else 0)'
}

@test "the fingerprint is of names, types, shapes and bytes, and is known the next time" {
	local want
	want=$("$PYTHON" - "$ROOT/tests/bin" "$DEMO" <<-'END'
		import pathlib, struct, sys
		import xxhash
		sys.path.insert(0, sys.argv[1])
		from mkgguf import *
		c = json.loads((pathlib.Path(sys.argv[2]) / "config.json").read_text())
		types = {v: n for n, v in TYPES.items()}
		all = {}
		for name, dtype, x in safetensors(pathlib.Path(sys.argv[2])):
		    _, shape, number, raw = convert(name, dtype, x, "llama", c)
		    pieces = [raw[at:at + (1 << 20)] for at in range(0, len(raw), 1 << 20)]
		    all[name] = b"".join([name.encode(), b"\0", types[number].encode(), b"\0",
		        struct.pack(f"<I{len(shape)}QQ", len(shape), *shape, len(raw)),
		        *(xxhash.xxh3_128_digest(p) for p in pieces)])
		print(xxhash.xxh3_128_hexdigest(b"".join(all[n] for n in sorted(all))))
	END
	)
	kv-prefill -m demo.gguf -o x.kv text
	run -0 kv-info x.kv
	assert_line "weights        $want bf16"
	cp demo.gguf own.gguf
	touch -d '1 hour ago' own.gguf
	unset KV_FINGERPRINTS
	export XDG_CACHE_HOME=$PWD/cache
	sleep 4
	kv-prefill -v -m own.gguf -o a.kv text 2>err
	grep 'read for their fingerprint' err
	kv-prefill -v -m own.gguf -o b.kv text 2>err
	grep 'their fingerprint is known' err
	cmp a.kv b.kv
}

@test "keys that are unknown, or that say what is not computed, are refused by name, and passed over with --allow-config" {
	changed 'k["llama.mystery"] = (U32, 1)'
	refused 5 'key llama.mystery is unknown: it may change the arithmetic (--allow-config llama.mystery ignores it)'
	run -0 --separate-stderr kv-prefill -m x.gguf --allow-config llama.mystery --logits l -o x.kv text
	cmp l logits
	rm x.kv
	changed 'k["general.architecture"] = (STRING, "qwen2"); k.update({n.replace("llama.", "qwen2."): v for n, v in k.items()}); k["qwen2.expert_count"] = (U32, 8)'
	refused 5 'key qwen2.expert_count: a mixture of experts is not supported'
	changed 'k["llama.expert_count"] = (U32, 0); k["unknown.of.nobody"] = (U32, 0)'
	same_as_demo x.gguf
	rm x.kv
	changed 'k["general.architecture"] = (STRING, "mamba")'
	refused 5 'general.architecture "mamba" is not supported; supported are llama, qwen2'
	changed 'k["llama.attention.value_length"] = (U32, 16)'
	refused 5 'heads of 32 channels of keys and 16 of values'
	changed 'k["llama.embedding_scale"] = (F32, 2.0)'
	refused 5 'key llama.embedding_scale is not supported in this architecture'
	changed 'k["llama.rope.scaling.type"] = (STRING, "ntk")'
	refused 5 'key llama.rope.scaling.type "ntk" is not supported'
	run -0 --separate-stderr kv-prefill -m x.gguf --allow-config llama.rope.scaling.type --logits l -o x.kv text
	cmp l logits
	rm x.kv
	changed 'k["llama.rope.scaling.attn_factor"] = (F32, 1.5)'
	refused 5 'key llama.rope.scaling.attn_factor is supported with yarn and longrope only'
	changed 'k["general.type"] = (STRING, "adapter")'
	refused 5 'general.type is "adapter"'
	changed 'k["llama.attention.head_count_kv"] = (U32, [2, 2, 1, 2])'
	refused 5 'key llama.attention.head_count_kv differs between layers'
	changed 'k["llama.attention.head_count_kv"] = (U32, [2, 2, 2, 2])'
	same_as_demo x.gguf
}

@test "values of a wrong type and contradictions are refused by key" {
	changed 'k["llama.block_count"] = (STRING, "4")'
	refused 3 'key llama.block_count is a string, not a whole number'
	changed 'k["llama.block_count"] = (I32, -4)'
	refused 3 'key llama.block_count is -4'
	changed 'k["llama.rope.freq_base"] = (U32, 10000)'
	refused 3 'key llama.rope.freq_base is u32, not a real number'
	changed 'k["llama.attention.layer_norm_rms_epsilon"] = (F32, float("nan"))'
	refused 3 'layer_norm_rms_epsilon is not finite'
	changed 'del k["llama.block_count"]'
	refused 3 'no "num_hidden_layers"'
	changed 'k["llama.block_count"] = (U64, 1 << 40)'
	refused 3 '"num_hidden_layers" is 1099511627776, not 1 to 4096'
	changed 'k["tokenizer.ggml.tokens"] = (U32, [1, 2])'
	refused 3 'key tokenizer.ggml.tokens is an array of numbers, not an array of strings'
	changed 'k["tokenizer.ggml.add_bos_token"] = (U32, 1)'
	refused 3 'key tokenizer.ggml.add_bos_token is u32, not a bool'
	changed 'k["llama.vocab_size"] = (U32, 1535)'
	refused 3 'model.embed_tokens.weight: want [1535][128], file has [1536][128]'
}

@test "tensors that are missing, of another shape, of another type, or not the model's are refused by name" {
	changed 't = [x for x in t if x[0] != "blk.1.attn_q.weight"]'
	refused 3 'no tensor model.layers.1.self_attn.q_proj.weight'
	changed 't = [(n, s[::-1] if n == "blk.1.ffn_up.weight" else s, y, b) for n, s, y, b in t]'
	refused 3 'model.layers.1.mlp.up_proj.weight: want [384][128], file has [128][384]'
	changed 't = [(n, s, 25 if n == "blk.1.ffn_up.weight" else y, b) for n, s, y, b in t]'
	refused 5 'model.layers.1.mlp.up_proj.weight: dtype I16 is not supported: want BF16, F16 or F32'
	changed 't.append(vector("blk.0.attn_sinks.weight", [1.0]))'
	refused 5 'blk.0.attn_sinks.weight: not a tensor of this architecture'
	run -0 kv-prefill -q -m x.gguf --allow-tensor blk.0.attn_sinks.weight -o x.kv text
	rm x.kv
	changed 't.append(vector("blk.0.attn_q_norm.weight", [1.0] * 32))'
	refused 5 'model.layers.0.self_attn.q_norm.weight: not a tensor of this architecture (a norm of queries)'
	head -c 100000 demo.gguf >x.gguf
	refused 3 'truncated, or not a whole download'
	head -c 100 demo.gguf >x.gguf
	refused 3 'have no room in a file of 100 bytes'
}

# vocabulary FIXTURE [PYTHON]: v.gguf <- a tokenizer of tests/fixtures without a model
vocabulary() {
	"$PYTHON" - "$ROOT/tests/bin" "$ROOT/tests/fixtures/tokenizers/$1" "${2:-}" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		from mkgguf import *
		folder = pathlib.Path(sys.argv[2])
		t = json.loads((folder / "tokenizer.json").read_text())
		ids = [*t["model"]["vocab"].values(), *(a["id"] for a in t["added_tokens"])]
		k = {"general.architecture": (STRING, "llama")}
		k.update(tokenizer(folder, {"vocab_size": max(ids) + 3}, None))
		exec(sys.argv[3])
		write("v.gguf", k, [])
	END
}

# golden FIXTURE: with v.gguf, texts have the ids that Hugging Face's tokenizers has recorded
golden() {
	"$PYTHON" - "$ROOT/tests/fixtures/tokenizers/$1/golden.json" <<-'END'
		import json, subprocess, sys
		cases = [c for c in json.load(open(sys.argv[1]))["cases"] if c["ids"] and "\0" not in c["text"]]
		assert len(cases) > 50, len(cases)
		for case in cases[::4]:
		    got = subprocess.run(["kv-tokenize", "-q", "--no-template", "-m", "v.gguf", "-"], check=True,
		                         input=case["text"].encode(), stdout=subprocess.PIPE).stdout.split()
		    assert [int(n) for n in got] == case["ids"], (case["text"], case["ids"], got)
	END
}

@test "vocabularies of bytes have the ids that Hugging Face has recorded for their tokenizer.json" {
	vocabulary llama3
	golden llama3
	vocabulary smollm
	golden smollm
	vocabulary gpt2 'k["tokenizer.ggml.merges"] = (STRING, t["model"]["merges"])'
	kv-tokenize -m v.gguf text >ids
	kv-tokenize -m "$ROOT/tests/fixtures/tokenizers/gpt2" text | cmp - ids
}

@test "how a text is split is known by name, and another name is refused" {
	local pre
	for pre in llama-bpe qwen2 qwen35 smollm gpt-2 tekken gpt-4o dbrx glm4 stablelm2 seed-coder command-r exaone4 deepseek-llm deepseek-coder default; do
		vocabulary smollm "k['tokenizer.ggml.pre'] = (STRING, '$pre'); k['tokenizer.ggml.add_bos_token'] = (BOOL, False)"
		run -0 bash -c 'kv-tokenize -m v.gguf text | kv-tokenize -d -m v.gguf -'
		assert_output "$(cat text)"
	done
	vocabulary smollm 'k["tokenizer.ggml.pre"] = (STRING, "gpt")'
	run -5 --separate-stderr kv-tokenize -m v.gguf text
	assert_regex "$stderr" 'v.gguf: tokenizer.ggml.pre "gpt" is not supported'
	vocabulary smollm 'k["tokenizer.ggml.model"] = (STRING, "bert")'
	run -5 --separate-stderr kv-tokenize -m v.gguf text
	assert_regex "$stderr" 'tokenizer.ggml.model "bert" is not supported: want "gpt2" or "llama"'
	vocabulary smollm 'k["tokenizer.ggml.tokens"][1][300] = k["tokenizer.ggml.tokens"][1][301]'
	run -3 --separate-stderr kv-tokenize -m v.gguf text
	assert_regex "$stderr" 'tokens 300 and 301 are the same text'
	vocabulary smollm 'k["tokenizer.ggml.token_type"][1].pop()'
	run -3 --separate-stderr kv-tokenize -m v.gguf text
	assert_regex "$stderr" '[0-9]+ tokens, but [0-9]+ types'
}

# What SentencePiece does with scores: joins the two neighbours that give the best token, until none do.
@test "a SentencePiece vocabulary with scores has the ids of joining the best neighbours first" {
	"$PYTHON" - "$ROOT/tests/bin" >texts <<-'END'
		import random, sys
		sys.path.insert(0, sys.argv[1])
		from mkgguf import *
		r = random.Random(5)
		pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
		types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
		letters = [*"\u2581abcde\u00e9"]
		words = sorted({"".join(r.choice(letters) for _ in range(r.randrange(2, 6))) for _ in range(300)})
		pieces += letters + words
		types += [NORMAL] * (len(letters) + len(words))
		order = r.sample(range(len(words)), len(words))
		scores = [0.0] * 259 + [-1e4] * len(letters) + [-float(n) for n in order]
		k = {"general.architecture": (STRING, "llama"), "tokenizer.ggml.model": (STRING, "llama"),
		     "tokenizer.ggml.tokens": (STRING, pieces), "tokenizer.ggml.token_type": (I32, types),
		     "tokenizer.ggml.scores": (F32, scores)}
		write("prefix.gguf", k, [])
		k["tokenizer.ggml.add_space_prefix"] = (BOOL, False)
		write("plain.gguf", k, [])
		ids = {p: i for i, p in enumerate(pieces)}

		def encode(text, prefix):
		    s = [*((" " if prefix else "") + text).replace(" ", "\u2581")]
		    while True:
		        found = [(scores[ids[a + b]], -i) for i, (a, b) in enumerate(zip(s, s[1:])) if a + b in ids]
		        if not found:
		            break
		        i = -max(found)[1]
		        s[i:i + 2] = [s[i] + s[i + 1]]
		    return [n for p in s for n in ([ids[p]] if p in ids else [3 + b for b in p.encode()])]

		for _ in range(40):
		    text = "".join(r.choice("abcde \u00e9x\u4e16") for _ in range(r.randrange(1, 30))).strip() or "a"
		    print(text, *encode(text, True), "|", *encode(text, False), sep="\t")
	END
	local line text prefixed plain
	while IFS= read -r line; do
		text=${line%%$'\t'*} prefixed=${line#*$'\t'} plain=${line##*$'\t|\t'}
		prefixed=${prefixed%%$'\t|'*}
		run -0 --separate-stderr kv-tokenize --no-template -m prefix.gguf -p "$text"
		assert_equal "$(tr '\n' '\t' <<<"$output" | sed 's/\t$//')" "$prefixed"
		run -0 --separate-stderr kv-tokenize -m plain.gguf -p "$text"
		assert_equal "$(tr '\n' '\t' <<<"$output" | sed 's/\t$//')" "1"$'\t'"$plain"
		run -0 bash -c 'kv-tokenize -m prefix.gguf -p "$1" | kv-tokenize -d --plain -m prefix.gguf -' - "$text"
		assert_output "$text"
	done <texts
}

@test "templates of a conversation and the tokens that end a text are the file's" {
	changed 'k["tokenizer.chat_template"] = (STRING, "{{ bos_token }}{{ messages[0].content }}")
k["tokenizer.chat_template.tool"] = (STRING, "tool: {{ messages[0].content }}")
k["tokenizer.ggml.bos_token_id"] = (U32, 1533)'
	echo '[{"role": "user", "content": "Hello"}]' >c
	run -0 kv-chat -m x.gguf --text c
	assert_output "$("$PYTHON" -c 'import json, sys
print([a["content"] for a in json.load(open(sys.argv[1]))["added_tokens"] if a["id"] == 1533][0])' "$DEMO/tokenizer.json")Hello"
	run -0 kv-chat -m x.gguf --text --template tool c
	assert_output 'tool: Hello'
	run -2 --separate-stderr kv-chat -m x.gguf --template tools c
	assert_regex "$stderr" 'did you mean tool'
	changed 'k.pop("tokenizer.chat_template", None)'
	run -5 --separate-stderr kv-chat -m x.gguf c
	assert_regex "$stderr" 'x.gguf has no chat_template: --template NAME chooses one of'
	# a token that ends a turn ends a text, too
	changed 'k["tokenizer.ggml.eos_token_id"] = (U32, 5); k["tokenizer.ggml.eot_token_id"] = (U32, int(np.load("logits")[-1].argmax()))'
	kv-prefill -m x.gguf -o e.kv text
	run -0 kv-decode -m x.gguf --ids -n 5 e.kv
	assert_output ''
	kv-prefill -m demo.gguf -o e.kv text
	run -0 kv-decode -m demo.gguf --ids -n 5 e.kv
	assert_equal "$(wc -w <<<"$output")" 5
}

@test "a file without a vocabulary works with ids, and says so where text is needed" {
	gguf "$DEMO" bare.gguf --no-tokenizer
	kv-tokenize -m "$DEMO" text >ids
	kv-prefill -m bare.gguf --ids --logits l ids >x.kv
	cmp l logits
	run -1 --separate-stderr kv-prefill -m bare.gguf -o y.kv text
	assert_regex "$stderr" 'bare.gguf: no tokenizer in this file'
}

@test "a folder with a GGUF file says to name it, and another file is told from a model" {
	mkdir g
	cp demo.gguf g/model.gguf
	run -1 --separate-stderr kv-prefill -m g -o x.kv text
	assert_regex "$stderr" 'g: no config.json, but model.gguf, a model of llama.cpp: name that file'
	run -1 --separate-stderr kv-prefill -m "$DEMO/model.safetensors" -o x.kv text
	assert_regex "$stderr" 'a file: want a folder with config.json, tokenizer.json and model.safetensors, or a GGUF file'
}

@test "the scripts of methods take a GGUF file, and derive from it what they derive from config.json" {
	local method
	for method in fastkv gemfilter shadowkv; do
		for m in "$DEMO" demo.gguf; do
			run -0 sh "$ROOT/examples/methods/$method.sh" -m "$m" -C "$DEMO/kvpipe-methods.conf" "$ROOT/examples/prompts/harbour.txt"
			echo "$output" >"$(basename "$m").$method"
		done
		cmp "demo-model.$method" "demo.gguf.$method"
	done
	run -2 --separate-stderr sh "$ROOT/examples/compare.sh" -m absent.gguf
	assert_regex "$stderr" 'absent.gguf: there is no model folder or GGUF file'
}

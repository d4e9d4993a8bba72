#!/usr/bin/env bats
# Files of weights as other tools write them: what changes nothing is a warning, the rest is refused by name

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	printf 'The harbour of Elmford is' >text
	kv-prefill -m "$DEMO" --logits logits -o demo.kv text
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/{text,logits,demo.kv} .
	mkdir m
	cp "$DEMO"/{config.json,tokenizer.json} m
}

# weights PYTHON: writes m anew, from the demo model's tensors, t = {name: (dtype, shape, bytes)}. The code may change t, config and pad, and
# call write(FILE, tensors) for shards and index(MAP); a single file is written where it does not.
weights() {
	"$PYTHON" - "$DEMO" "$1" <<-'END'
		import json, os, struct, sys
		raw = open(sys.argv[1] + "/model.safetensors", "rb").read()
		n = struct.unpack("<Q", raw[:8])[0]
		t = {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
		     for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}
		config, pad, single = json.load(open("m/config.json")), True, "m/model.safetensors"

		def write(name, tensors):
		    global single
		    head, at = {}, 0
		    for k, (d, s, b) in tensors.items():
		        head[k] = {"dtype": d, "shape": s, "data_offsets": [at, at + len(b)]}
		        at += len(b)
		    text = json.dumps(head).encode()
		    text += b" " * (-len(text) % 8 + (0 if pad else 1))
		    with open("m/" + name, "wb") as f:
		        f.write(struct.pack("<Q", len(text)) + text + b"".join(b for _, _, b in tensors.values()))
		    single = None

		def index(where):
		    json.dump({"weight_map": where}, open("m/model.safetensors.index.json", "w"))

		names = list(t)
		a, b = {k: t[k] for k in names[:9]}, {k: t[k] for k in names[9:]}
		where = {**{k: "1.safetensors" for k in a}, **{k: "2.safetensors" for k in b}}
		exec(sys.argv[2])
		if single:
		    write("model.safetensors", t)
		json.dump(config, open("m/config.json", "w"))
	END
}

# the_same WARNING: kv-prefill says this in one line, and computes what it does of the demo model
the_same() {
	run -0 --separate-stderr kv-prefill -m m --logits l -o x.kv text
	# shellcheck disable=SC2154 # bats sets it
	assert_regex "$stderr" "$1"
	# shellcheck disable=SC2154 # bats sets it
	assert_equal "${#stderr_lines[@]}" 1
	cmp l logits
	run -0 --separate-stderr kv-prefill -q -m m --logits l -o x.kv text
	assert_equal "$stderr" ''
}

@test "what the shards hold counts: an index that lags behind them is a warning" {
	weights 'write("1.safetensors", a); write("2.safetensors", b); where.pop("model.norm.weight"); index(where)'
	the_same 'm/model.safetensors.index.json: the index is wrong and the shards are used: 1 tensor \(model.norm.weight\)'
	weights 'write("1.safetensors", a); write("2.safetensors", b); where[names[0]] = "2.safetensors"; where["lm_head.bias"] = "1.safetensors"
index(where)'
	the_same 'the index is wrong and the shards are used: 2 tensors \('
}

@test "a tensor in two shards is taken from one where the bytes are the same, and refused where they are not" {
	weights 'b[names[0]] = a[names[0]]; write("1.safetensors", a); write("2.safetensors", b); index(where)'
	the_same 'm/model.safetensors.index.json: tensors in two shards, of which one is used: 1'
	weights 'd, s, x = a[names[0]]; b[names[0]] = (d, s, x[:-1] + b"\x01"); write("1.safetensors", a); write("2.safetensors", b); index(where)'
	run -3 --separate-stderr kv-prefill -m m -o x.kv text
	assert_regex "$stderr" 'm/2.safetensors has it, too, with other values \(--allow-tensor NAME takes that of the index\)'
	# the index names the first
	kv-prefill -m m --allow-tensor '*' --logits l -o x.kv text
	cmp l logits
}

@test "buffers, counters and heads beside the model's tensors are told in one line" {
	weights 't.update({"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [4], bytes(16)), "v_head.steps": ("I64", [], bytes(8)),
  "model.layers.1.attn.bias": ("BOOL", [1, 1, 4, 4], bytes(16)), "v_head.summary.weight": ("F8_E4M3", [1, 32], bytes(32)),
  "score.x": ("F32", [1, 1, 1, 1, 2], bytes(8)), "spare": ("F32", [0, 3], b""), "model.layers.1.self_attn.masked_bias": ("F16", [], bytes(2))})'
	the_same "m/model.safetensors: ignored tensors that are not the model's: 7 \\("
}

@test "data that is not aligned is copied" {
	weights 'pad = False'
	the_same 'm/model.safetensors: data is not aligned \(.*\): copied [0-9]+ bytes'
}

@test "the one matrix of tied embeddings may have the head's name" {
	weights 'if config["tie_word_embeddings"]: t["lm_head.weight"] = t.pop("model.embed_tokens.weight")
else: t["lm_head.weight"] = t["model.embed_tokens.weight"]'
	kv-prefill -m m --logits one text >one.kv
	weights 't["lm_head.weight"] = t["model.embed_tokens.weight"]; config["tie_word_embeddings"] = False'
	kv-prefill -m m --logits two text >two.kv
	cmp one two
}

@test "a tensor that may change the arithmetic is refused by name, and passed over where it is allowed" {
	weights 'for l in range(config["num_hidden_layers"]): t["model.layers.%d.self_attn.k_scale" % l] = ("F32", [1], bytes(4))'
	run -5 --separate-stderr kv-prefill -m m -o x.kv text
	assert_regex "$stderr" "^kv-prefill: m/model.safetensors: model.layers.0.self_attn.k_scale: .*, and 3 more: .*--allow-tensor 'model.layers.\*.self_attn.k_scale'"
	run -5 kv-prefill -m m --allow-tensor model.layers.0.self_attn.k_scale -o x.kv text
	run -0 --separate-stderr kv-prefill -m m --allow-tensor 'model.layers.*.self_attn.k_scale' --allow-tensor none --logits l -o x.kv text
	assert_equal "$stderr" ''
	cmp l logits
	assert_equal "$(see x.kv 's.provenance[-1]["options"]["allow-tensor"]')" 'model.layers.*.self_attn.k_scale'
	run -0 kv-decode -m m --allow-tensor '*.k_scale' -n 2 x.kv
	run -5 kv-decode -m m -n 2 x.kv
}

@test "variables and lines of the model folder's kvpipe-methods.conf pass over keys and tensors in every program" {
	weights 't["spare"] = ("F32", [1], bytes(4)); config["mystery"] = True; config["riddle"] = 7'
	export KV_ALLOW_CONFIG=$'mystery\tnone' KV_ALLOW_TENSOR='sp*'
	run -5 --separate-stderr kv-prefill -m m -o x.kv text
	assert_regex "$stderr" 'unknown key "riddle"'
	run -0 --separate-stderr kv-prefill -m m --allow-config riddle -o x.kv text
	assert_equal "$stderr" ''
	assert_equal "$(see x.kv 's.provenance[-1]["options"]["allow-config"]')" 'mystery riddle'
	assert_equal "$(see x.kv 's.provenance[-1]["options"]["allow-tensor"]')" 'sp*'
	unset KV_ALLOW_CONFIG KV_ALLOW_TENSOR
	printf '# for this model\nanswer=12\nallow-config=mystery\r\nallow-config=riddle\nallow-config=none\nallow-tensor=spare' >m/kvpipe-methods.conf
	run -0 --separate-stderr kv-prefill -m m -o y.kv text
	assert_equal "${#stderr_lines[@]}" 3
	assert_equal "${stderr_lines[0]}" 'kv-prefill: m/kvpipe-methods.conf: allow-config=mystery: ignored, as the folder says'
	assert_equal "${stderr_lines[2]}" 'kv-prefill: m/kvpipe-methods.conf: allow-tensor=spare: ignored, as the folder says'
	assert_equal "$(see y.kv 's.provenance[-1]["options"]["allow-config"]')" 'mystery riddle'
	kv-tokenize -m "$DEMO" text >ids
	run -0 kv-observe -q -m m --ids-from ids -o z.kv y.kv
	run -0 kv-decode -q -m m -n 2 y.kv
}

@test "a line of the model folder is not taken for an adapter, and what is no name or too much is not used" {
	cp "$DEMO/model.safetensors" m
	cp -r "$DEMO/lookahead" adapter
	chmod -R u+w adapter
	"$PYTHON" -c 'import json
c = json.load(open("adapter/adapter_config.json"))
c["mystery"] = 1
json.dump(c, open("adapter/adapter_config.json", "w"))'
	run -5 kv-observe -m m --lookahead adapter -o x.kv demo.kv
	assert_output --partial 'key "mystery" is set: it may change the arithmetic (--allow-config mystery ignores it)'
	echo allow-config=mystery >m/kvpipe-methods.conf
	run -5 kv-observe -m m --lookahead adapter -o x.kv demo.kv
	KV_ALLOW_CONFIG=mystery kv-observe -m m --lookahead adapter -o x.kv demo.kv
	assert_equal "$(see x.kv 's.provenance[-1]["options"]["allow-config"]')" mystery
	{
		printf 'allow-config=\nallow-config=a\033b\nallow-tensor=%0201d\n' 0
		seq -f 'allow-tensor=x%g' 70
	} >m/kvpipe-methods.conf
	run -0 --separate-stderr kv-prefill -m m -o x.kv text
	assert_equal "$(grep -c 'allow-config= is not used: not a name' <<<"$stderr")" 2
	assert_equal "$(grep -c 'allow-tensor= is not used: not a name' <<<"$stderr")" 1
	assert_equal "$(grep -c 'allow-tensor= is not used: too many of them' <<<"$stderr")" 6
	rm m/kvpipe-methods.conf
	mkfifo m/kvpipe-methods.conf
	run -0 --separate-stderr timeout 60 kv-prefill -m m -o x.kv text
	assert_equal "$stderr" ''
}

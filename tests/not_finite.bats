#!/usr/bin/env bats
# Weights that are NaN or infinite, and settings that no model has: refused, and where, before a snapshot is written.
load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	head -c 900 "$ROOT/examples/prompts/harbour.txt" >doc.txt
	kv-prefill -m "$DEMO" --mass --observe 8 -o good.kv doc.txt
	echo 17 18 19 >ids
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/{doc.txt,good.kv,ids} .
}

# damaged FOLDER TENSOR INDEX VALUE: the demo model with one weight changed
damaged() {
	rm -rf "$1"
	cp -r "$DEMO" "$1"
	"$PYTHON" "$ROOT/tests/bin/setweight.py" "$1/model.safetensors" "${@:2}"
}

# refused PATTERN PROGRAM ...: it ends with 1, says this and nothing else, and writes nothing
refused() {
	run -1 --separate-stderr "${@:2}"
	echo "${*:2}: $stderr"
	assert_output ''
	# shellcheck disable=SC2154 # bats sets it
	assert_regex "$stderr" "$1"
	[ -z "$(compgen -G 'out.kv*')" ]
}

@test "a weight that is not finite: kv-prefill names the layer, whatever runs the prompt, and writes no snapshot" {
	for value in nan inf -inf; do
		while IFS='|' read -r tensor layer what; do
			damaged bad "$tensor" 5 $value
			for how in '' '-c 40' "--score knorm --evict rate=0.5" "-c 64 --score knorm --evict rate=0.5" "--select 'tsp layer=2'" "--select 'gemfilter layer=2 budget=100'"; do
				[ "$layer$how" != "2--select 'gemfilter layer=2 budget=100'" ] || continue
				eval "more=($how)"
				# shellcheck disable=SC2154 # eval sets it
				refused "^kv-prefill: layer $layer: $what at position [0-9]+ are not finite \\(NaN or infinite\\)" \
				    kv-prefill -m bad --device cpu "${more[@]}" -o out.kv doc.txt
			done
		done <<-'END'
			model.layers.1.self_attn.k_proj.weight|1|(keys or values|hidden states behind it)
			model.layers.2.mlp.down_proj.weight|[23]|(keys or values|hidden states behind it)
			model.layers.3.self_attn.o_proj.weight|3|hidden states behind it
		END
	done
	damaged bad model.embed_tokens.weight 5 nan
	refused '^kv-prefill: position [0-9]+: the logit of token 0 is not finite \(NaN or infinite\): value 5 of model.embed_tokens.weight is not' \
	    kv-prefill -m bad --device cpu -o out.kv doc.txt
}

@test "what is not finite is told with its cause: the weight, or f16 that ends before a key" {
	damaged bad model.layers.1.mlp.up_proj.weight 7 inf
	refused 'are not finite \(NaN or infinite\): value 7 of model.layers.1.mlp.up_proj.weight is not' kv-prefill -m bad --device cpu -o out.kv doc.txt
	# finite, and so are its products in f32; keys go beyond what f16 holds, whether in the last row or in one before
	damaged bad model.layers.1.self_attn.k_proj.weight 5 1e6
	for type in bf16 f32; do
		run -0 kv-prefill -m bad --device cpu --dtype $type -o fits.kv doc.txt
	done
	for how in '' '-c 16' '--score knorm --evict rate=0.5'; do
		# shellcheck disable=SC2086 # its arguments
		refused '^kv-prefill: layer [1-3]: .* are not finite \(NaN or infinite\): f16 ends at 65504, and they go beyond: make the snapshot with --dtype bf16 or f32$' \
		    kv-prefill -m bad --device cpu --dtype f16 $how -o out.kv doc.txt
	done
	# a tensor that is no part of the model is no cause
	"$PYTHON" - bad/model.safetensors <<-'END'
		import json, struct, sys
		raw = open(sys.argv[1], "rb").read()
		n, = struct.unpack("<Q", raw[:8])
		head = json.loads(raw[8:8 + n])
		end = len(raw) - 8 - n
		head["model.layers.0.self_attn.masked_bias"] = {"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}
		text = json.dumps(head).encode()
		text += b" " * (-len(text) % 8)
		open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + raw[8 + n:] + struct.pack("<f", float("-inf")))
	END
	refused ': f16 ends at 65504' kv-prefill -q -m bad --device cpu --dtype f16 -o out.kv doc.txt
}

@test "a weight that is not finite: it is told after the first chunk, not at the end" {
	damaged bad model.layers.0.self_attn.v_proj.weight 0 nan
	refused 'at position 15 are not finite' kv-prefill -m bad --device cpu -c 16 -o out.kv doc.txt
}

# Such a snapshot is none of this model: it gets its fingerprint here.
@test "a weight that is not finite: kv-observe, kv-decode and kv-prefill --resume say so, too" {
	for value in nan inf; do
		damaged bad model.layers.1.mlp.gate_proj.weight 2500 $value
		rm good.kv
		"$PYTHON" "$ROOT/tests/bin/reweigh.py" bad "$BATS_FILE_TMPDIR/good.kv" good.kv
		refused '^kv-observe: layer [12]: .* not finite' kv-observe -m bad --device cpu --ids-from ids -o out.kv good.kv
		refused '^kv-observe: layer [12]: .* not finite' kv-observe -m bad --device cpu --repeat-context -o out.kv good.kv
		# the first token comes from the logits of the snapshot
		run -1 --separate-stderr kv-decode -m bad --device cpu --ids -n 4 -o out.kv good.kv
		assert_equal "${#lines[@]}" 1
		assert_equal "$stderr" 'kv-decode: position 217: no logit is finite'
		[ ! -e out.kv ]
		refused '^kv-prefill: layer [12]: .* not finite' kv-prefill -m bad --device cpu --resume good.kv --ids -o out.kv ids
	done
}

# Keys and values of offloaded layers are not on the device: the layer that is named is the last one.
@test "a weight that is not finite: kv-decode names it also where layers are offloaded" {
	damaged bad model.layers.1.mlp.gate_proj.weight 2500 nan
	"$PYTHON" "$ROOT/tests/bin/reweigh.py" bad "$BATS_FILE_TMPDIR/good.kv" bad.kv
	kv-quantize1b -o bits.kv bad.kv
	for dense in 0 1 2; do
		run -1 --separate-stderr kv-decode -m bad --device cpu --temperature 1 -n 4 --retrieve "fier budget=32 dense=$dense" --offload bits.kv
		# shellcheck disable=SC2154 # bats sets it
		assert_regex "$stderr" '^kv-decode: layer [23]: .* are not finite \(NaN or infinite\): value 2500 of model.layers.1.mlp.gate_proj.weight is not$'
	done
}

@test "a weight that is not finite, on a GPU (emulated): kv-prefill and kv-observe name the layer" {
	PATH=$O/emulated:$PATH
	damaged bad model.layers.1.mlp.gate_proj.weight 2500 nan
	for how in '' '-c 40' "--score knorm --evict rate=0.5" "-c 64 --score knorm --evict rate=0.5" "--select 'tsp layer=2'"; do
		eval "more=($how)"
		refused '^kv-prefill: layer [12]( head [0-9]+ row [0-9]+)?: .* (not finite|not a number)' \
		    kv-prefill -m bad --device cuda "${more[@]}" -o out.kv doc.txt
	done
	rm good.kv
	"$PYTHON" "$ROOT/tests/bin/reweigh.py" bad "$BATS_FILE_TMPDIR/good.kv" good.kv
	refused '^kv-observe: layer [12]: .* not finite' kv-observe -m bad --device cuda --ids-from ids -o out.kv good.kv
}

@test "settings that no model has are refused with key and value" {
	while IFS='|' read -r key value range; do
		rm -rf odd
		cp -r "$DEMO" odd
		"$PYTHON" -c 'import json, sys
c = json.load(open(sys.argv[1]))
c[sys.argv[2]] = float(sys.argv[3])
json.dump(c, open(sys.argv[1], "w"))' odd/config.json "$key" "$value"
		run -3 kv-prefill -m odd -o out.kv doc.txt
		assert_output "kv-prefill: odd/config.json: \"$key\" is $value, not $range (--allow-config $key ignores it)"
	done <<-'END'
		rope_theta|1e-300|1 to 1e+15
		rope_theta|1e+300|1 to 1e+15
		rms_norm_eps|1e+300|1.17549e-38 to 1
		rms_norm_eps|1e-300|1.17549e-38 to 1
	END
}

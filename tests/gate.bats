#!/usr/bin/env bats
# Gate scores (kv-snapshot(5), gATE): what kv-prefill --gate and kv-decode --gate make, who passes them on, and the methods kvzap and
# fastkvzip

load helper

setup_file() {
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || return
	seq 5 204 >200.ids
	seq 205 244 >40.ids
	cat 200.ids 40.ids >240.ids
	for kind in linear mlp fastkvzip values; do
		"$PYTHON" "$ROOT/tests/bin/mkgate.py" $kind "$DEMO" $kind
		kv-prefill -m "$DEMO" --ids --dtype f32 --gate $kind -o $kind.kv 200.ids
	done
	kv-prefill -m "$DEMO" --ids --dtype f32 -o plain.kv 200.ids
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# gates FILE: the scores of all layers, and positions
gates() {
	see "$1" '[([list(p) for p in l.positions], l.gate_scores.label, [list(x) for x in l.gate_scores.values]) for l in s.layers]' | sha256sum
}

# near A B: their scores differ by rounding only
near() {
	"$PYTHON" - "$FORMAT" "$1" "$2" <<-'END'
		import sys
		import numpy as np
		sys.path.insert(0, sys.argv[1])
		import kvread
		a, b = (kvread.read(open(path, "rb")) for path in sys.argv[2:])
		for x, y in zip(a.layers, b.layers):
		    assert x.gate_scores.label == y.gate_scores.label
		    for p, q, u, v in zip(x.positions, y.positions, x.gate_scores.values, y.gate_scores.values):
		        assert list(p) == list(q)
		        assert np.abs(np.array(u) - np.array(v)).max() <= 2e-6 * np.abs(u).max()
	END
}

@test "the scores are those of the hidden states in front of attention: KVzap's two gates and Fast KVzip's" {
	for kind in linear mlp fastkvzip; do
		"$PYTHON" "$ORACLE/gate_scores.py" 2e-5 "$DEMO" $kind $kind.kv
	done
	"$PYTHON" "$ROOT/tests/bin/mkgate.py" mlp "$DEMO" wide 500
	"$PYTHON" "$ROOT/tests/bin/mkgate.py" fastkvzip "$DEMO" narrow 5
	for kind in wide narrow; do
		kv-prefill -m "$DEMO" --ids --dtype f32 --gate $kind -o x.kv 200.ids
		"$PYTHON" "$ORACLE/gate_scores.py" 2e-5 "$DEMO" $kind x.kv
	done
}

@test "the hidden state is what the projections of attention read, in every family" {
	local name
	"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values values.kv
	for name in qwen2 qwen3 granite phi3-partial smollm3 olmo2 gemma2 gemma3 mistral-window; do
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name $name "$DEMO/tokenizer.json"
		"$PYTHON" "$ROOT/tests/bin/mkgate.py" values $name of-$name
		kv-prefill -m $name --ids --dtype f32 --gate of-$name -o x.kv <(seq 5 60)
		"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values x.kv
	done
}

@test "threads change no bit of the scores; chunks, and tokens that continue a text or reuse its rows, only their rounding" {
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp -j 1 -o one.kv 200.ids
	cmp one.kv mlp.kv
	for chunk in 1 3 199; do
		kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp -c $chunk -o $chunk.kv <(head -n 20 200.ids)
	done
	near 1.kv 3.kv
	near 3.kv 199.kv
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp -o whole.kv 240.ids
	kv-prefill -m "$DEMO" --ids --gate mlp -r mlp.kv -o later.kv 40.ids
	near whole.kv later.kv
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp --reuse mlp.kv -o reused.kv 240.ids
	near whole.kv reused.kv
	# a part of the rows of the snapshot
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp -o part.kv <(head -n 100 200.ids; seq 300 319)
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp --reuse mlp.kv -o reused.kv <(head -n 100 200.ids; seq 300 319)
	near part.kv reused.kv
}

@test "more rows at once than a gate takes have their scores" {
	seq 5 1400 >1396.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate values -c 1396 -o x.kv 1396.ids
	"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values x.kv
}

@test "generated tokens have scores, in a batch those of their own text; after a stop text that was run in vain none is left" {
	kv-decode -m "$DEMO" -n 6 --gate values -o a.kv values.kv
	"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values a.kv
	mkdir out
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate values -o other.kv 40.ids
	kv-decode -m "$DEMO" -n 6 --gate values --batch 2 -o out values.kv other.kv
	near out/values.kv a.kv
	"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values out/other.kv
	kv-decode -m "$DEMO" -n 6 --stop ill --gate values -o stopped.kv values.kv
	"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values stopped.kv
	assert_equal "$(see stopped.kv '[len(v) for v in s.layers[3].gate_scores.values]')" \
		"$(see stopped.kv '[len(p) for p in s.layers[3].positions]')"
}

@test "tokens that are run and not stored leave no score: a patch, learned tokens, the first run of gemfilter; tokens that are not selected have none" {
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate values -c 50 --patch 8 --score "snapkv window=8" --evict budget=70 -o x.kv 200.ids
	"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values x.kv
	for how in '' '-c 64'; do
		kv-prefill -m "$DEMO" --ids --dtype f32 --gate values $how --score "lookahead='$DEMO/lookahead'" --evict budget=70 -o x.kv 200.ids
		"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values x.kv
	done
	for how in 'gemfilter layer=1 rate=0.5' 'tsp layer=1 rate=0.5' pyramidinfer; do
		kv-prefill -m "$DEMO" --ids --dtype f32 --gate values --select "$how" -o x.kv 200.ids
		"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values x.kv
	done
}

@test "programs that drop, move, quantise, index, observe or score rows pass the scores on" {
	kv-score --method random values.kv | kv-evict --budget 50 --policy ada -o small.kv
	"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values small.kv
	kv-score --method recent small.kv | kv-evict --positions compact --budget 40 -o moved.kv
	"$PYTHON" "$ORACLE/gate_scores.py" 3e-6 values moved.kv
	passed_on gates moved.kv
	kv-observe -m "$DEMO" --repeat-context -o observed.kv values.kv
	assert_equal "$(gates observed.kv)" "$(gates values.kv)"
	kv-check -q observed.kv
	# quantised rows grow with scores
	kv-prefill -m "$DEMO" --ids --dtype f32 --keys q8_0 --values q4_0 --gate mlp -o x.kv 200.ids
	kv-decode -m "$DEMO" -n 3 --gate mlp -o y.kv x.kv
	kv-score --method kvzap y.kv | kv-check -q
	# and with full rows behind them
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate values -o x.kv 200.ids
	kv-quantize --keys kivi4 --values kivi4 -o y.kv x.kv
	assert_equal "$(gates y.kv)" "$(gates x.kv)"
	kv-prefill -m "$DEMO" --ids --gate values -r y.kv -o z.kv 40.ids
	kv-decode -m "$DEMO" -n 3 --gate values -o a.kv z.kv
	assert_equal "$(see a.kv '[len(v) for l in s.layers for v in l.gate_scores.values]')" '243 243 243 243 243 243 243 243'
	see a.kv '[list(v)[:200] for v in s.layers[2].gate_scores.values]' >first
	see x.kv '[list(v) for v in s.layers[2].gate_scores.values]' >want
	cmp first want
}

@test "kvzap scores a row as the gate did, fastkvzip, too, and both ends first" {
	kv-score --method kvzap -o x.kv mlp.kv
	assert_equal "$(see x.kv '[l.scores.values == l.gate_scores.values for l in s.layers]')" 'True True True True'
	assert_equal "$(see x.kv '[l.scores.label for l in s.layers]')" 'kvzap kvzap kvzap kvzap'
	kv-score --method Fast-KVzip -o x.kv fastkvzip.kv
	inf() { see "$1" '[i for i, v in enumerate(s.layers[2].scores.values[1]) if v == float("inf")]'; }
	assert_equal "$(inf x.kv)" '0 1 2 3 196 197 198 199'
	assert_equal "$(see x.kv '[list(l.scores.values[0])[4:196] == list(l.gate_scores.values[0])[4:196] for l in s.layers]')" 'True True True True'
	kv-score --method fastkvzip --sink 0 --recent 2 -o x.kv fastkvzip.kv
	assert_equal "$(inf x.kv)" '198 199'
	assert_equal "$(see x.kv s.layers[0].scores.label)" 'fastkvzip sink=0 recent=2'
	kv-score --method kvzap --since 150 -o x.kv mlp.kv
	assert_equal "$(see x.kv '[list(l.scores.values[1])[150:] == list(l.gate_scores.values[1])[150:] for l in s.layers]')" 'True True True True'
	assert_equal "$(inf x.kv | wc -w)" 150
}

@test "what kv-evict decides by a gate is what one process decides, on the prompt, in chunks and while decoding" {
	local kind method
	for kind in mlp fastkvzip; do
		method=kvzap
		[ $kind = mlp ] || method=fastkvzip
		for policy in uniform ada; do
			kv-score --method $method $kind.kv | kv-evict --policy $policy --budget 50 -o pipe.kv
			kv-prefill -m "$DEMO" --ids --dtype f32 --gate $kind --score $method --evict "budget=50 policy=$policy" -o fused.kv 200.ids
			same_values fused.kv pipe.kv s.logical_digest
			assert_equal "$(gates fused.kv)" "$(gates pipe.kv)"
		done
	done
	# a chunk at a time
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp -c 100 -o 1.kv <(head -n 100 200.ids)
	kv-score --method kvzap 1.kv | kv-evict --budget 50 -o 2.kv
	kv-prefill -m "$DEMO" --ids --gate mlp -c 100 -r 2.kv -o 3.kv <(tail -n 100 200.ids)
	kv-score --method kvzap 3.kv | kv-evict --budget 50 -o pipe.kv
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp -c 100 --score kvzap --evict budget=50 -o fused.kv 200.ids
	same_values fused.kv pipe.kv s.logical_digest
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp -c 100 --once --score kvzap --evict budget=20 -o fused.kv 200.ids
	kv-check -q fused.kv
	# a token at a time, by a threshold behind the last 20 rows (DMS)
	kv-decode -m "$DEMO" -n 3 --ids --gate mlp --score kvzap --evict "threshold=0.1 recent=20" -o fused.kv mlp.kv >ids
	kv-score --method kvzap mlp.kv | kv-evict --threshold 0.1 --recent 20 -o now.kv
	for i in 1 2 3; do
		kv-prefill -m "$DEMO" --ids --gate mlp -c 1 -r now.kv -o next.kv <(sed -n ${i}p ids)
		kv-score --method kvzap next.kv | kv-evict --threshold 0.1 --recent 20 -o now.kv
	done
	same_values fused.kv now.kv '[[list(p) for p in l.positions] for l in s.layers]'
	assert_equal "$(gates fused.kv)" "$(gates now.kv)"
	[ "$(see fused.kv '[min(len(p) for p in s.layers[0].positions) < 150]')" = True ]
}

@test "a text without the scores of this gate is refused, with the way on" {
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --gate mlp -r plain.kv -o no.kv 40.ids
	assert_regex "$stderr" "^kv-prefill: plain.kv: layer 0 has no scores of this gate, kvzap mlp [0-9a-f]{32}: make the snapshot with kv-prefill --gate from its first token$"
	run -1 --separate-stderr kv-decode -m "$DEMO" -n 1 --gate mlp --score kvzap --evict budget=40 linear.kv
	assert_regex "$stderr" "^kv-decode: linear.kv: layer 0 has no scores of this gate, kvzap mlp "
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --dtype f32 --gate mlp --reuse plain.kv -o no.kv 240.ids
	assert_equal "$stderr" "kv-prefill: plain.kv: layer 0 has no scores of this gate, and --gate cannot add them later"
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --gate mlp --store . -o no.kv 200.ids
	assert_equal "$stderr" "kv-prefill: --gate does not go with --store: it keeps no gate scores; use --reuse, or run the whole prompt"
	run -2 --separate-stderr kv-decode -m "$DEMO" --gate mlp mlp.kv
	assert_equal "$stderr" "kv-decode: --gate: no snapshot is kept without -o FILE"
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --score kvzap --evict budget=40 -o no.kv 200.ids
	assert_equal "$stderr" "kv-prefill: --score kvzap: by which gate? Give its folder, --gate DIR"
	run -2 --separate-stderr kv-decode -m "$DEMO" --score fastkvzip --evict budget=40 fastkvzip.kv
	assert_equal "$stderr" "kv-decode: --score fastkvzip: by which gate? Give its folder, --gate DIR"
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --gate mlp --score fastkvzip --evict budget=40 -o no.kv 200.ids
	assert_equal "$stderr" "kv-prefill: --score fastkvzip: mlp is a gate of kvzap"
	run -1 --separate-stderr kv-score --method kvzap plain.kv
	assert_equal "$stderr" "kv-score: plain.kv: layer 0 has no gate scores, which method kvzap needs: make the snapshot with kv-prefill --gate"
	run -1 --separate-stderr kv-score --method kvzap fastkvzip.kv
	assert_equal "$stderr" "kv-score: fastkvzip.kv: layer 0 has scores of a gate of fastkvzip, and method kvzap needs one of its own"
	[ ! -e no.kv ]
}

# changed KIND PYTHON: a gate whose tensors t (a dict of name -> array) were changed, in the folder changed
changed() {
	rm -rf changed
	mkdir changed
	"$PYTHON" - "$ROOT" "$1" "$2" <<-'END'
		import json, sys
		import numpy as np
		sys.path[:0] = [sys.argv[1] + "/tests/oracle"]
		import llama, sine_filters
		t = {name: x.astype("f4") for name, x in llama.load_tensors(sys.argv[2]).items()}
		exec(sys.argv[3])
		sine_filters.write("changed/model.safetensors", [(n, list(x.shape), x.ravel()) for n, x in t.items()])
	END
}

@test "a folder that is no gate of the model is refused, by tensor" {
	refused() {
		run "-${2:-3}" --separate-stderr kv-prefill -m "$DEMO" --ids --gate changed -o no.kv 200.ids
		assert_regex "$stderr" "^kv-prefill: changed.*$1"
		[ ! -e no.kv ]
	}
	changed linear 't["layers.1.weight"] = t["layers.1.weight"][:, :100]'
	refused 'layers.1.weight: want \[2\]\[128\], file has \[2\]\[100\]$'
	changed linear 't["layers.3.weight"] = t["layers.3.weight"][:1]'
	refused 'layers.3.weight: want \[2\]\[128\], file has \[1\]\[128\]$'
	changed linear 'del t["layers.2.bias"]'
	refused 'no tensor layers.2.bias$'
	changed linear 't["layers.2.weight"][1, 7] = np.nan'
	refused 'layers.2.weight: element 135 is not finite$'
	changed linear 't["layers.4.weight"] = t["layers.3.weight"]; t["layers.4.bias"] = t["layers.3.bias"]'
	refused '10 tensors: a gate of this kind for the 4 layers of .* has 8$'
	changed mlp 't["layers.1.0.weight"] = t["layers.1.0.weight"][:20]'
	refused 'layers.1.0.weight: want \[24\]\[128\], file has \[20\]\[128\]$'
	changed mlp 't["layers.0.4.weight"] = t["layers.0.2.weight"]'
	refused '17 tensors: a gate of this kind for the 4 layers of .* has 16$'
	changed mlp 't = {n.replace("layers", "gates"): x for n, x in t.items()}'
	refused 'no tensor layers.0.weight, layers.0.0.weight or layers.0.q_norm.weight: it is no gate of KVzap or Fast KVzip$'
	changed fastkvzip 't["layers.0.k_base"] = t["layers.0.k_base"][:31]'
	refused 'layers.0.k_base: want \[30\]\[16\], file has \[31\]\[16\]$'
	changed fastkvzip 't["layers.2.k_base"] = t["layers.2.k_base"][:, :8]'
	refused 'layers.2.k_base: want \[32\]\[16\], file has \[32\]\[8\]$'
	changed fastkvzip 'del t["layers.0.k_base"]'
	refused 'no tensor layers.0.k_base$'
	rm changed/model.safetensors
	refused 'model.safetensors' 1
	cp linear/model.safetensors changed
	echo '{"kvpipe_gate": {"target_weights": "00112233445566778899aabbccddeeff"}}' >changed/config.json
	refused 'trained for weights 00112233445566778899aabbccddeeff, but ' 4
	echo '{"input_dim": 128, "hidden_dim": null}' >changed/config.json
	kv-prefill -m "$DEMO" --ids --gate changed -o x.kv 200.ids
	head -c 100 linear/model.safetensors >changed/model.safetensors
	refused 'model.safetensors'
}

#!/usr/bin/env bats
# bats file_tags=slow
# Quantised rows in every other program: what is computed of them is what is computed of their numbers in f32, rows that stay keep their bytes, and what
# does not go with them is refused. The table in kv-quantize(1), WITH OTHER PROGRAMS, says the same.

load helper

# q.kv has keys in q8_0 and values in q4_0, t.kv transformed ones; the same numbers in f32 are in q.f32.kv, t.f32.kv
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	random_model m --heads 8 --kv-heads 2 --head-dim 32 --hidden 96 --seed 5 --layers 4 --dtype f32 --std 0.2
	random_model m80 --heads 4 --kv-heads 2 --head-dim 20 --hidden 96 --seed 6 --layers 3 --dtype f32 --std 0.2
	window_model slid 40 fsfs --heads 4 --kv-heads 2 --head-dim 32 --hidden 48 --seed 5 --layers 4 --dtype f32 --std 0.2
	seq 3 2 480 >text.ids
	seq 700 3 900 >next.ids
	kv-prefill -m m --ids -w 12 --mass -o full.kv text.ids
	kv-quantize --keys q8_0 --values q4_0 -o q.kv full.kv
	kv-quantize --keys q4_0 --values q8_0 --rotate --skip-layers 1 -o t.kv full.kv
	for f in q t; do
		kv-quantize --keys f32 --values f32 -o $f.f32.kv $f.kv
	done
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# types FILE: of keys and of values, layer by layer
types() {
	kv-info --json "$1" | json - '" ".join(o["key_types"] + o["value_types"])'
}

# close LIMIT A.npy B.npy: logits, relative to the greatest
close() {
	"$PYTHON" -c '
import sys
import numpy as np
a, b = (np.load(f) for f in sys.argv[2:])
error = np.abs(a - b).max() / np.abs(b).max()
assert a.shape == b.shape and error < float(sys.argv[1]), error' "$@"
}

# forced FILE OUT [IDS]: the logits that predict given tokens behind a snapshot
forced() {
	kv-decode -m "${MODEL:-m}" --ids --force "${3:-next.ids}" --logits "$2.npy" "$1" >"$2.nll"
}

# one_more SMALL BACK FULL: the logits after one token behind SMALL, whose rows are quantised, are those behind BACK, which has the same
# numbers in f32: they differ 20 times less than those behind FULL. (The token's own row is quantised in SMALL only.) The first of
# two forced tokens is predicted by the logits in the snapshot.
one_more() {
	local f
	head -n 2 next.ids >two.ids
	for f; do
		forced "$f.kv" "$f" two.ids
	done
	"$PYTHON" -c '
import sys
import numpy as np
small, back, full = (np.load(f + ".npy")[1] for f in sys.argv[1:])
near, far = np.abs(small - back).max(), np.abs(back - full).max()
assert 0 < near < far / 20, (near, far)' "$@"
}

@test "attention: one token after a snapshot has the logits of the numbers in f32, for every type" {
	local type
	for type in q8_0 q4_0 q4_1 q5_0 int8 fp8; do
		for rotate in "" --rotate; do
			in_sample 2 || continue
			kv-quantize --keys $type --values $type $rotate -o small.kv full.kv
			kv-quantize --keys f32 --values f32 -o back.kv small.kv
			one_more small back full
		done
	done
}

@test "decoding appends rows in the types of the snapshot, and they are those that a prefill appends one by one" {
	kv-decode -m m --ids --ignore-eos -n 9 -o out.kv q.kv >out.ids
	assert_equal "$(types out.kv)" "$(types q.kv)"
	kv-check -q out.kv
	kv-prefill -m m --ids -c 1 -r q.kv -o one.kv out.ids
	same_values out.kv one.kv '[l.positions for l in s.layers]' '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
}

@test "resume: parts of a prompt that end where chunks end are the prompt in one piece" {
	kv-prefill -m m --ids -c 64 --keys q8_0 --values q4_0 -o whole.kv text.ids
	head -n 128 text.ids >a.ids
	tail -n +129 text.ids >b.ids
	kv-prefill -m m --ids -c 64 --keys q8_0 --values q4_0 a.ids | kv-prefill -m m --ids -c 64 -r - -o parts.kv b.ids
	same_values parts.kv whole.kv s.logical_digest
	# without options, or with those of the snapshot
	kv-prefill -m m --ids --keys q8_0 -r q.kv -o r.kv next.ids
	assert_equal "$(types r.kv)" "$(types q.kv)"
	run -2 --separate-stderr kv-prefill -m m --ids --keys q4_0 -r q.kv -o x.kv next.ids
	assert_equal "$stderr" "kv-prefill: --keys, --values: q.kv holds q8_0 keys and q4_0 values: kv-quantize changes their types"
}

@test "a prompt of one token is the same from kv-prefill and from kv-quantize" {
	head -n 1 text.ids >one.ids
	kv-prefill -m m --ids -o plain.kv one.ids
	kv-quantize --keys q5_0-hadamard --values int8 -o later.kv plain.kv
	kv-prefill -m m --ids --keys q5_0-hadamard --values int8 -o now.kv one.ids
	same_values now.kv later.kv 's.layers[0].keys' 's.layers[0].values'
}

@test "reuse and store: rows of the same types only, and the prompt is the one that runs whole" {
	seq 3 2 1202 >long.ids
	head -n 512 long.ids >begin.ids
	kv-prefill -m m --ids --keys q8_0 --values q4_0 -o cold.kv long.ids
	kv-prefill -m m --ids --keys q8_0 --values q4_0 -o begin.kv begin.ids
	kv-prefill -m m --ids --keys q8_0 --values q4_0 --reuse begin.kv -o warm.kv long.ids
	same_values warm.kv cold.kv '[l.keys for l in s.layers]' '[l.values for l in s.layers]' s.logits
	run -2 --separate-stderr kv-prefill -m m --ids --reuse begin.kv -o x.kv long.ids
	assert_equal "$stderr" "kv-prefill: --reuse: begin.kv holds q8_0 keys and q4_0 values, and this prompt would be stored as f32: see --keys and --values"
	stored() {
		kv-prefill -m m --ids --store S "${@:2}" -o "$1" long.ids
		kv-info --json "$1" | json - 'o["provenance"][-1]["options"].get("reused", 0)'
	}
	assert_equal "$(stored a.kv --keys q8_0 --values q4_0)" 0
	assert_equal "$(stored b.kv --keys q8_0 --values q4_0)" 512
	assert_equal "$(stored c.kv)" 0
	assert_equal "$(stored d.kv --keys q8_0)" 0
	same_values b.kv cold.kv '[l.keys for l in s.layers]' '[l.values for l in s.layers]' s.logits
	kv-check -q S/*.kv
}

@test "every scorer chooses the rows that it chooses of the numbers in f32" {
	local method f
	for method in snapkv tova h2o meanmass knorm keydiff recent random; do
		for f in q t; do
			in_sample 2 || continue
			kv-score --method $method $f.kv | kv-evict --budget 40 -o small.kv
			kv-score --method $method $f.f32.kv | kv-evict --budget 40 -o want.kv
			same_numbers small.kv want.kv
			assert_equal "$(types small.kv)" "$(types $f.kv)"
		done
	done
}

@test "kvzip and lookahead: probe tokens see quantised rows" {
	local f
	for f in q q.f32; do
		kv-observe -m m --repeat-context --accumulate max $f.kv | kv-score --method kvzip | kv-evict --rate 0.5 -o small.$f.kv
		head -n 9 next.ids | kv-observe -m m --ids-from - $f.kv | kv-score --method lookahead | kv-evict --rate 0.3 -o ahead.$f.kv
	done
	assert_equal "$(types small.q.kv)" "$(types q.kv)"
	kv-check -q small.q.kv ahead.q.kv
}

@test "ragged KV heads, chosen rows and several evictions keep the bytes of their rows" {
	kv-score --method keydiff q.kv | kv-evict --policy ada --alpha 0 --rate 0.3 -o ragged.kv
	assert_not_equal "$(see ragged.kv 's.layers[1].rows[0]')" "$(see ragged.kv 's.layers[1].rows[1]')"
	kv-score --method keydiff q.f32.kv | kv-evict --policy ada --alpha 0 --rate 0.3 -o want.kv
	same_numbers ragged.kv want.kv
	forced ragged.kv a
	kv-score --method knorm ragged.kv | kv-evict --budget 20 | kv-check -q -
}

@test "compact positions: keys are rotated and quantised again, within the error of a rounding" {
	kv-score --method knorm q.kv | kv-evict --rate 0.5 --positions compact -o small.kv
	kv-score --method knorm q.f32.kv | kv-evict --rate 0.5 --positions compact -o want.kv
	assert_equal "$(types small.kv)" "$(types q.kv)"
	same_values small.kv want.kv '[l.positions for l in s.layers]'
	errors_below 0.02 "$PYTHON" "$ORACLE/same.py" small.kv want.kv
}

@test "fused and chunked eviction: the snapshot is that of a pipe; types stay" {
	kv-prefill -m m --ids -w 8 --keys q8_0 --values q4_0 text.ids | kv-score --method snapkv --window 8 | kv-evict --rate 0.2 -o pipe.kv
	kv-prefill -m m --ids --keys q8_0 --values q4_0 --score 'snapkv window=8' --evict rate=0.2 -o fused.kv text.ids
	same_values fused.kv pipe.kv '[l.positions for l in s.layers]' '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
	kv-prefill -m m --ids --keys q4_0 --values q4_0 -c 50 --score keydiff --evict budget=60 -o chunked.kv text.ids
	kv-check -q chunked.kv
	assert_equal "$(types chunked.kv)" "q4_0 q4_0 q4_0 q4_0 q4_0 q4_0 q4_0 q4_0"
	kv-prefill -m m --ids --keys q8_0 --values q8_0 --select 'tsp layer=1 window=8' -o tsp.kv text.ids
	kv-check -q tsp.kv
}

@test "eviction while decoding drops rows of the bytes that they had" {
	kv-decode -m m --ids --ignore-eos -n 30 --score 'snapkv window=8' --evict budget=60 -o out.kv q.kv >ids
	assert_equal "$(types out.kv)" "$(types q.kv)"
	kv-check -q out.kv
	assert_equal "$(see out.kv 'max(len(h) for l in s.layers for h in l.positions) <= 61')" True
}

@test "indexes are made from the numbers in f32, and every retrieval finds the rows that it finds of these" {
	local f way
	for f in q t; do
		for part in $f $f.f32; do
			kv-quantize1b -g 16 $part.kv | kv-index --pages --page 8 | kv-index --clusters --cluster-count 9 --sink-rows 5 -o i.$part.kv
			kv-check -q i.$part.kv
		done
		same_values i.$f.kv i.$f.f32.kv '[[bytes(h) for h in l.bits.heads] for l in s.layers]' '[[bytes(h) for h in l.pages.heads] for l in s.layers]'
		for way in 'fier budget=24' 'quest budget=24' 'quest-eval budget=24' 'clusterkv budget=40'; do
			in_sample 2 || continue
			for part in $f $f.f32; do
				kv-decode -m m --ids --ignore-eos -n 1 --retrieve "$way dense=1" --audit --stats $part.json i.$part.kv >ids.$part
			done
			assert_equal "$(json $f.json '[(l["rows"], round(l["recall"], 6)) for l in o["layers"]]')" \
			    "$(json $f.f32.json '[(l["rows"], round(l["recall"], 6)) for l in o["layers"]]')"
			cmp ids.$f ids.$f.f32
		done
	done
}

@test "offloaded rows give the text of rows in memory, of keys and values of other sizes" {
	kv-quantize1b -g 16 q.kv -o i.kv
	kv-quantize1b -g 16 t.kv -o it.kv
	for f in i it; do
		kv-decode -m m --ids --ignore-eos -n 40 --retrieve 'fier budget=24 dense=1' -o memory.kv $f.kv >memory.ids
		kv-decode -m m --ids --ignore-eos -n 40 --retrieve 'fier budget=24 dense=1' --offload --stats s.json -o file.kv $f.kv | cmp - memory.ids
		same_values file.kv memory.kv s.logical_digest
	done
}

@test "SpeContext's head is beside the rows, whatever their types; its plan of memory counts their bytes" {
	local words="specontext budget=200 head='$DEMO/retrieval-head'" limit
	kv-prefill -m "$DEMO" --retrieval-head "$DEMO/retrieval-head" --keys q8_0 --values q4_0 -o d.kv "$ROOT/examples/prompts/harbour.txt"
	kv-decode -m "$DEMO" --ids -n 12 --retrieve "$words" d.kv >memory.ids
	kv-decode -m "$DEMO" --ids -n 12 --retrieve "$words" --offload d.kv | cmp - memory.ids
	# weights as in the files, 1.3 times, and room for 993 tokens where 3 layers are offloaded; rows in bf16 do not fit with 4
	limit=$((($(stat -c %s "$DEMO/model.safetensors") + $(stat -c %s "$DEMO/retrieval-head/model.safetensors")) * 13 / 10 + 940000))
	kv-quantize --keys bf16 --values bf16 -o wide.kv d.kv
	kv-decode -v -m "$DEMO" --ids -n 12 --retrieve "$words" --offload --device-memory "$limit" d.kv 2>err | cmp - memory.ids
	grep -q 'layers 1 to 3 are in the file' err
	run -1 kv-decode -m "$DEMO" --ids -n 12 --retrieve "$words" --offload --device-memory "$limit" wide.kv
	assert_output --partial 'with 4 of 4 layers offloaded'
}

@test "ShadowKV wants keys that are not quantised; quantised values go with it" {
	run -5 --separate-stderr kv-index --low-rank -o x.kv q.kv
	assert_equal "$stderr" "kv-index: q.kv: layer 0: its keys are q8_0, and ShadowKV keeps keys as factors of keys that are not quantised: quantise values only"
	assert [ ! -e x.kv ]
	kv-index --low-rank --rank 10 --chunk-rows 4 --outliers 3 --local 2 full.kv | kv-quantize --values q8_0 -o v.kv
	kv-decode -m m --ids --ignore-eos -n 20 --retrieve 'shadowkv budget=40 dense=1' v.kv >a.ids
	kv-quantize --values f32 v.kv >back.kv
	kv-decode -m m --ids --ignore-eos -n 1 --retrieve 'shadowkv budget=40 dense=1' back.kv | cmp - <(head -n 1 a.ids)
}

@test "a batch, and several questions, are each as alone" {
	kv-score --method keydiff t.kv | kv-evict --rate 0.4 -o few.kv
	mkdir one all
	for f in q t few full; do
		kv-decode -q -m m --ids --ignore-eos -n 12 -o one/$f.kv $f.kv | paste -sd ' '
	done >want
	kv-decode -q -m m --ids --ignore-eos -n 12 --batch 4 -o all q.kv t.kv few.kv full.kv >got
	cmp want got
	for f in q t few full; do
		same_values one/$f.kv all/$f.kv s.logical_digest
	done
	printf '{"ids": [7, 9, 11]}\n{"ids": [500, 2]}\n' >questions 2>/dev/null
	printf '7 9 11\n500 2\n' >questions
	kv-decode -q -m m --ids --ignore-eos -n 5 --questions questions q.kv >answers
	assert_equal "$(wc -l <answers)" 2
}

@test "sliding windows drop quantised rows that no query sees, and a window that holds the text changes nothing" {
	MODEL=slid
	kv-prefill -m slid --ids --keys q8_0 --values q4_0 -o s.kv text.ids
	kv-check -q s.kv
	assert_equal "$(types s.kv)" "q8_0 q8_0 q8_0 q8_0 q4_0 q4_0 q4_0 q4_0"
	kv-quantize --keys f32 --values f32 -o s.f32.kv s.kv
	kv-prefill -m slid --ids -o s.full.kv text.ids
	one_more s s.f32 s.full
}

@test "heads of any width are stored in int8 and fp8; block types are refused with the way on" {
	kv-prefill -m m80 --ids --keys int8 --values fp8 -o w.kv text.ids
	kv-decode -m m80 --ids -n 5 w.kv | wc -l
	run -5 --separate-stderr kv-prefill -m m80 --ids --keys q8_0 -o x.kv text.ids
	assert_equal "$stderr" "kv-prefill: --keys q8_0: the heads of this model have 20 channels, which is no multiple of 32: use int8 or fp8"
}

@test "kv-convert --as-stored leaves the bytes of quantised rows, for NumPy and back" {
	local edit text
	kv-score --method keydiff full.kv | kv-evict --rate 0.4 --policy ada -o ragged.kv
	for types in "--keys q8_0 --values q4_0-hadamard" "--keys fp8 --skip-layers 1" "--values q5_0 --skip-layers 0" "--keys int8 --values q4_1"; do
		# shellcheck disable=SC2086 # words
		kv-quantize $types -o r.kv ragged.kv
		kv-convert -q --as-stored -o r.safetensors r.kv
		kv-convert -o back.kv r.safetensors
		same_numbers back.kv r.kv
		same_values back.kv r.kv '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
		kv-convert -q --as-stored back.kv | cmp - r.safetensors
	done
	# bytes of row 7 of KV head 1: the reader's that is written from the specification
	kv-quantize --keys q8_0 --values q4_0 -o r.kv full.kv
	kv-convert -q --as-stored -o r.safetensors r.kv
	PYTHONPATH=$ROOT/python "$PYTHON" - r.safetensors r.kv <<-'END'
		import json, struct, sys
		import numpy as np
		import kvsnapshot
		data = open(sys.argv[1], "rb").read()
		size = struct.unpack("<Q", data[:8])[0]
		header = json.loads(data[8:8 + size])
		t = header["layers.2.values"]
		a, b = t["data_offsets"]
		assert t["dtype"] == "U8" and t["shape"][-1] == 18 and header["layers.2.keys"]["shape"][-1] == 34, t
		rows = np.frombuffer(data[8 + size + a:8 + size + b], np.uint8).reshape(t["shape"])
		row = rows[0, 1, 7]
		scale = row[:2].view("<f2")[0].astype("f4")
		codes = np.concatenate([row[2:] & 15, row[2:] >> 4]).astype("f4") - 8
		assert np.array_equal(kvsnapshot.read(sys.argv[2]).layers[2].values[1][7], scale * codes)
	END
	run -2 --separate-stderr kv-convert --as-stored -o x.kv r.safetensors
	assert_equal "$stderr" "kv-convert: --as-stored: r.safetensors is a safetensors file, which says itself how its rows are stored"
	# what may be a later version's is 5
	while IFS=@ read -r edit text want; do
		"$PYTHON" - r.safetensors bad.safetensors "$edit" <<-'END'
			import json, struct, sys
			data = bytearray(open(sys.argv[1], "rb").read())
			size = struct.unpack("<Q", data[:8])[0]
			header, rows = json.loads(data[8:8 + size]), data[8 + size:]
			meta, at = header["__metadata__"], lambda name: header[name]["data_offsets"][0]
			exec(sys.argv[3])
			text = json.dumps(header).encode()
			open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + rows)
		END
		run "-${want:-3}" --separate-stderr kv-convert -o x.kv bad.safetensors
		assert_regex "$stderr" "^kv-convert: .*$text"
		assert [ ! -e x.kv ]
	done <<-'END'
		header["layers.1.keys"]["dtype"] = "I8"@layers.1.keys is I8, and kv-snapshot has q8_0 for it: want U8, or no row_types
		header["layers.1.keys"]["shape"][2:] = [34, 239]@layers.1.values: want \[1\]\[2\]\[34\]\[18\]|layers.1.keys: want
		meta["kv-snapshot"] = meta["kv-snapshot"].replace("q8_0", "q4_0")@layers.0.keys: want \[1\]\[2\]\[239\]\[18\]
		meta["kv-snapshot"] = meta["kv-snapshot"].replace("q8_0", "q9_0")@metadata kv-snapshot: .*q9_0@5
		rows[at("layers.3.keys") + 1] = 0x7c@KEYS
	END
}

@test "kv-diff measures what quantising costs; kv-convert writes the numbers; kv-footprint counts rows, and their bytes" {
	run kv-diff --json full.kv q.kv
	assert_success
	assert_equal "$(echo "$output" | json - '(o["a"]["kv_bytes"], o["b"]["kv_bytes"])')" "($((4 * 2 * 239 * 2 * 128)), $((4 * 2 * 239 * (34 + 18))))"
	kv-convert -o q.safetensors q.kv
	kv-convert -o again.kv q.safetensors
	same_numbers again.kv q.kv
	assert_equal "$(kv-footprint --json q.kv | json - 'o["footprint"]')" "$(kv-footprint --json full.kv | json - 'o["footprint"]')"
	assert_equal "$(kv-footprint --json q.kv | json - 'o["kv_bytes"]')" $((4 * 2 * 239 * (34 + 18)))
}

# on_gpu PROGRAM ...: the program on the emulated GPU
on_gpu() {
	PATH=$O/emulated:$PATH KV_DEVICE=cuda "$@"
}

@test "a GPU gives the text, the appended rows and the logits that the CPU gives" {
	local f
	head -n 2 next.ids >two.ids
	for f in q t; do
		forced $f.kv cpu two.ids
		on_gpu forced $f.kv gpu two.ids
		close 1e-3 gpu.npy cpu.npy
		# later tokens: a number of an appended row that stands between two codes may get the other one
		forced $f.kv cpu
		on_gpu forced $f.kv gpu
		close 0.03 gpu.npy cpu.npy
		kv-decode -m m --ids --ignore-eos -n 12 -o cpu.kv $f.kv >ids
		on_gpu kv-decode -m m --ids --ignore-eos -n 12 -o gpu.kv $f.kv | cmp - ids
		kv-check -q gpu.kv
		assert_equal "$(types gpu.kv)" "$(types cpu.kv)"
		kv-quantize --keys f32 --values f32 -o cpu.f32.kv cpu.kv
		kv-quantize --keys f32 --values f32 -o gpu.f32.kv gpu.kv
		errors_below 0.05 "$PYTHON" "$ORACLE/same.py" gpu.f32.kv cpu.f32.kv
	done
}

@test "a GPU keeps the rows that the CPU keeps, of every method that it scores by" {
	local method
	for method in snapkv h2o knorm keydiff; do
		for f in q t; do
			kv-score --method $method $f.kv | kv-evict --rate 0.3 -o cpu.kv
			on_gpu kv-score --method $method $f.kv | kv-evict --rate 0.3 -o gpu.kv
			same_values gpu.kv cpu.kv '[l.positions for l in s.layers]' '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
		done
	done
	on_gpu kv-decode -m m --ids --ignore-eos -n 20 --score 'snapkv window=8' --evict budget=60 -o gpu.kv q.kv >gpu.ids
	kv-decode -m m --ids --ignore-eos -n 20 --score 'snapkv window=8' --evict budget=60 -o cpu.kv q.kv | cmp - gpu.ids
	same_values gpu.kv cpu.kv '[l.positions for l in s.layers]'
	assert_equal "$(types gpu.kv)" "$(types q.kv)"
}

@test "a GPU quantises while the prompt runs, and finds rows and fetches offloaded ones as the CPU does" {
	local f way
	kv-prefill -m m --ids -c 100 --keys q8_0 --values q5_0 -o cpu.kv text.ids
	on_gpu kv-prefill -m m --ids -c 100 --keys q8_0 --values q5_0 -o gpu.kv text.ids
	kv-check -q gpu.kv
	kv-decode -m m --ids --ignore-eos -n 6 cpu.kv >ids
	on_gpu kv-decode -m m --ids --ignore-eos -n 6 gpu.kv | cmp - ids
	for f in q t; do
		kv-quantize1b -g 16 $f.kv | kv-index --pages --page 8 -o i.kv
		on_gpu kv-quantize1b -g 16 $f.kv | kv-index --pages --page 8 -o gpu.kv
		same_values gpu.kv i.kv '[[bytes(h) for h in l.bits.heads] for l in s.layers]'
		for way in 'fier budget=24 dense=1' 'quest budget=24 dense=1'; do
			in_sample 2 || continue
			kv-decode -m m --ids --ignore-eos -n 12 --retrieve "$way" i.kv >ids
			on_gpu kv-decode -m m --ids --ignore-eos -n 12 --retrieve "$way" i.kv | cmp - ids
			on_gpu kv-decode -m m --ids --ignore-eos -n 12 --retrieve "$way" --offload i.kv | cmp - ids
		done
	done
}

@test "a batch on a GPU is each text as alone, and a step of quantised rows is captured" {
	kv-score --method keydiff t.kv | kv-evict --rate 0.4 -o few.kv
	mkdir one all
	for f in q t few full; do
		on_gpu kv-decode -q -m m --ids --ignore-eos -n 8 -o one/$f.kv $f.kv | paste -sd ' '
	done >want
	on_gpu kv-decode -q -m m --ids --ignore-eos -n 8 --batch 4 -o all q.kv t.kv few.kv full.kv | cmp - want
	for f in q t few full; do
		same_values one/$f.kv all/$f.kv s.logical_digest
	done
	KV_EMULATED_TOTALS=1 on_gpu kv-decode -q -m m --ids --ignore-eos -n 8 t.kv 2>totals >ids
	assert_regex "$(cat totals)" '[1-9][0-9]* graphs'
}

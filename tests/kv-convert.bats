#!/usr/bin/env bats
# kv-convert: a snapshot as a safetensors file and back, against NumPy, and against transformers where it is (TRAIN_PYTHON, or python3)

load helper

: "${TRAIN_PYTHON:=python3}"

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# tensors compare|write SNAPSHOT FILE [EDIT]
tensors() {
	"$PYTHON" "$FORMAT/tensors.py" "$@"
}

# there_and_back SNAPSHOT: NumPy finds its tensors in the file; the file, and one that NumPy writes, are the snapshot again
there_and_back() {
	kv-convert -o x.safetensors "$1"
	tensors compare "$1" x.safetensors
	kv-convert -o back.kv x.safetensors
	assert_equal "$(logical back.kv)" "$(logical "$1")"
	assert_equal "$(see back.kv 's.logits')" "$(see "$1" 's.logits')"
	kv-check -q back.kv
	tensors write "$1" other.safetensors
	kv-convert other.safetensors | cmp - back.kv
}

@test "every type and shape, full, evicted and ragged, is there for NumPy, and comes back" {
	local dtype shape
	for dtype in f32 f16 bf16; do
		for shape in "-H 3 -G 3 -E 24 -N 150" "-H 8 -G 2 -E 33 -N 260 --logits" "-H 6 -G 3 -E 64 -N 97,0,131 -T 140" "-L 12 -N 15"; do
			in_sample 4 || continue
			# shellcheck disable=SC2086 # words
			mksnapshot $shape -d $dtype -o x.kv
			there_and_back x.kv
		done
	done
	small_talk 30 | kv-prefill -m "$DEMO" --observe 16 -z -o full.kv
	there_and_back full.kv
	kv-score --method snapkv full.kv | kv-evict --rate 0.3 --policy ada -o ragged.kv
	there_and_back ragged.kv
	see ragged.kv 's.layers[0].rows[0] != s.layers[0].rows[1]' | grep -x True
	kv-score --method knorm full.kv | kv-evict --budget 50 -o even.kv
	there_and_back even.kv
	kv-prefill -m "$DEMO" --select 'tsp layer=2' -o tsp.kv <(small_talk 30)
	there_and_back tsp.kv
}

@test "a file, a pipe, a compressed snapshot, and the same file for input and output give the same bytes" {
	mksnapshot -H 4 -G 2 -E 16 -N 300,120 -T 400 --logits -o x.kv
	kv-convert -o x.safetensors x.kv
	kv-convert x.kv | cmp - x.safetensors
	kv-convert <x.kv | cmp - x.safetensors
	# shellcheck disable=SC2002 # a pipe
	cat x.kv | kv-convert | cmp - x.safetensors
	kv-convert -o back.kv x.safetensors
	# shellcheck disable=SC2002
	cat x.safetensors | kv-convert - | cmp - back.kv
	kv-convert -z -o z.kv x.safetensors
	kv-convert z.kv | cmp - x.safetensors
	cp x.kv same
	kv-convert -o same same
	cmp same x.safetensors
	kv-convert -o same same
	cmp same back.kv
}

@test "what is decoded from a snapshot that came back is what the first one says" {
	small_talk 20 | kv-prefill -m "$DEMO" -o full.kv
	kv-convert full.kv | kv-convert | kv-decode -m "$DEMO" -n 20 >back
	kv-decode -m "$DEMO" -n 20 full.kv | cmp - back
	# the rows are the same, and nobody knows what happened to them: no log, and what needs one says so
	kv-convert full.kv | kv-convert -o back.kv
	assert_equal "$(see back.kv 's.events')" "None"
	small_talk 20 >again
	run -1 --separate-stderr kv-prefill -m "$DEMO" --reuse back.kv -o none.kv again
	assert_regex "$stderr" "back.kv: it has no event log"
	assert_equal "$(kv-info --json back.kv | json - 'o["provenance"][0]["tool"]')" "kv-convert"
}

@test "a snapshot that is many times larger than the memory is converted, both ways" {
	not_under_sanitizers "it takes memory of its own"
	mksnapshot -L 16 -H 4 -G 2 -E 64 -N 16384,12000 -T 16384 -d bf16 -o large.kv
	(ulimit -d 16384; kv-convert -o large.safetensors large.kv && kv-convert -o back.kv large.safetensors)
	[ "$(stat -c %s large.kv)" -gt $((7 * 16384 * 1024)) ]
	(ulimit -d 16384; kv-convert <large.kv | cmp - large.safetensors)
	assert_equal "$(kv-info --all back.kv | grep '^logical')" "$(kv-info --all large.kv | grep '^logical')"
}

@test "a file that does not name its model takes that of --like, and without it is refused" {
	mksnapshot -H 4 -G 2 -E 16 -N 40 --logits -o x.kv
	tensors write x.kv bare.safetensors 'meta.clear(); [t.pop(n) for n in list(t) if n.endswith("positions")]'
	run -3 --separate-stderr kv-convert -o none.kv bare.safetensors
	assert_equal "$stderr" "kv-convert: bare.safetensors: its metadata has no kv-snapshot, so its model is unknown: name a snapshot of the same model with --like"
	kv-convert --like x.kv -o back.kv bare.safetensors
	assert_equal "$(logical back.kv)" "$(logical x.kv)"
	mksnapshot -H 4 -G 2 -E 32 -N 40 -o y.kv
	run -3 --separate-stderr kv-convert --like y.kv -o none.kv bare.safetensors
	assert_regex "$stderr" "layers.0.keys: want \[1\]\[2\]\[40\]\[32\]"
	tensors write x.kv named.safetensors
	run -4 --separate-stderr kv-convert --like y.kv -o none.kv named.safetensors
	assert_regex "$stderr" "named.safetensors: it is of another model than --like: .*head_width: 16 file, 32 --like"
	run -2 --separate-stderr kv-convert --like y.kv -o none x.kv
	assert_regex "$stderr" "--like: x.kv is a snapshot, and names its model itself"
	run -2 --separate-stderr kv-convert -z -o none x.kv
	assert_regex "$stderr" "--lz4: tensors of a safetensors file are stored as they are"
	[ ! -e none.kv ] && [ ! -e none ]
}

@test "a file that contradicts itself is refused, and names the tensor" {
	local edit text want
	mksnapshot -H 4 -G 2 -E 16 -N 40,30 -T 50 --logits -o x.kv
	# what may be a later version's is 5
	while IFS=@ read -r edit text want; do
		tensors write x.kv bad.safetensors "$edit"
		run "-${want:-3}" --separate-stderr kv-convert -o none.kv bad.safetensors
		[[ "$stderr" == "kv-convert: bad.safetensors: "*"$text"* ]] || { echo "$edit: $stderr"; return 1; }
		[ ! -e none.kv ]
	done <<-'END'
		t.pop("tokens")@want tokens, I64 [1][T]
		t["tokens"][1][0, 3] = 10**9@tokens: number 3 is 1000000000: want ids below
		t["tokens"][1][0, 3] = -1@tokens: number 3 is -1
		t["tokens"] = "I64", np.zeros((1, 0), "<i8")@want tokens
		t["tokens"] = "I32", t["tokens"][1].astype("<i4")@want tokens
		t.pop("layers.1.values")@there is no layers.1.values, and the model has 2 layers
		t.pop("layers.0.keys")@there is no layers.0.keys: it is no cache
		t["layers.0.values"] = "F16", t["layers.0.values"][1].astype("<f2")@layers.0.values is F16, and layers.0.keys F32
		t["layers.1.keys"] = t["layers.1.keys"][0], t["layers.1.keys"][1][:, :1]@layers.1.keys: want [1][2][40][16]
		t["layers.1.values"] = t["layers.1.values"][0], t["layers.1.values"][1][:, :, :39]@layers.1.values: want [1][2][40][16]
		t["layers.1.positions"] = "I64", t["layers.1.positions"][1][:, :39]@layers.1.positions: want I64 [1][40], or a list for each of 2 KV heads
		t["layers.1.positions"][1][1, 5] = -1@layers.1.positions: KV head 1: there are rows after a -1
		t["layers.1.positions"][1][0, 5] = 0@layers.1.positions: KV head 0: row 5 is at position 0: want them to ascend
		t["layers.1.positions"][1][0, 39] = 10**6@row 39 is at position 1000000
		t["layers.1.positions"][1][0, 0] = -7@row 0 is at position -7
		t["logits"] = "F32", t["logits"][1][:, :5]@logits: want F32 [1]
		t["layers.2.keys"] = t["layers.1.keys"]@layers.2.keys is no tensor of a cache of 2 layers
		t["layers.01.keys"] = t["layers.1.keys"]@layers.01.keys is no tensor
		t["logit"] = t["logits"]@logit is no tensor of a cache
		meta["kv-snapshot"] = "{}"@metadata kv-snapshot:
		meta["kv-snapshot"] = "x"@metadata kv-snapshot: not JSON
		meta["kv-snapshot"] = meta["kv-snapshot"].replace('"layers": 2', '"layers": 2, "height": 9')@height@5
	END
}

@test "damage of a snapshot and of a file is found, and no output appears" {
	mksnapshot -H 4 -G 2 -E 64 -N 3000 -o x.kv
	kv-convert -o x.safetensors x.kv
	for size in 0 7 100 2000 500000; do
		head -c $size x.safetensors >short
		run -3 kv-convert -o none short
		head -c $size x.kv >cut.kv
		run -3 kv-convert -o none cut.kv
	done
	cp x.kv flip.kv
	printf '\x01\x02\x03' | dd of=flip.kv bs=1 seek=700000 conv=notrunc status=none
	run -3 --separate-stderr kv-convert -o none flip.kv
	assert_regex "$stderr" "checksum"
	run -1 --separate-stderr bash -c 'kv-convert -q x.kv >/dev/full'
	assert_equal "$stderr" 'kv-convert: stdout: No space left on device'
	run -1 --separate-stderr bash -c 'ulimit -f 100; kv-convert -q -o none x.kv'
	assert_equal "$stderr" 'kv-convert: none: File too large'
	run -1 kv-convert -o none nowhere
	run find . -name 'none*'
	assert_output ''
}

@test "what stays behind is named, and nothing is said where nothing does" {
	kv-prefill -m "$DEMO" --observe 16 --mass -o seen.kv "$ROOT/examples/prompts/harbour.txt"
	kv-score --method snapkv seen.kv | kv-index --pages -o more.kv
	run -0 --separate-stderr kv-convert -o more.safetensors more.kv
	assert_equal "$stderr" 'kv-convert: left behind: oBSq, mASS, sCOR, pAGE, eVNt, pROv'
	run -0 --separate-stderr kv-convert -o unknown.safetensors "$ROOT/formats/vectors/passed/unknown-ancillary.kv"
	assert_regex "$stderr" 'left behind: .*, unknown sections$'
	run -0 --separate-stderr kv-convert -o few.safetensors "$ROOT/formats/vectors/passed/logits.kv"
	assert_equal "$stderr" ''
	# Python's stage keeps all of it
	run -0 --separate-stderr bash -c 'PYTHONPATH="$ROOT/python" "$PYTHON" -c "import kvsnapshot, numpy
kvsnapshot.stage(lambda layer: [numpy.zeros(len(p)) for p in layer.positions])" <more.kv >again.kv'
	assert_equal "$(see again.kv '[s.type for s in s.sections]')" "$(see more.kv '[s.type for s in s.sections]')"
}

# why there is nothing to run transformers with, or nothing
missing() {
	cannot_import 'torch, transformers, safetensors'
}

# theirs WHAT ...: tests/oracle/continue_cache.py, on the demo model or $MODEL
theirs() {
	HF_HUB_OFFLINE=1 "$TRAIN_PYTHON" "$ORACLE/continue_cache.py" "$ROOT/examples/transformers" "${MODEL:-$DEMO}" "$@" 2>err || { cat err; return 1; }
}

# bats test_tags=nosan
@test "transformers continues the cache of a model with sliding windows, or with another order of channels, and we continue its" {
	[ -z "$(missing)" ] || skip "$TRAIN_PYTHON: $(missing)"
	for name in mistral-window gemma3 glm4 cohere2; do
		MODEL=$BATS_TEST_TMPDIR/$name
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name "$MODEL" "$DEMO/tokenizer.json"
		seq 30 69 >prompt.ids
		kv-prefill -m "$MODEL" --ids --dtype f32 -o full.kv prompt.ids
		kv-decode -m "$MODEL" --ids --ignore-eos -n 30 -o ours.kv full.kv >said
		kv-convert -o full.safetensors full.kv
		theirs go full.safetensors 30 more.safetensors | diff said -
		kv-convert -o theirs.kv more.safetensors
		errors_below 1e-5 "$PYTHON" "$ORACLE/same.py" ours.kv theirs.kv
		kv-decode -m "$MODEL" --ids --ignore-eos -n 20 theirs.kv >there
		kv-decode -m "$MODEL" --ids --ignore-eos -n 20 ours.kv | diff - there
		[ $name != glm4 ] || continue
		kv-score --method knorm full.kv | kv-evict --rate 0.5 | kv-convert -o few.safetensors
		run -1 theirs go few.safetensors 3
		assert_output --partial "layer 0: rows were evicted, and transformers finds windows by counting them"
	done
}

# bats test_tags=nosan
@test "transformers continues our cache, and we continue its: the same text" {
	[ -z "$(missing)" ] || skip "$TRAIN_PYTHON: $(missing)"
	small_talk 12 | kv-tokenize -m "$DEMO" >prompt.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 -o full.kv prompt.ids
	kv-decode -m "$DEMO" --ids --ignore-eos -n 30 -o ours.kv full.kv >said
	# ours, continued there
	kv-convert -o full.safetensors full.kv
	theirs go full.safetensors 30 more.safetensors | diff said -
	# theirs, continued here
	kv-convert -o theirs.kv more.safetensors
	errors_below 1e-5 "$PYTHON" "$ORACLE/same.py" ours.kv theirs.kv
	kv-decode -m "$DEMO" --ids -n 20 theirs.kv >there
	kv-decode -m "$DEMO" --ids -n 20 ours.kv | diff - there
	# a cache that they began
	theirs new prompt.ids new.safetensors 30 | diff said -
	kv-convert --like full.kv -o new.kv new.safetensors
	errors_below 1e-5 "$PYTHON" "$ORACLE/same.py" full.kv new.kv
	kv-decode -m "$DEMO" --ids --ignore-eos -n 30 new.kv | diff said -
	# a cache that has lost rows, as many in each KV head: positions go on behind the last token
	kv-score --method knorm full.kv | kv-evict --budget 100 -o even.kv
	kv-decode -m "$DEMO" --ids --ignore-eos -n 30 even.kv >said
	kv-convert -o even.safetensors even.kv
	theirs go even.safetensors 30 more.safetensors | diff said -
	kv-decode -m "$DEMO" --ids -n 30 even.kv >short
	theirs say even.safetensors 30 | diff short -
	kv-convert -o more.kv more.safetensors
	kv-check -q more.kv
	kv-score --method knorm full.kv | kv-evict --rate 0.3 --policy ada | kv-convert -o ragged.safetensors
	run theirs go ragged.safetensors 3
	assert_regex "$output" "KV heads have different numbers of rows"
}

#!/usr/bin/env bats
# kv-quantize1b: the bits against the document, what it passes on, what it refuses. How they are used: retrieve.bats

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# exact FILE ...: the bits are those of the keys, to the last one
exact() {
	local file
	"$PYTHON" "$FORMAT/checkindex.py" "$@"
	for file; do
		kv-check "$file"
	done
}

# sections FILE: types and layers
sections() {
	see "$1" "[f'{x.type}{x.layer}' for x in s.sections if x.type not in ('pADD', 'pROv', 'iNDX')]"
}

@test "bits are those that the document defines, for every type, group and width, of full and ragged heads" {
	for dtype in f32 f16 bf16; do
		for shape in "-H 3 -G 3 -E 24 -N 150" "-H 8 -G 2 -E 33 -N 260" "-H 6 -G 3 -E 64 -N 97,0,131 -T 140" "-N 15"; do
			# shellcheck disable=SC2086
			mksnapshot $shape -d $dtype -o x.kv
			for group in 16 32 64 128; do
				kv-quantize1b -g $group -o y$group.kv x.kv
			done
			exact y16.kv y32.kv y64.kv y128.kv
			assert_equal "$(see y64.kv "[l.bits.u for l in s.layers]")" "64 64"
		done
	done
}

@test "a key exactly in the middle has bit 0, equal keys have scale 0" {
	# KV head 0: channel 0 runs from -1 to 1 with zeros between, channel 1 is 3 everywhere
	"$PYTHON" -c 'for i in range(16): print((-1, 0, 0, 1)[i % 4], 3)' >keys
	mksnapshot -L 1 -H 1 -G 1 -E 2 -N 16 --keys keys -o x.kv
	kv-quantize1b -g 16 -o y.kv x.kv
	# zeros -1 3 (bc00 4200), scales 2 0 (4000 0000); rows 3, 7, 11, 15; none
	assert_equal "$(see y.kv "s.layers[0].bits.heads[0].hex()")" "00bc0042004000008888""0000"
	exact y.kv
}

@test "everything else passes through, and the rest of the layer keeps its place" {
	mksnapshot -L 2 -N 64 -w 4 --mass --paid --scores random --logits --extra aBCd -o x.kv
	kv-quantize1b -o y.kv x.kv
	assert_equal "$(logical y.kv)" "$(logical x.kv)"
	assert_equal "$(sections y.kv)" "$(sections x.kv | sed 's/KEYS0/& bITS0/; s/KEYS1/& bITS1/')"
	kv-quantize1b -g 64 -o z.kv y.kv
	assert_equal "$(sections z.kv)" "$(sections y.kv)"
	assert_equal "$(see z.kv "s.layers[1].bits.u")" 64
	exact y.kv z.kv
}

@test "indexes of other kinds stay, those in one bit are replaced" {
	cp "$ROOT/formats/vectors/passed/indexes.kv" x.kv
	kv-quantize1b -g 16 -o y.kv x.kv
	assert_equal "$(sections y.kv)" "$(sections x.kv)"
	assert_equal "$(see y.kv "s.layers[0].clusters == None")" False
	exact y.kv
}

@test "the same input gives the same bytes, through files and pipes, plain and compressed, with any number of threads" {
	mksnapshot -L 3 -H 8 -G 4 -E 48 -N 700,333,0,95 -T 800 -d bf16 -o x.kv
	kv-quantize1b -o y.kv x.kv
	kv-quantize1b -j 1 <x.kv | cmp y.kv -
	kv-quantize1b -j 3 x.kv | cmp y.kv -
	kv-quantize1b -z -o z.kv x.kv
	exact z.kv
	kv-quantize1b z.kv -o again.kv
	kv-check again.kv
	assert_equal "$(see again.kv "s.layers[2].bits.heads[3].hex()")" "$(see y.kv "s.layers[2].bits.heads[3].hex()")"
}

@test "-v says what the bits cost" {
	mksnapshot -L 2 -H 4 -G 4 -E 64 -N 4096 -d bf16 -o x.kv
	run -0 --separate-stderr kv-quantize1b -v -o y.kv x.kv
	assert_regex "$stderr" 'keys 4.0 MiB, in one bit 0.5 MiB'
}

@test "a group of another size is refused, and the sizes are named" {
	mksnapshot -o x.kv
	for group in 0 1 8 33 256; do
		run -2 --separate-stderr kv-quantize1b -g $group -o y.kv x.kv
		assert_regex "$stderr" "--group $group: want 16, 32, 64 or 128"
	done
	[ ! -e y.kv ]
}

@test "a damaged snapshot gives no output" {
	mksnapshot -N 400 -E 32 -o x.kv
	head -c 30000 x.kv >cut.kv
	run -3 --separate-stderr kv-quantize1b -o y.kv cut.kv
	assert_regex "$stderr" 'cut.kv.*truncated'
	[ ! -e y.kv ]
}

@test "an eviction drops the bits" {
	mksnapshot -N 64 --scores random -o x.kv
	kv-quantize1b -o y.kv x.kv
	kv-evict -q --budget 40 -o z.kv y.kv
	assert_equal "$(see z.kv "[l.bits for l in s.layers]")" "None None"
}

#!/usr/bin/env bats
# kv-evict --positions compact: rows that are left are numbered anew, and their keys rotated

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# both A B OPTION ...: evicts x.kv with original positions to A, with compact ones to B
both() {
	kv-evict -q "${@:3}" x.kv -o "$1"
	kv-evict -q --positions compact "${@:3}" x.kv -o "$2"
	kv-check "$2"
}

# renumbered A B [A B ...]: in each pair B is A with compact positions
renumbered() {
	"$PYTHON" "$ORACLE/renumber.py" "$@"
}

@test "rows get the positions up to the longest head, keys are rotated, nothing else changes" {
	local case pairs=()
	for dtype in f32 f16 bf16; do
		for width in 2 6 80 96; do
			mksnapshot -L 2 -G 2 -H 4 -E $width -N 60,41 -T 70 --ragged -d $dtype --mass --scores random --logits -o x.kv
			for share in "--budget 20" "--rate 0.5" "--rate 1"; do
				case=$dtype.$width${share// /}
				# shellcheck disable=SC2086 # words
				both a.$case b.$case $share
				pairs+=(a."$case" b."$case")
			done
		done
	done
	renumbered "${pairs[@]}"
}

@test "a head without rows stays without, and so does a whole snapshot" {
	mksnapshot -N 6,0 --scores random -o x.kv
	both a.kv b.kv --budget 2
	renumbered a.kv b.kv
	assert_equal "$(positions b.kv 0 0)" "0 1"
	mksnapshot -N 0,0 -T 5 --scores random -o x.kv
	both a.kv b.kv --budget 2
	renumbered a.kv b.kv
	assert_equal "$(see b.kv "s.head['next_position']")" 1
}

@test "shorter heads end where the longest ends" {
	mksnapshot -L 1 -N 9,4 -T 30 --scores random -o x.kv
	both a.kv b.kv --budget 6
	renumbered a.kv b.kv
	assert_equal "$(positions b.kv 0 0)" "0 1 2 3 4 5"
	assert_equal "$(positions b.kv 0 1)" "2 3 4 5"
}

@test "compacting what was evicted before is evicting and compacting at once" {
	mksnapshot -N 50 --ragged -d bf16 --scores random -o x.kv
	kv-evict --budget 10 x.kv | kv-score --method random | kv-evict --rate 1 --positions compact -o steps.kv
	kv-evict --budget 10 --positions compact x.kv -o once.kv
	assert_equal "$(logical steps.kv)" "$(logical once.kv)"
	# and nothing moves the second time
	kv-score --method random once.kv | kv-evict --rate 1 --positions compact -o again.kv
	assert_equal "$(logical again.kv)" "$(logical once.kv)"
}

@test "a file, a pipe and compressed input give the same rows" {
	mksnapshot -N 3000 -d bf16 --ragged --scores random -o x.kv
	kv-evict --rate 0.3 --positions compact x.kv -o a.kv
	cat x.kv | kv-evict --rate 0.3 --positions compact | cmp a.kv -
	kv-evict --rate 0.3 --positions compact - <x.kv | cmp a.kv -
	mksnapshot -N 3000 -d bf16 --ragged --scores random -z -o z.kv
	kv-evict --rate 0.3 --positions compact -z z.kv -o b.kv
	assert_equal "$(logical b.kv)" "$(logical a.kv)"
}

# model [OPTION]: a random model, a text of 80 tokens, and its full cache in f32
model() {
	random_model m --dtype f32 --std 0.3 "$@"
	seq 7 3 244 >ids
	kv-prefill -q -m m --ids --no-template --dtype f32 --chunk 32 -o full.kv ids
}

@test "in the first layer, keys are those of a text that has only the tokens that are left" {
	for rope in "" --llama3-rope; do
		model $rope
		kv-score --method recent full.kv | kv-evict --budget 24 --positions compact -o b.kv
		assert_equal "$(kv-info --positions b.kv | sort -k 3 -u | wc -l)" 1
		{ head -n 4 ids; tail -n 20 ids; } >left
		kv-prefill -q -m m --ids --no-template --dtype f32 -o pruned.kv left
		run -0 "$PYTHON" "$ORACLE/renumber.py" --keys 0 1e-6 pruned.kv b.kv
	done
}

@test "where all rows move by the same distance, the model says the same" {
	model --llama3-rope
	seq 9 5 60 >rest
	for positions in original compact; do
		kv-score --method recent --sink 0 full.kv | kv-evict --budget 30 --positions $positions |
			kv-prefill -q -m m --ids --no-template -r - -o $positions.kv rest
	done
	assert_equal "$(kv-info compact.kv | sed -n 's/^next position *//p')" 41
	"$PYTHON" - "$FORMAT" <<-'E'
		import sys
		sys.path.insert(0, sys.argv[1])
		import numpy, kvread
		a, b = (numpy.array(kvread.read(open(n + '.kv', 'rb')).logits) for n in ('original', 'compact'))
		assert abs(a - b).max() < 1e-4 < abs(a).max(), (abs(a - b).max(), abs(a).max())
	E
}

@test "a text longer than its positions: a loop keeps them below budget and chunk" {
	model
	split -l 16 ids part.
	kv-prefill -q -m m --ids --no-template -o cache.kv part.aa
	for part in part.a[b-e]; do
		kv-score --method recent cache.kv | kv-evict -q --budget 20 --positions compact |
			kv-prefill -q -m m --ids --no-template -r - -o cache.kv $part
	done
	assert_equal "$(kv-info cache.kv | sed -n 's/^next position *//p; s/^tokens *//p' | tr '\n' ' ')" "80 36 "
	kv-decode -q -m m -n 4 --ids --ignore-eos -o after.kv cache.kv
	assert_equal "$(positions after.kv 1 1)" "$(seq -s ' ' 0 39)"
}

@test "what is known to be about rows only stays, unknown sections are dropped and named" {
	for type in xYZw xYZW; do
		mksnapshot -N 9 --scores random --extra $type -o x.kv
		run -0 --separate-stderr kv-evict --budget 3 --positions compact x.kv -o y.kv
		assert_regex "$stderr" "dropped the unknown section $type, which may depend on the positions that changed"
		assert_equal "$(see y.kv '[s.others] + [l.others for l in s.layers]')" "[] [] []"
	done
}

@test "observation queries do not move: refused with --keep-queries, as is a word that is not known" {
	mksnapshot -w 3 --scores random -o x.kv
	run -2 --separate-stderr kv-evict --budget 5 --positions compact --keep-queries x.kv -o y.kv
	assert_regex "$stderr" 'does not go with --positions compact'
	run -2 --separate-stderr kv-evict --budget 5 --positions dense x.kv -o y.kv
	assert_regex "$stderr" "'dense' is neither original nor compact"
	assert [ ! -e y.kv ]
}

@test "the option stands in the provenance, and only where it changes something" {
	mksnapshot --scores random -o x.kv
	kv-evict --budget 5 --positions compact x.kv -o y.kv
	assert_equal "$(see y.kv "s.provenance[-1]['options'].get('positions')")" compact
	kv-evict --budget 5 x.kv -o a.kv
	kv-evict --budget 5 --positions original x.kv | cmp a.kv -
}

@test "a truncated or altered input is refused with 3, from a file and from a pipe" {
	mksnapshot -N 20 --scores random -o x.kv
	size=$(stat -c %s x.kv)
	for n in 100 1000 $((size / 2)) $((size - 1)); do
		head -c "$n" x.kv >cut.kv
		run -3 --separate-stderr kv-evict --budget 3 --positions compact cut.kv -o y.kv
		assert_regex "$stderr" truncated
		run -3 --separate-stderr kv-evict --budget 3 --positions compact -o y.kv < <(cat cut.kv)
	done
	assert [ ! -e y.kv ]
	run -1 --separate-stderr kv-evict --budget 3 --positions compact nothing.kv -o y.kv
	assert_regex "$stderr" 'nothing.kv: open: No such file'
	run -1 --separate-stderr kv-evict --budget 3 --positions compact . -o y.kv
}

# Two channels of a pair that are both 500,000 make 707,107 in one of them after an eighth of a turn; the scale of q4_0 ends at 524,032.
@test "keys that their type cannot store at a new position: kv-evict and kv-merge name snapshot, layer and type in the same words" {
	local why='layer 0: q4_0 cannot store a key at its new position: kv-quantize --keys int8'
	"$PYTHON" -c 'for i in range(60): print(*[5e5] * 32)' >keys
	mksnapshot -H 1 -G 1 -E 32 -N 60 -L 1 -d f32 --keys keys --scores random -o full.kv
	kv-quantize --keys q4_0 -o x.kv full.kv
	run -1 kv-evict --positions compact --budget 20 -o y.kv x.kv
	assert_output "kv-evict: x.kv: $why"
	run -1 kv-merge -o y.kv x.kv x.kv
	assert_output "kv-merge: x.kv: $why"
	assert [ ! -e y.kv ]
	kv-quantize --keys int8 full.kv | kv-evict --positions compact --budget 20 | kv-check -q -
}

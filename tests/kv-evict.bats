#!/usr/bin/env bats
# kv-evict: keep lists worked out by hand, what travels along, what it refuses

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# 2 KV heads of 8 and 5 rows at 12 tokens; scores from the file s, the same in both layers
small() {
	echo "1 9 2 8 3 7 3 3   5 5 5 5 6" >s
	mksnapshot -L 2 -H 4 -G 2 -E 4 -N 8,5 -T 12 -w 3 --scores s --logits "$@" -o x.kv
}

# kept HEAD ROW ...: layer 0 of y.kv holds these rows of x.kv in this head, and their keys and values
kept() {
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
x, y = (kvread.read(open(path, "rb")) for path in ("x.kv", "y.kv"))
g, *kept = map(int, sys.argv[2:])
want, got = [x.layers[0].positions[g][row] for row in kept], y.layers[0].positions[g].tolist()
assert got == want, f"KV head {g}: positions {got}, want {want}"
size = x.model["head_width"] * kvread.ITEM_SIZE[x.head["dtype"]]
for what in ("keys", "values"):
    old, new = (s.head_rows(0, what, g) for s in (x, y))
    assert new == b"".join(old[row * size:(row + 1) * size] for row in kept), f"KV head {g}: other {what}"' "$FORMAT" "$@"
}

@test "a budget keeps the greatest scores of each head, ties to the lower row" {
	small
	kv-evict --budget 3 x.kv -o y.kv
	kept 0 1 3 5
	kept 1 0 1 4
	kv-evict --budget 5 x.kv -o y.kv
	kept 0 1 3 4 5 6
	kept 1 0 1 2 3 4
	kv-evict --budget 1 x.kv -o y.kv
	kept 0 1
	kept 1 4
}

@test "a rate is a share of each head's own rows, rounded down" {
	small
	kv-evict --rate 0.5 x.kv -o y.kv
	kept 0 1 3 4 5
	kept 1 0 4
	kv-evict --rate 40% x.kv -o z.kv
	assert_equal "$(see z.kv '[l.rows for l in s.layers]')" "[3, 2] [3, 2]"
}

@test "0.2 of 10 rows is 2, and so is 1 - 0.8" {
	mksnapshot -N 10 --scores random -o x.kv
	for rate in 0.2 0.19999999999999996; do
		kv-evict --rate $rate x.kv -o y.kv
		assert_equal "$(see y.kv 's.layers[0].rows')" "2 2"
	done
}

@test "sinks and recent rows stay whatever their scores" {
	small
	assert_equal "$(see x.kv 's.layers[0].positions[0][5:]')" "9 10 11"
	kv-evict --budget 4 --recent 2 --sink $(($(see x.kv 's.layers[0].positions[0][0]') + 1)) x.kv -o y.kv
	kept 0 0 1 6 7
	kv-evict --budget 3 --recent 2 x.kv -o y.kv
	kept 0 1 6 7
	kept 1 0 3 4
}

@test "rows scored +inf stay" {
	echo "inf 9 2 8 3 7 3 inf   5 inf 5 5 6" >s
	mksnapshot -L 2 -H 4 -G 2 -E 4 -N 8,5 -T 12 --scores s -o x.kv
	kv-evict --budget 2 x.kv -o y.kv
	kept 0 0 7
	kept 1 1 4
	run -2 --separate-stderr kv-evict --budget 1 --small refuse x.kv
	assert_regex "$stderr" 'layer 0 KV head 0: a budget of 1 of 8 rows is too small: 2 are always kept \(0 sink, 0 recent, 2 scored \+inf\)'
}

@test "a budget smaller than what is always kept leaves just that, and a warning says how much it is" {
	echo "inf 9 2 8 3 7 3 inf   5 inf 5 5 6" >s
	mksnapshot -L 2 -H 4 -G 2 -E 4 -N 8,5 -T 12 --scores s -o x.kv
	run -0 --separate-stderr kv-evict --budget 1 x.kv -o y.kv
	assert_equal "$stderr" "kv-evict: the budget is smaller than what is always kept: KV heads keep up to 1 more"
	kept 0 0 7
	kept 1 1
	# a rate that is rounded down to nothing leaves a row in each head, the best one
	run -0 --separate-stderr kv-evict --rate 0.01 x.kv -o y.kv
	kept 0 0 7
	kept 1 1
	small
	run -0 --separate-stderr kv-evict --rate 0.01 x.kv -o y.kv
	assert_equal "$(see y.kv '[l.rows for l in s.layers]')" "$(see x.kv '[[1] * len(l.rows) for l in s.layers]')"
	# streaming heads have no budget, rows before --since are not counted
	kv-evict -q --budget 3 --since 4294967294 x.kv -o y.kv
	same_values y.kv x.kv '[l.rows for l in s.layers]'
}

@test "tokens, logits, identity and next position stay, scores and queries go" {
	small
	kv-evict --budget 3 x.kv -o y.kv
	same_values y.kv x.kv s.head s.tokens s.logits
	assert_equal "$(see y.kv '[(l.scores, l.queries) for l in s.layers]')" "(None, None) (None, None)"
	assert_equal "$(see y.kv 's.provenance[-1]')" \
	    "{'options': {'budget': 3, 'recent': 0, 'sink': 0}, 'tool': 'kv-evict', 'version': '$(kv-evict --version | sed -n '1s/.* //p')'}"
}

@test "--keep-queries keeps the observation queries, and the rest can be scored again" {
	small
	kv-evict --budget 4 --recent 3 --keep-queries x.kv -o y.kv
	same_values y.kv x.kv '[l.queries.data for l in s.layers]'
	kv-score --method snapkv y.kv -o scored.kv
	"$PYTHON" "$ORACLE/scores.py" 2e-6 y.kv scored.kv snapkv
}

@test "attention mass keeps the values of the rows that stay" {
	small --mass
	kv-evict --budget 3 x.kv -o y.kv
	kept 0 1 3 5
	kept 1 0 1 4
	see x.kv '[[[[m[i] for i in rows] for m in lists] for lists, rows in zip(l.mass, ((1, 3, 5), (0, 1, 4)))] for l in s.layers]' >want
	see y.kv '[l.mass for l in s.layers]' | diff want -
	kv-score --method h2o y.kv -o scored.kv
	"$PYTHON" "$ORACLE/scores.py" 1e-6 y.kv scored.kv h2o
	kv-evict --rate 1 x.kv -o y.kv
	same_values y.kv x.kv '[l.mass for l in s.layers]'
}

@test "a rate of 1 changes no logical byte" {
	mksnapshot -N 50 --ragged --scores random --logits -w 4 -o x.kv
	run -0 --separate-stderr kv-evict --rate 1 x.kv -o y.kv
	assert_equal "$stderr" ""
	same_values y.kv x.kv s.logical_digest
	kv-evict --rate 100% -z x.kv -o y.kv
	same_values y.kv x.kv s.logical_digest
}

@test "a budget that no head exceeds drops nothing and says so" {
	small
	run -0 --separate-stderr kv-evict --budget 8 x.kv -o y.kv
	assert_equal "$stderr" "kv-evict: nothing was dropped: no KV head has more rows than its budget"
	same_values y.kv x.kv s.logical_digest
	run -0 --separate-stderr kv-evict -q --budget 8 x.kv -o y.kv
	assert_equal "$stderr" ""
	run -0 --separate-stderr kv-evict --budget 7 x.kv -o y.kv
	assert_equal "$stderr" ""
	assert_equal "$(see y.kv 's.layers[0].rows')" "7 5"
}

@test "-v tells rows and bytes before and after" {
	small
	run -0 --separate-stderr kv-evict -v --budget 3 x.kv -o y.kv
	assert_equal "$stderr" "kv-evict: 12 of 26 rows kept, 384 of 832 bytes of keys and values"
	# as they are stored
	kv-quantize --keys int8 x.kv | kv-evict -v --budget 3 -o y.kv 2>said
	grep -x 'kv-evict: 12 of 26 rows kept, 288 of 624 bytes of keys and values' said
}

@test "unknown sections that do not depend on the rows are carried, the others dropped and named" {
	for type in xYZw xyZw; do
		small --extra $type
		kv-evict --budget 3 x.kv -o y.kv
		same_values y.kv x.kv '[s.others] + [l.others for l in s.layers]'
		assert_equal "$(see y.kv '[x.type for x in s.sections if x.type not in ("pADD", "iNDX", "ENDS")]')" \
		    "HEAD TOKS $type POSN $type KEYS VALS POSN $type KEYS VALS LGTS pROv"
	done
	small --extra xYZW
	run -0 --separate-stderr kv-evict --budget 3 x.kv -o y.kv
	assert_regex "$stderr" 'dropped the unknown section xYZW, which depends on the rows that changed'
	assert_equal "$(see y.kv '[s.others] + [l.others for l in s.layers]')" "[] [] []"
	kv-evict --rate 1 x.kv -o y.kv
	same_values y.kv x.kv '[s.others] + [l.others for l in s.layers]'
}

@test "file and pipe, plain and compressed input give the same result" {
	mksnapshot -N 20000 -d bf16 --scores random -w 4 -o x.kv
	mksnapshot -N 20000 -d bf16 --scores random -w 4 -z -o z.kv
	kv-evict --rate 0.3 x.kv -o a.kv
	cat x.kv | kv-evict --rate 0.3 | cmp a.kv -
	kv-evict --rate 0.3 -z x.kv -o b.kv
	kv-evict --rate 0.3 z.kv -o c.kv
	kv-evict --rate 0.3 - <z.kv | cmp c.kv -
	same_values b.kv a.kv s.logical_digest
	same_values c.kv a.kv s.logical_digest
	kv-check a.kv b.kv c.kv
}

@test "a snapshot without scores is refused and the message names kv-score" {
	mksnapshot -o x.kv
	run -1 --separate-stderr kv-evict --budget 3 x.kv -o y.kv
	assert_equal "$stderr" "kv-evict: x.kv: layer 0 has no scores: run kv-score first"
	assert [ -z "$(ls y.kv* 2>/dev/null)" ]
}

@test "budgets and rates that make no sense are usage errors" {
	small
	for wrong in "" "--budget 0" "--rate 0" "--rate 1.1" "--rate -0.1" "--rate 0%" "--rate 101%" "--rate nan" "--rate 5x" \
	    "--budget 3 --rate 0.5" "--budget -1" "--budget 1.5" "--budget 4294967297" "--budget 4194305k" "--budget 4m4" "--budget"; do
		run -2 kv-evict $wrong x.kv
	done
	run -2 --separate-stderr kv-evict --budget 5 --small never x.kv
	assert_regex "$stderr" "--small: 'never' is neither keep nor refuse"
	run -2 --separate-stderr kv-evict --budget 5 --sink 9 --recent 2 --small refuse x.kv
	assert_regex "$stderr" 'layer 0 KV head 0: a budget of 5 of 8 rows is too small: 7 are always kept \(5 sink, 2 recent, 0 scored \+inf\)'
	run -2 --separate-stderr kv-evict --rate 0.3 --recent 3 --small refuse x.kv -o y.kv
	assert_regex "$stderr" 'a budget of 2 of 8 rows is too small: 3 are always kept \(0 sink, 3 recent, 0 scored \+inf\)'
	run -2 --separate-stderr kv-evict --rate 0.1 --small refuse x.kv -o y.kv
	assert_regex "$stderr" 'a budget of 0 of 8 rows'
	assert [ -z "$(ls y.kv* 2>/dev/null)" ]
}

@test "suffixes k and m mean 1024 and 1024 times 1024" {
	mksnapshot -L 1 -H 1 -G 1 -E 1 -N 3000 --scores random -o x.kv
	kv-evict --budget 2k x.kv -o y.kv
	assert_equal "$(see y.kv 's.layers[0].rows')" 2048
	kv-evict -q --budget 1m x.kv -o y.kv
	assert_equal "$(see y.kv 's.layers[0].rows')" 3000
}

@test "heads without rows are left alone" {
	mksnapshot -N 6,0 --scores random -o x.kv
	kv-evict --budget 2 x.kv -o y.kv
	assert_equal "$(see y.kv 's.layers[0].rows')" "2 0"
	kv-evict --rate 0.5 x.kv -o y.kv
	assert_equal "$(see y.kv 's.layers[1].rows')" "3 0"
}

@test "a truncated input is refused with 3 wherever it ends, and no output is left" {
	small
	size=$(stat -c %s x.kv)
	for n in $(seq 1 97 $((size - 1))) $((size - 1)); do
		head -c "$n" x.kv >cut.kv
		run -3 --separate-stderr kv-evict --budget 3 cut.kv -o y.kv
		assert_regex "$stderr" truncated
	done
	assert [ -z "$(ls y.kv* 2>/dev/null)" ]
}

@test "a failure travels down the pipe without pipefail" {
	small
	head -c 3000 x.kv >cut.kv
	run -3 --separate-stderr bash -c 'kv-score --method knorm cut.kv | kv-evict --budget 3 | kv-check -'
}

# says FILE: its indexes, made anew from the keys
says() {
	"$PYTHON" "$ROOT/tests/format/checkindex.py" --says "$1"
}

# indexes in layers of 41 and of 20 rows
indexed() {
	cp "$ROOT/formats/vectors/passed/indexes${1:-}.kv" x.kv
	says x.kv >all
	assert_equal "$(wc -l <all)" 2
	dropped="kv-evict: dropped the indexes of layers whose keys changed; make them again with \
kv-quantize1b, kv-index --pages, kv-index --clusters, kv-index --low-rank"
}

@test "an index goes with the first row of its layer, is named once, and stays where no row goes" {
	for form in "" -planes; do
		indexed $form
		run -0 --separate-stderr kv-evict --budget 20 x.kv -o y.kv
		assert_equal "$stderr" "$dropped"
		says y.kv | diff <(sed -n 2p all) -
		assert_equal "$(see y.kv '[l.rows for l in s.layers]')" "[20, 20] [20, 20]"
		kv-check y.kv
		run -0 --separate-stderr kv-evict --budget 19 x.kv -o y.kv
		assert_equal "$stderr" "$dropped"
		assert_equal "$(says y.kv)" ""
		kv-check y.kv
		run -0 --separate-stderr kv-evict -q --budget 20 x.kv -o y.kv
		assert_equal "$stderr" ""
	done
	cp "$ROOT/formats/vectors/passed/indexes-extremes-f16.kv" x.kv
	kv-score --method recent -o s.kv x.kv
	run -0 --separate-stderr kv-evict --budget 15 s.kv -o y.kv
	assert_equal "$stderr" "${dropped%, kv-index --cl*}"
}

@test "a rate of 1 keeps every index, plain and compressed" {
	for form in "" -planes; do
		indexed $form
		for options in "" -z; do
			run -0 --separate-stderr kv-evict $options --rate 1 x.kv -o y.kv
			assert_equal "$stderr" ""
			says y.kv | diff all -
			kv-check y.kv
			kv-evict $options --rate 1 - <x.kv | cmp y.kv -
		done
	done
}

@test "positions that are numbered anew drop every index, even where all rows stay" {
	indexed
	run -0 --separate-stderr kv-evict --rate 1 --positions compact x.kv -o y.kv
	assert_equal "$stderr" "$dropped"
	assert_equal "$(says y.kv)" ""
	assert_equal "$(see y.kv '[l.rows for l in s.layers]')" "[41, 41] [20, 20]"
	kv-check y.kv
}

@test "an index of other keys is refused, whatever becomes of it" {
	PYTHONPATH=$ROOT/formats/vectors "$PYTHON" -B - <<-'E'
		import good, kvwrite
		out = good.indexed()
		keys = out[good.place(out, 'KEYS', 1)]
		keys.set(keys.content[:-1] + bytes([keys.content[-1] ^ 1]))
		open('bad.kv', 'wb').write(kvwrite.stream(out))
	E
	for options in "--rate 1" "--budget 20" "--budget 10" "--rate 1 --positions compact"; do
		run -3 --separate-stderr kv-evict $options bad.kv -o y.kv
		assert_regex "$stderr" 'bad.kv: bITS layer 1: made from other keys'
		assert [ ! -e y.kv ]
		run -3 --separate-stderr kv-evict $options <bad.kv
		assert_regex "$stderr" 'stdin: bITS layer 1: made from other keys'
	done
	run -3 --separate-stderr kv-check bad.kv
	assert_regex "$stderr" '^kv-check: bad.kv: bITS layer 1: made from other keys: their hash is [0-9a-f]{16}, this layer.s [0-9a-f]{16}$'
}

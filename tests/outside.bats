#!/usr/bin/env bats
# Scores and rows from outside: kv-score --from, kv-evict --rows, and programs in Python as stages of a pipe

load helper

setup_file() {
	cd "$BATS_FILE_TMPDIR" || return
	kv-prefill -m "$DEMO" --observe 16 -o full.kv "$ROOT/examples/prompts/harbour.txt"
	kv-score --method snapkv --kernel 7 -o scored.kv full.kv
	kv-evict --rate 0.1 -o small.kv scored.kv
	kv-info --positions small.kv >rows
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
	export PYTHONPATH=$ROOT/python
}

# python CODE [ARGUMENT ...]: with the package and NumPy
python() {
	"$PYTHON" -c "import sys, numpy as np, kvsnapshot
$1" "${@:2}"
}

# keeps FROM: with the scores of this file a tenth of full.kv is what SnapKV has kept
keeps() {
	kv-score --from "$1" full.kv | kv-evict --rate 0.1 -o out.kv
	kv-info --positions out.kv | cmp - rows
}

# refused STATUS WORDS COMMAND ...: it fails so, says that, and there is no none.kv
refused() {
	run "-$1" --separate-stderr "${@:3}"
	[[ "$stderr" == *"$2"* ]] || { echo "said: $stderr"; return 1; }
	assert [ ! -e none.kv ]
}

# tiny SCORES: 2 layers of 2 KV heads of 3 and 2 rows, the latter at positions 0 2, and in layer 1 1 2, of 3 tokens
tiny() {
	mksnapshot -L 2 -N 3,2 -T 3 -o tiny.kv
	kv-info --positions tiny.kv | awk '{ for (i = 3; i <= NF; i++) print $1, $2, $i, i }' >tiny.tsv
	python 'a = np.full((2, 2, 3), np.nan); a[:, 0] = 1, 2, 3; a[:, 1, :2] = 4, 5; np.save("tiny.npy", a)'
}

# SnapKV by its paper, in double precision: nothing of the package but the arrays
snapkv='
s = kvsnapshot.read("full.kv")
R = s.model["query_heads"] // s.model["kv_heads"]
def head(layer, g):
    k, at = layer.keys[g].astype(float), layer.query_positions
    total = 0
    for q in layer.queries[g * R:(g + 1) * R].astype(float):
        logits = np.where(layer.positions[g] <= at[:, None], q @ k.T / np.sqrt(k.shape[1]), -np.inf)
        w = np.exp(logits - logits.max(1, keepdims=True))
        total = total + (w / w.sum(1, keepdims=True)).sum(0) / R
    n = (layer.positions[g] < at[0]).sum()
    padded = np.pad(total[:n], 3)
    pooled = [padded[i:i + 7].mean() for i in range(n)]
    return np.append(pooled, np.full(len(k) - n, np.inf))
scores = np.array([[head(l, g) for g in range(len(l.keys))] for l in s.layers])
'

@test "SnapKV computed in NumPy, as .npy of f64 and f32 and as text, keeps what kv-score --method snapkv keeps" {
	python "$snapkv"'
np.save("f8.npy", scores)
np.save("f4.npy", scores.astype("f4"))
kvsnapshot.save_scores("saved.npy", scores)
with open("x.tsv", "w") as f:
    print("# layer, KV head, position, score", file=f)
    for (l, g, i), v in np.ndenumerate(scores):
        print(l, g, s.layers[l].positions[g][i], repr(float(v)), sep="\t", file=f)'
	keeps f8.npy
	keeps f4.npy
	keeps saved.npy
	cmp f4.npy saved.npy
	keeps x.tsv
	# within a layer any order will do, and the file may come through a pipe
	sort -s -n -k 1,1 -k 4,4r x.tsv | kv-score --from - -o sorted.kv full.kv
	kv-score --from f4.npy full.kv | cmp - sorted.kv
	kv-score --from - full.kv <f4.npy | cmp - sorted.kv
	kv-score --from f4.npy - <full.kv | cmp - sorted.kv
	kv-check sorted.kv
	assert_equal "$(see sorted.kv 's.layers[3].scores.label')" external
	assert_equal "$(see sorted.kv 's.provenance[-1]["options"]')" "{'method': 'external'}"
}

@test "scores that are read from a snapshot and given back are the same to the bit, in ragged heads, f16, and over scores" {
	for shape in "-G 2 -N 70,9" "-L 3 -H 8 -G 4 -N 90,12,5,0 -T 200 -d bf16" "-H 6 -G 3 -E 24 -N 150 --ragged --sees 60"; do
		mksnapshot $shape --scores random -w 4 -o x.kv
		python 's = kvsnapshot.read("x.kv")
kvsnapshot.save_scores("x.npy", [l.scores for l in s.layers])'
		kv-score --from x.npy x.kv -o y.kv
		for l in 0 1; do
			assert_equal "$(see y.kv "s.layers[$l].scores.values")" "$(see x.kv "s.layers[$l].scores.values")"
		done
	done
	tiny
	python 'a = np.load("tiny.npy").astype("f2"); a[0, 0, 1] = 0.25; a[1, 1, 0] = np.inf; np.save("half.npy", a)'
	kv-score --from half.npy -o y.kv tiny.kv
	assert_equal "$(see y.kv '[l.scores.values for l in s.layers]')" "[[1.0, 0.25, 3.0], [4.0, 5.0]] [[1.0, 2.0, 3.0], [inf, 5.0]]"
}

@test "a .npy file that is none, of other shape, type or order, cut off or too long is refused with the place" {
	tiny
	edit() { python 'a = np.load("tiny.npy"); '"$1"'; np.save("x.npy", a)'; }
	edit 'a[1, 0, 2] = np.nan'
	refused 3 'x.npy: [1, 0, 2] is not a number' kv-score --from x.npy -o none.kv tiny.kv
	edit 'a[0, 1, 1] = -np.inf'
	refused 3 'x.npy: [0, 1, 1] is -inf' kv-score --from x.npy -o none.kv tiny.kv
	edit 'a[0, 1, 1] = 1e300'
	refused 3 'x.npy: [0, 1, 1] is too great for an f32' kv-score --from x.npy -o none.kv tiny.kv
	edit 'a[1, 1, 2] = 0'
	refused 3 'x.npy: [1, 1, 2]: a score, but the KV head has 2 rows' kv-score --from x.npy -o none.kv tiny.kv
	edit 'a = a[:, :, :2]'
	refused 3 'layer 0 KV head 0 has 3 rows, and the array has room for 2' kv-score --from x.npy -o none.kv tiny.kv
	edit 'a = a[:1]'
	refused 3 'scores of 1 layers of 2 KV heads, and the snapshot has 2 of 2' kv-score --from x.npy -o none.kv tiny.kv
	edit 'a = a[0]'
	refused 3 'an array of 2 axes' kv-score --from x.npy -o none.kv tiny.kv
	edit 'a = np.asfortranarray(a)'
	refused 3 'x.npy: the array is in Fortran order' kv-score --from x.npy -o none.kv tiny.kv
	edit 'a = a.astype(">f4")'
	refused 3 "x.npy: numbers of type '>f4'" kv-score --from x.npy -o none.kv tiny.kv
	edit 'a = np.nan_to_num(a).astype("i8")'
	refused 3 "x.npy: numbers of type '<i8'" kv-score --from x.npy -o none.kv tiny.kv
	for n in 5 60 130 200; do
		head -c $n tiny.npy >x.npy
		refused 3 'x.npy: ' kv-score --from x.npy -o none.kv tiny.kv
	done
	{ cat tiny.npy; echo; } >x.npy
	refused 3 'there are bytes after its last number' kv-score --from x.npy -o none.kv tiny.kv
	# a header that promises more than there can be
	sed 's/(2, 2, 3), }             /(2, 2, 1152921504606846976), }/' tiny.npy >x.npy
	refused 3 'x.npy: ' kv-score --from x.npy -o none.kv tiny.kv
	refused 1 'absent.npy' kv-score --from absent.npy -o none.kv tiny.kv
}

@test "a text of scores that lacks a row, has one twice or one that is not there, or is none, is refused with the line" {
	tiny
	edit() { sed "$1" tiny.tsv >x.tsv; }
	edit 3d
	refused 3 'x.tsv: no score for layer 0 KV head 0 position 2' kv-score --from x.tsv -o none.kv tiny.kv
	edit '$d'
	refused 3 'x.tsv: no score for layer 1 KV head 1 position 2' kv-score --from x.tsv -o none.kv tiny.kv
	edit 2p
	refused 3 'x.tsv: line 3: layer 0 KV head 0 position 1 has a score already' kv-score --from x.tsv -o none.kv tiny.kv
	edit '5s/.*/0 1 1 7/'
	refused 3 'x.tsv: line 5: layer 0 KV head 1 has no row at position 1' kv-score --from x.tsv -o none.kv tiny.kv
	edit '1s/^0/2/'
	refused 3 'x.tsv: line 1: layer 2: the snapshot has 2' kv-score --from x.tsv -o none.kv tiny.kv
	edit '1s/^0 0/0 2/'
	refused 3 'x.tsv: line 1: KV head 2: the snapshot has 2' kv-score --from x.tsv -o none.kv tiny.kv
	edit '7s/^1/0/'
	refused 3 'x.tsv: line 7: layer 0, after lines of layer 1' kv-score --from x.tsv -o none.kv tiny.kv
	{ cat tiny.tsv; echo 0 0 0 1; } >x.tsv
	refused 3 'x.tsv: line 11: layer 0, after lines of layer 1' kv-score --from x.tsv -o none.kv tiny.kv
	for score in nan -inf 1e39 1e999 2x '' '1 2'; do
		edit "4s/[^ ]*\$/$score/"
		refused 3 'x.tsv: line 4: ' kv-score --from x.tsv -o none.kv tiny.kv
	done
	edit '4s/^0 1/0 -1/'
	refused 3 "x.tsv: line 4: KV head '-1' is not a number" kv-score --from x.tsv -o none.kv tiny.kv
	head -c 100000 /dev/zero >x.tsv
	refused 3 'x.tsv: line 1: ' kv-score --from x.tsv -o none.kv tiny.kv
	{ printf '# %05000d\n\n' 0; cat tiny.tsv; } >x.tsv
	kv-score --from x.tsv -o y.kv tiny.kv
	kv-score --from tiny.tsv tiny.kv | cmp - y.kv
}

@test "--from goes with no method and no option of one, and one standard input is not read twice" {
	tiny
	refused 2 '--method or --from' kv-score --from tiny.tsv --method knorm -o none.kv tiny.kv
	refused 2 '--kernel: method external does not use it' kv-score --from tiny.tsv --kernel 5 -o none.kv tiny.kv
	refused 2 '--since: ' kv-score --from tiny.tsv --since 1 -o none.kv tiny.kv
	refused 2 'standard input' kv-score --from - -o none.kv <tiny.kv
	refused 2 'standard input' kv-evict --rows - -o none.kv <tiny.kv
}

@test "what kv-info --positions prints of one snapshot, kept of the full cache, is that snapshot" {
	kv-evict --rows rows full.kv -o again.kv
	# the log says the same, too
	same_but_provenance small.kv again.kv
	shuf --random-source=full.kv rows | kv-evict --rows - full.kv -o again.kv
	same_but_provenance small.kv again.kv
	kv-score --method random full.kv | kv-evict --rate 0.2 --policy ada -o x.kv
	kv-info --positions x.kv | kv-evict --rows - scored.kv -o again.kv
	same_but_provenance x.kv again.kv
	kv-evict --rate 0.1 --positions compact -o x.kv scored.kv
	kv-evict --rows rows --positions compact -o again.kv - <full.kv
	same_but_provenance x.kv again.kv
	assert_equal "$(kv-decode -m "$DEMO" --stop . again.kv)" " L047"
	kv-evict --rows rows --keep-queries full.kv | kv-score --method snapkv | kv-check -
	assert_equal "$(kv-footprint small.kv | awk 'NR > 1 { $NF = ""; print }')" \
	    "$(kv-evict --rows rows full.kv -o again.kv; kv-footprint again.kv | awk 'NR > 1 { $NF = ""; print }')"
}

@test "a list may leave heads empty and is of what is there: evicted rows, sliding windows, indexes" {
	tiny
	printf '# mine\n1 1\n0 0 0 2 # two\n\n0 1\t2\r\n1 0\n' >list
	kv-evict --rows list tiny.kv -o y.kv
	assert_equal "$(see y.kv '[l.positions for l in s.layers]')" "[[0, 2], [2]] [[], []]"
	kv-check y.kv
	kv-info --positions y.kv | kv-evict -q --rows - y.kv | kv-info --positions | cmp - <(kv-info --positions y.kv)
	refused 3 'no row at position 1' kv-evict --rows <(kv-info --positions tiny.kv) -o none.kv y.kv
	run -0 --separate-stderr kv-evict --rows <(kv-info --positions tiny.kv) -o y.kv tiny.kv
	assert_equal "$stderr" "kv-evict: nothing was dropped: the list has all rows"
	mksnapshot -L 3 -N 100 --sees 60 -o x.kv
	kv-score --method knorm x.kv | kv-evict --rate 0.3 -o y.kv
	kv-evict --rows <(kv-info --positions y.kv) x.kv -o z.kv
	same_but_provenance y.kv z.kv
	kv-quantize1b full.kv -o bits.kv
	run -0 --separate-stderr kv-evict --rows rows bits.kv -o y.kv
	[[ "$stderr" == *"dropped the indexes of layers whose keys changed"* ]]
}

@test "a list of rows that does not fit, or is none, is refused with the line" {
	tiny
	kv-info --positions tiny.kv >list
	edit() { sed "$1" list >x; }
	edit '2s/$/ 3/'
	refused 3 'x: line 2: layer 0 KV head 1 has no row at position 3' kv-evict --rows x -o none.kv tiny.kv
	edit '3d'
	refused 3 'x: there is no line for layer 1 KV head 0' kv-evict --rows x -o none.kv tiny.kv
	edit '3p'
	refused 3 'x: line 4: layer 1 KV head 0 is on line 3 already' kv-evict --rows x -o none.kv tiny.kv
	edit '$a2 0 1'
	refused 3 'x: line 5: layer 2 of a model of 2 layers' kv-evict --rows x -o none.kv tiny.kv
	edit '$a0 4096 1'
	refused 3 'x: line 5: KV head 4096 of a model of 2 KV heads' kv-evict --rows x -o none.kv tiny.kv
	edit '1s/0 1 2$/1 0 2/'
	refused 3 'x: line 1: position 0 after position 1: they must ascend' kv-evict --rows x -o none.kv tiny.kv
	edit '1s/1 2$/1 1/'
	refused 3 'x: line 1: position 1 after position 1' kv-evict --rows x -o none.kv tiny.kv
	for word in x 1x -1 1.5 4294967296 99999999999; do
		edit "2s/2\$/$word/"
		refused 3 "x: line 2: '$word" kv-evict --rows x -o none.kv tiny.kv
	done
	edit '2s/.*/0/'
	refused 3 'x: line 2: a layer, and no KV head' kv-evict --rows x -o none.kv tiny.kv
	edit 's/^\([0-9]* [0-9]*\).*/\1/'
	refused 3 'x: no row is listed' kv-evict --rows x -o none.kv tiny.kv
	refused 3 '/dev/null: no row is listed' kv-evict --rows /dev/null -o none.kv tiny.kv
	for option in '--budget 3' '--rate 0.5' '--head-mask list' '--sink 1' '--recent 1' '--since 1' '--policy ada' '--select layer' \
	    '--skip-layers 0' '--of tokens' '--small refuse' '--normalize' '--alpha 0.5' '--sparsity 0.5'; do
		refused 2 "${option%% *}: --rows says already" kv-evict --rows list $option -o none.kv tiny.kv
	done
}

@test "a program in Python is a stage of a pipe: what it writes is what kv-score --from writes of the same scores" {
	cat >back.py <<-'END'
		import sys
		import kvsnapshot
		given = kvsnapshot.read(sys.argv[1])
		kvsnapshot.save_scores("x.npy", [l.scores for l in given.layers])
		kvsnapshot.stage(lambda layer: given.layers[layer.index].scores)
	END
	mksnapshot -L 3 -H 8 -G 4 -N 90,12,5,0 -T 200 -w 5 --mass --paid --scores random --logits -o ragged.kv
	mksnapshot -L 3 -G 2 -N 30000 --scores random -z -o long.kv
	mksnapshot -N 40 --scores random --extra zZZz -o extra.kv
	cp scored.kv real.kv
	for name in ragged long extra real; do
		kv-score --method knorm $name.kv -o other.kv
		"$PYTHON" back.py $name.kv <other.kv >stage.kv
		kv-check stage.kv
		kv-score --from x.npy -o from.kv other.kv
		same_but_provenance stage.kv from.kv
		# on the same pages, too
		local places='[(x.type, x.layer, x.offset) for x in s.sections if x.type not in ("iNDX", "ENDS")]'
		assert_equal "$(see stage.kv "$places")" "$(see from.kv "$places")"
	done
	assert_equal "$(see stage.kv 's.provenance[-1]')" \
	    "{'options': {'method': 'external'}, 'tool': 'kvsnapshot', 'version': '$(kv-info --version | awk 'NR == 1 { print $2 }')'}"
	kv-evict --rate 0.1 stage.kv | kv-info --positions | cmp - rows
}

@test "the attention that the package computes is that of kv-score: windows, softcap, own keys, empty heads" {
	for shape in "-H 8 -G 2 -E 33 -N 150 -w 7" "-H 8 -G 4 -N 90,12,5,0 -T 200 -w 5" "-L 3 -N 150 -w 7 --sees 60 --softcap 3" \
	    "-L 3 -H 6 -G 3 -N 150 -w 4 --own 5 --ragged --sees 50"; do
		mksnapshot $shape -o x.kv
		kv-score --method snapkv --kernel 1 x.kv -o y.kv
		python '
for layer in kvsnapshot.read("y.kv").layers:
    for g, want in enumerate(layer.scores):
        if len(want):
            got = layer.attention(g).sum(axis=1).mean(axis=0)
            ok = np.isfinite(want)
            np.testing.assert_allclose(got[ok], want[ok], rtol=2e-5, atol=1e-7)' || return
	done
}

@test "the example in Python keeps the answer, and what it refuses makes the pipe fail" {
	local example=$ROOT/examples/python/value_aware.py
	assert_equal "$("$PYTHON" "$example" <full.kv | kv-evict --rate 0.1 | kv-decode -m "$DEMO" --stop .)" " L047"
	"$PYTHON" "$example" <full.kv >x.kv
	assert_equal "$(see x.kv 's.layers[0].scores.label')" value-aware
	kv-prefill -m "$DEMO" -o plain.kv "$ROOT/examples/prompts/harbour.txt"
	run -1 --separate-stderr bash -c '"$PYTHON" "$0" <plain.kv >x.kv' "$example"
	assert_equal "$stderr" "value_aware.py: no observation queries: make the snapshot with kv-prefill --observe"
	run -3 kv-check x.kv
	head -c 300000 full.kv >cut.kv
	run -3 --separate-stderr bash -c '"$PYTHON" "$0" <cut.kv >x.kv' "$example"
	[[ "$stderr" == "value_aware.py: stdin: "*truncated* ]]
	run -3 bash -c '"$PYTHON" "$0" <cut.kv | kv-evict --rate 0.1 -o none.kv' "$example"
	assert [ ! -e none.kv ]
	for bad in '[[np.nan] * len(p) for p in l.positions]' '[[1.0] for p in l.positions]' '[[1e300] * len(p) for p in l.positions]' '[]'; do
		run -1 --separate-stderr bash -c '"$PYTHON" -c "import kvsnapshot, numpy as np; kvsnapshot.stage(lambda l: $0)" <full.kv >x.kv' "$bad"
		[[ "$stderr" == *"layer 0"* ]]
		run -3 kv-check x.kv
	done
}

@test "the arrays are what the document says: positions, keys, queries, mass, scores, tokens, logits" {
	mksnapshot -L 2 -H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -d f16 -w 4 --own 3 --mass --paid --value-norms l1 --gate-scores kvzap --noncausal chunk=256 --scores random --logits -o x.kv
	python '
import itertools
sys.path.insert(0, sys.argv[1])
import kvread
a, s = kvsnapshot.read("x.kv"), kvread.read(open("x.kv", "rb"))
assert a.tokens.tolist() == s.tokens and a.logits.tolist() == s.logits and a.next_position == s.head["next_position"]
for l, (x, y) in enumerate(zip(a.layers, s.layers)):
    for g in range(4):
        assert x.positions[g].tolist() == y.positions[g]
        assert x.keys[g].dtype == np.float32 and (x.keys[g] == s.array(l, "keys", g)).all()
        assert (x.values[g] == s.array(l, "values", g)).all() and x.values[g].shape == (y.rows[g], 16)
        assert x.mass[g].tolist() == y.mass[g] and x.probe_mass[g].tolist() == y.paid.values[g]
        assert x.value_norms[g].tolist() == y.value_norms.values[g]
        assert x.gate_scores[g].tolist() == y.gate_scores.values[g] and x.gate_scores_label == "kvzap"
        assert x.noncausal[g].tolist() == y.noncausal.values[g] and x.noncausal_label == "chunk=256"
        assert x.scores[g].tolist() == y.scores.values[g]
    W, K = len(y.queries.positions), sum(p >= a.next_position for p in y.queries.positions)
    assert K == 3 and x.queries.shape == (8, W, 16) and x.own_keys.shape == (4, K, 16)
    assert x.queries.ravel().tolist() == kvread.widen(y.queries.data, "f16").tolist()
    assert x.own_keys.ravel().tolist() == kvread.widen(y.queries.own, "f16").tolist()' "$FORMAT"
	mksnapshot -o bare.kv
	python 'l = kvsnapshot.read("bare.kv").layers[0]
assert l.queries is l.mass is l.probe_mass is l.value_norms is l.value_norms_label is l.gate_scores is l.gate_scores_label is l.noncausal is l.noncausal_label is l.scores is l.own_keys is l.query_positions is None'
	run -1 python 'kvsnapshot.read("/dev/null")'
	[[ "$output" == *"Bad: preamble: truncated"* ]]
}

@test "without the packages xxhash and lz4 the C libraries of these names do, over all vectors" {
	python '
import pathlib
sys.modules["xxhash"] = sys.modules["lz4"] = sys.modules["lz4.block"] = None
for name in [n for n in sys.modules if n.startswith("kvsnapshot")]:
    del sys.modules[name]
import kvsnapshot
assert kvsnapshot.container.xxh3.__module__ == "kvsnapshot.hashing"
vectors = pathlib.Path(sys.argv[1])
n = 0
for path in sorted(vectors.glob("passed/*.kv")):
    kvsnapshot.read(path)
    n += 1
for path in sorted(vectors.glob("failed/*.kv")):
    status = int(path.with_suffix(".why").read_text().split()[0])
    try:
        kvsnapshot.read(path)
    except kvsnapshot.Bad as error:
        assert error.status == status, (path, error)
        n += 1
    else:
        raise AssertionError(path)
print(n)' "$ROOT/formats/vectors" >count
	[ "$(cat count)" -eq "$(find "$ROOT/formats/vectors" -name '*.kv' | wc -l)" ]
}

@test "the package reads and checks a snapshot without loading NumPy, and has the names that need it" {
	mksnapshot -o x.kv
	PYTHONPATH=$ROOT/python "$PYTHON" -c 'import sys, kvsnapshot
from kvsnapshot import container
with open("x.kv", "rb") as file:
    container.read(file)
assert "numpy" not in sys.modules
from kvsnapshot import *
assert "numpy" in sys.modules
assert sorted(set(kvsnapshot.__all__) - set(globals())) == []
assert set(kvsnapshot.__all__) <= set(dir(kvsnapshot))
assert all(callable(getattr(kvsnapshot, name)) for name in kvsnapshot.__all__)
try:
    kvsnapshot.nothing
except AttributeError as error:
    assert "nothing" in str(error)
else:
    raise AssertionError'
}

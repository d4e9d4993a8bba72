#!/usr/bin/env bats
# kv-merge: documents that were prefilled apart become one snapshot

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# merges [OPTION ...] -- FILE ...: merges the files to m.kv, and compares with NumPy
merges() {
	local options=()
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	kv-merge -q "${options[@]}" -o m.kv "${@:2}"
	kv-check m.kv
	"$PYTHON" "$ORACLE/merged.py" "${options[@]}" m.kv "${@:2}"
}

# family NAME FOLDER: makes a model of that family
family() {
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" "$1" "$2" "$DEMO/tokenizer.json"
}

# refused STATUS MESSAGE ARGUMENT ...
refused() {
	run -"$1" --separate-stderr kv-merge "${@:3}" -o no.kv
	assert_equal "$stderr" "kv-merge: $2"
	[ ! -e no.kv ]
}

@test "rows move to their new positions: keys rotated, values, tokens and ragged heads as they are" {
	for dtype in f32 f16 bf16; do
		for width in 2 6 80; do
			sampled documents $dtype $width
		done
	done
}

# documents DTYPE WIDTH
documents() {
	local shape="-L 2 -G 2 -H 4 -E $2 -d $1"
	# shellcheck disable=SC2086 # words
	{
		mksnapshot $shape -N 20,41 -T 70 --ragged -s 1 -o a.kv
		mksnapshot $shape -N 9,0 -T 11 -s 2 -o b.kv
		mksnapshot $shape -N 33 -s 3 -o c.kv
	}
	merges -- a.kv b.kv c.kv
	merges -- c.kv a.kv
	merges --drop-first 4 -- a.kv b.kv c.kv
	merges -- b.kv
	merges --drop-first 1000 -- a.kv c.kv
	assert_equal "$(see m.kv 's.layers[0].positions == [list(p) for p in s.layers[0].positions], s.head["next_position"]')" "True 103"
}

@test "scores, gate scores and norms are carried over when all documents have them under one label" {
	local more="-L 2 -H 6 -G 2 -N 12,5 --value-norms l1 --gate-scores kvzap --scores random"
	# shellcheck disable=SC2086 # words
	{
		mksnapshot $more -s 1 -o a.kv
		mksnapshot $more -s 2 -o b.kv
		mksnapshot -L 2 -H 6 -G 2 -N 12,5 --value-norms l2 --gate-scores kvzap -s 3 -o c.kv
	}
	merges --drop-first 3 -- a.kv b.kv
	assert_equal "$(see m.kv '[bool(l.scores and l.gate_scores and l.value_norms) for l in s.layers]')" "True True"
	merges -- a.kv b.kv c.kv
	assert_equal "$(see m.kv '[(l.scores, l.value_norms, bool(l.gate_scores)) for l in s.layers]')" "(None, None, True) (None, None, True)"
	run -0 --separate-stderr kv-merge a.kv c.kv -o m.kv
	assert_equal "$stderr" "kv-merge: left behind: vNRM, sCOR"
	# and chosen from, as one text
	kv-merge a.kv b.kv | kv-evict --budget 4 -o small.kv
	assert_equal "$(see small.kv 's.layers[0].rows')" "4 4"
}

@test "queries, statistics, masses, logits, indexes, the log and unknown sections are left out, and said" {
	mksnapshot -w 3 --own 2 --mass --paid --query-stats --noncausal "chunk=256 first=0" --logits --extra xyZw -N 20 -o x.kv
	kv-quantize1b -g 16 x.kv | kv-index --pages --page 4 -o a.kv
	run -0 --separate-stderr kv-merge a.kv a.kv -o m.kv
	assert_equal "$stderr" "kv-merge: left behind: oBSq, qSTa, mASS, pAID, nCAU, bITS, pAGE, unknown sections"
	kv-check m.kv
	assert_equal "$(see m.kv '[(l.queries, l.mass, l.bits, l.pages) for l in s.layers][0]')" "None None None None"
}

# assert_line_of TEXT LINE
assert_line_of() {
	grep -qxF -- "$2" <<<"$1" || fail "no line '$2' in '$1'"
}

@test "quantised rows move too: values keep their bytes, keys are quantised again" {
	mksnapshot -L 2 -G 2 -H 4 -E 64 -d bf16 -N 20,9 -s 1 -o a.kv
	mksnapshot -L 2 -G 2 -H 4 -E 64 -d bf16 -N 11 -s 2 -o b.kv
	kv-merge -q a.kv b.kv -o exact.kv
	for type in q8_0 int8 fp8 q4_0-hadamard; do
		case $type in q8_0 | int8) limit=0.02 ;; *) limit=0.3 ;; esac
		for x in a b; do kv-quantize -q --keys $type --values $type $x.kv -o q$x.kv; done
		kv-merge -q qa.kv qb.kv -o m.kv
		kv-check m.kv
		kv-quantize -q --keys bf16 --values bf16 m.kv -o numbers.kv
		kv-quantize -q --keys bf16 --values bf16 qb.kv -o b-numbers.kv
		"$PYTHON" -c '
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import kvread
exact, got, b = (kvread.read(open(name, "rb")) for name in ("exact.kv", "numbers.kv", "b-numbers.kv"))
for g, rows in enumerate((20, 9)):
    keys, want = got.array(1, "keys", g), exact.array(1, "keys", g)
    error = np.linalg.norm(keys[rows:] - want[rows:]) / np.linalg.norm(want[rows:])
    assert 0 < error < float(sys.argv[2]), error
    assert (got.array(1, "values", g)[rows:] == b.array(1, "values", g)).all()' "$FORMAT" "$limit"
	done
	# of a layer whose keys are not rotated not even those of the second document change
	family smollm3 noped
	for x in 1 2; do seq $((x * 10)) $((x * 10 + 40)) | kv-prefill -m noped --ids --keys int8 -o $x.kv -; done
	kv-merge -q 1.kv 2.kv -o m.kv
	kv-check m.kv
	for l in $(see m.kv '[l for l in range(len(s.layers)) if (l + 1) % s.model["rope"]["skip"] == 0]'); do
		assert_equal "$(see m.kv "bytes(s.head_rows($l, 'keys', 0))[-41 * (len(s.head_rows($l, 'keys', 0)) // 82):].hex()")" \
		    "$(see 2.kv "bytes(s.head_rows($l, 'keys', 0)).hex()")"
	done
}

@test "every kind of rotary embedding: linear, llama3, yarn, partial, none in some layers, other theta behind a window" {
	local name
	for name in $("$PYTHON" "$ROOT/tests/bin/mkfamily.py" --list); do
		[ "$name" != llama-dynamic ] || continue        # its frequencies depend on the length
		in_sample 4 || continue
		family "$name" model
		for x in 1 2; do
			seq $((x * 10)) $((x * 10 + 6)) | kv-prefill -q -m model --ids --dtype f32 -o $x.kv -
		done
		merges -- 1.kv 2.kv
		rm -r model
	done
}

@test "the first document is what it was, and the first layer of the others what it is in the whole text" {
	seq 5 60 >a.ids
	seq 100 170 >b.ids
	for x in a b; do kv-prefill -m "$DEMO" --ids --dtype f32 -o $x.kv $x.ids; done
	cat a.ids b.ids | kv-prefill -m "$DEMO" --ids --dtype f32 -o whole.kv -
	merges -- a.kv b.kv
	"$PYTHON" -c '
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import kvread
whole, merged = (kvread.read(open(name, "rb")) for name in ("whole.kv", "m.kv"))
for g in range(2):
    for name in "keys", "values":
        a, b = whole.array(0, name, g), merged.array(0, name, g)
        assert abs(a - b).max() < 2e-5 * abs(a).max(), (name, abs(a - b).max())
        for l in range(4):
            a, b = whole.array(l, name, g)[:56], merged.array(l, name, g)[:56]
            assert abs(a - b).max() < 2e-5 * abs(a).max(), (l, name)
    assert abs(whole.array(1, "keys", g) - merged.array(1, "keys", g)).max() > 0.1' "$FORMAT"
	# and a question goes on behind both
	kv-prefill -m "$DEMO" --ids -r m.kv -o asked.kv <(seq 7 20)
	kv-decode -m "$DEMO" --ids -n 4 asked.kv
	assert_equal "$(see asked.kv "s.head['documents'], s.head['next_position']")" "[56] 141"
}

@test "a prefix that all documents have is taken once; without it one is told of a common first token" {
	seq 5 9 >head.ids
	for x in 1 2 3; do
		{ cat head.ids; seq $((x * 20)) $((x * 20 + 15)); } | kv-prefill -m "$DEMO" --ids --dtype f32 -o $x.kv -
	done
	merges --prefix 5 -- 1.kv 2.kv 3.kv
	assert_equal "$(see m.kv "s.head['documents'], len(s.tokens)")" "[21, 37] 53"
	merges --prefix 5 --drop-first 2 -- 1.kv 2.kv 3.kv
	run -0 --separate-stderr kv-merge -v 1.kv 2.kv -o m.kv
	assert_line_of "$stderr" "kv-merge: all documents begin with token 5: if that is BOS, --prefix 1 takes it once"
	refused 2 "--prefix 6: token 5 is 20 in 1.kv and 40 in 2.kv" --prefix 6 1.kv 2.kv
	kv-prefill -m "$DEMO" --ids -o head.kv --dtype f32 head.ids
	refused 2 "--prefix 5: head.kv has 5 tokens, and none after them" --prefix 5 1.kv head.kv
}

@test "merged documents are merged with others, in one step or in two" {
	for x in 1 2 3; do seq $((x * 20)) $((x * 20 + 9 + x)) | kv-prefill -m "$DEMO" --ids -o $x.kv -; done
	merges -- 1.kv 2.kv 3.kv
	mv m.kv once.kv
	kv-merge -q 1.kv 2.kv -o 12.kv
	merges -- 12.kv 3.kv
	same_values once.kv m.kv "s.logical_digest"
	kv-merge -q 2.kv 3.kv -o 23.kv
	merges --prefix 3 --  23.kv 23.kv
	assert_equal "$(see m.kv "s.head['documents']")" "12 25 34"
	# from a pipe, too
	kv-merge -q 1.kv 2.kv | kv-merge -q - 3.kv -o piped.kv
	same_values once.kv piped.kv "s.logical_digest"
	refused 2 "two documents cannot both come from standard input" - 1.kv - <1.kv
}

@test "who made the documents stands in the provenance, and the documents in kv-info" {
	seq 5 30 | kv-prefill -m "$DEMO" --ids -o a.kv -
	seq 5 30 | kv-prefill -m "$DEMO" --ids -o b.kv -
	kv-score --method keydiff b.kv | kv-evict --budget 9 -o small.kv
	kv-merge -q a.kv small.kv -o m.kv
	assert_equal "$(see m.kv '[line["tool"] for line in s.provenance]')" "kv-prefill kv-prefill kv-score kv-evict kv-merge"
	run -0 kv-info m.kv
	assert_line "documents      2, which begin at 0 26"
	assert_equal "$(kv-info --json m.kv | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["documents"])')" "[0, 26]"
	assert_equal "$(kv-info --json a.kv | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["documents"])')" "[0]"
}

@test "what changes positions or rows later keeps the documents, or leaves them out" {
	for x in 1 2; do seq $((x * 20)) $((x * 20 + 30)) | kv-prefill -m "$DEMO" --ids -o $x.kv -; done
	kv-merge -q 1.kv 2.kv -o m.kv
	kv-score --method keydiff m.kv -o scored.kv
	kv-evict -q --rate 0.5 scored.kv -o half.kv
	kv-quantize -q --keys int8 half.kv -o q.kv
	kv-convert --per-query-head m.kv -o heads.kv
	seq 7 9 >ids
	kv-observe -q -m "$DEMO" --ids-from ids m.kv -o seen.kv
	kv-decode -q -m "$DEMO" --ids -n 3 -o went.kv <(kv-prefill -q -m "$DEMO" --ids -r m.kv ids) >/dev/null
	for x in scored half q heads seen went; do
		assert_equal "$(see $x.kv "s.head['documents']")" 31
	done
	kv-evict -q --rate 0.5 --positions compact scored.kv -o compact.kv
	assert_equal "$(see compact.kv "s.head.get('documents')")" None
	PYTHONPATH=$ROOT/python "$PYTHON" -c '
import kvsnapshot
with open("m.kv", "rb") as a, open("stage.kv", "wb") as b:
    kvsnapshot.change_rows(a, b, keep=lambda layer: [range(5)] * len(layer.positions), label="five")'
	assert_equal "$(see stage.kv "s.head['documents']")" 31
}

@test "--reuse and --store take no merged rows, which have not seen the text before them" {
	seq 5 60 >a.ids
	kv-prefill -m "$DEMO" --ids -o a.kv a.ids
	kv-merge -q a.kv a.kv -o m.kv
	cat a.ids a.ids >both.ids
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --reuse m.kv -o no.kv both.ids
	assert_equal "$stderr" "kv-prefill: m.kv: it has no event log, so how its rows were made is unknown"
	run -2 kv-prefill -m "$DEMO" --ids -r m.kv --store . -o no.kv a.ids
}

@test "other models, types, renumbered rows, residuals and too long texts are refused" {
	seq 5 30 | kv-prefill -m "$DEMO" --ids -o a.kv -
	mksnapshot -N 9 -o other.kv
	run -4 --separate-stderr kv-merge a.kv other.kv -o no.kv
	assert_regex "$stderr" "^kv-merge: a.kv and other.kv are not of one model: .*hidden: 128 a.kv"
	kv-quantize -q --keys int8 a.kv -o q.kv
	refused 5 "a.kv and q.kv store their rows in different types: kv-quantize one of them" a.kv q.kv
	kv-quantize -q --keys kivi2 --values kivi2 a.kv -o kivi.kv
	run -5 --separate-stderr kv-merge a.kv kivi.kv -o no.kv
	assert_regex "$stderr" "^kv-merge: kivi.kv has .*: keys that are quantised in groups, and full rows behind quantised ones, do not move: merge before kv-quantize"
	kv-score --method keydiff a.kv | kv-evict -q --rate 0.5 --positions compact -o compact.kv
	refused 5 "--prefix 3: compact.kv has 26 tokens, and the next one is at position 13: its rows were renumbered, or are of selected tokens" --prefix 3 a.kv compact.kv
	cp "$ROOT/formats/vectors/passed/far-positions.kv" .
	refused 5 "far-positions.kv: positions end at 2^32" far-positions.kv far-positions.kv
	cp "$ROOT/formats/vectors/passed/documents-most.kv" .
	refused 5 "far-positions.kv: more than 1024 documents" documents-most.kv far-positions.kv
	merges -- documents-most.kv
	[ ! -e no.kv ]
}

@test "damaged documents, and a full disk, leave no output" {
	mksnapshot -N 200 -E 64 -o a.kv
	mksnapshot -N 50 -E 64 -s 2 -o b.kv
	for size in 100 3000 30000; do
		head -c $size b.kv >cut.kv
		run -3 kv-merge a.kv cut.kv -o no.kv
		assert_output --partial "cut.kv"
		[ ! -e no.kv ]
	done
	run -1 kv-merge a.kv b.kv -o /dev/full
	run -2 kv-merge
}

#!/usr/bin/env bats
# kv-diff: rows, mass recalled and output error against formulas in double precision; what it refuses

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# agrees LIMIT A B [A B ...]: kv-diff and the oracle find the same in each pair; leaves what kv-diff says of the last one in got.json
agrees() {
	local limit=$1 comparisons=()
	shift
	while [ $# -gt 0 ]; do
		kv-diff --json "$1" "$2" >"$1.$2.json" || return
		ln -sf "$1.$2.json" got.json
		comparisons+=("$limit" "$1" "$2" "$1.$2.json")
		shift 2
	done
	"$PYTHON" "$ORACLE/diff.py" "${comparisons[@]}"
}

retype() {
	"$PYTHON" "$BATS_TEST_DIRNAME/bin/retype.py" "$@"
}

# evicted FROM TO RATE [option ...]: by chance, each KV head its own rows
evicted() {
	local from=$1 to=$2 rate=$3
	shift 3
	kv-score --method random "$from" | kv-evict --policy ada --rate "$rate" "$@" -o "$to"
}

@test "rows, mass recalled and output error agree with their formulas for 1, 4 and 8 query heads a KV head" {
	local name pairs=()
	for shape in "-H 3 -G 3 -E 24" "-H 8 -G 2 -E 33" "-H 16 -G 2 -E 64"; do
		for dtype in f32 f16 bf16; do
			name=${shape// /}.$dtype.kv
			mksnapshot $shape -d $dtype -N 150 -w 7 -o "a$name"
			evicted "a$name" "b$name" 0.3
			pairs+=("a$name" "b$name" "b$name" "a$name")
		done
	done
	agrees 2e-6 "${pairs[@]}"
}

@test "in layers with a sliding window, and with softcapped logits, mass and output error agree with their formulas" {
	local name pairs=()
	for limit in "--sees 60" "--softcap 3" "--sees 100 --softcap 2"; do
		name=${limit// /}.kv
		mksnapshot -H 8 -G 2 -E 33 $limit -L 3 -N 150 -w 7 -o "a$name"
		evicted "a$name" "b$name" 0.3
		pairs+=("a$name" "b$name" "b$name" "a$name")
	done
	agrees 2e-6 "${pairs[@]}"
}

@test "ragged heads, a head of the window only, and an empty head are compared" {
	mksnapshot -H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -w 5 -o a.kv
	mksnapshot -H 8 -G 4 -E 16 -N 40,0,100,9 -T 200 -w 5 -s 3 -o b.kv
	agrees 5e-6 a.kv b.kv
	assert_equal "$(json got.json '[h["mass"] is None for h in o["layers"][0]["heads"]]')" "[False, False, False, True]"
	mksnapshot -L 5 -H 8 -G 4 -E 16 -N 300 --ragged -w 9 -o a.kv
	mksnapshot -L 5 -H 8 -G 4 -E 16 -N 300 --ragged -w 9 -s 1 -o b.kv
	agrees 5e-6 a.kv b.kv
	run -0 kv-diff --by head a.kv b.kv
	assert_equal "${#lines[@]}" 25
}

@test "a snapshot and itself: all rows, all mass, no error, exactly" {
	mksnapshot -H 8 -G 4 -E 16 -N 3000 --ragged -w 9 -d bf16 -o a.kv
	kv-diff --json a.kv - <a.kv >got.json
	assert_equal "$(json got.json '[o[k] for k in ("only_a", "only_b", "keys_differ", "values_differ",
	    "mass", "output_error", "same")]')" "[0, 0, 0, 0, 1.0, 0.0, True]"
	assert_equal "$(json got.json '{(q["mass"], q["output_error"]) for l in o["layers"]
	    for h in l["heads"] for q in h["query_heads"]}')" "{(1.0, 0.0)}"
	run -0 kv-diff a.kv a.kv
	assert_line --regexp '^ +[0-9]+ +0 +0 +same +same +100\.00% +0    all$'
}

@test "the first one is the reference: text and JSON say so, and a smaller one of the same text is warned of" {
	mksnapshot -N 20 -T 20 -w 4 -o x.kv
	kv-score --method recent --sink 0 x.kv >scored.kv
	kv-evict --budget 8 -o small.kv scored.kv
	run -0 --separate-stderr kv-diff scored.kv small.kv
	assert_line --regexp '^a        scored.kv, the reference: '
	assert_equal "$stderr" ""
	said="kv-diff: small.kv, the reference, has fewer rows than scored.kv: name it second to measure what it lost"
	kv-score --method recent small.kv >scored.small
	mv scored.small small.kv
	for option in "" --scores; do
		# shellcheck disable=SC2086 # no word
		run -0 --separate-stderr kv-diff $option small.kv scored.kv
		assert_line --regexp '^a        small.kv, the reference: '
		assert_equal "$stderr" "$said"
		# shellcheck disable=SC2086
		assert_equal "$(kv-diff -q --json $option small.kv scored.kv | json - 'o["reference"]')" a
	done
	# without queries there is no mass, and a text that goes on has more rows
	strip oBSq scored.kv silent.kv
	run -0 --separate-stderr kv-diff small.kv silent.kv
	mksnapshot -N 8 -T 8 -w 4 -o early.kv
	run -0 --separate-stderr kv-diff early.kv x.kv
	assert_equal "$stderr" ""
}

@test "no row in both: no mass is recalled, and the error is a number" {
	mksnapshot -N 20 -T 20 -w 4 -o x.kv
	kv-score --method recent --sink 0 x.kv | kv-evict --budget 8 -o late.kv
	mksnapshot -N 12 -T 12 -o early.kv
	kv-diff --json x.kv early.kv >got.json
	assert_equal "$(json got.json 'o["both"], o["only_a"]')" "(48, 32)"
	kv-diff --json late.kv early.kv >got.json
	assert_equal "$(json got.json 'o["both"], o["only_a"], o["only_b"], o["mass"]')" "(0, 32, 48, None)"
	mksnapshot -N 8 -T 20 -w 8 -o late.kv
	agrees 2e-6 late.kv early.kv
	assert_equal "$(json got.json 'o["both"], o["mass"], 0 < o["output_error"] < 10')" "(0, 0.0, True)"
	# nothing at all is left: all of the output is lost
	mksnapshot -N 0 -T 20 -o none.kv
	agrees 2e-6 late.kv none.kv
	assert_equal "$(json got.json 'o["mass"], o["output_error"]')" "(0.0, 1.0)"
	run -0 kv-diff late.kv early.kv
	assert_line --regexp '^ +0 +32 +48 +- +- +0\.00% +[0-9.]+    all$'
}

@test "another type shows as small differences of keys and values, and is said" {
	mksnapshot -d f32 -N 50 -w 3 -o a.kv
	retype bf16 a.kv b.kv
	kv-check b.kv
	agrees 2e-6 a.kv b.kv
	assert_equal "$(json got.json 'o["keys_differ"], 0 < o["key_difference"] <= 2**-8, 0 < o["output_error"] < 0.01')" \
		"(200, True, True)"
	run -0 kv-diff a.kv b.kv
	assert_line "a        a.kv, the reference: 50 tokens, next position 50, f32"
	assert_line "b        b.kv: the same tokens, next position 50, bf16"
	# widened again, the numbers are the same
	mksnapshot -d bf16 -N 50 -w 3 -o a.kv
	retype f32 a.kv b.kv
	agrees 2e-6 a.kv b.kv
	assert_equal "$(json got.json 'o["keys_differ"], o["values_differ"], o["same"]')" "(0, 0, False)"
}

@test "tokens are the same, continued, a beginning, or others from some token on" {
	seq 1 40 >a; seq 1 60 >b; (seq 1 30; seq 200 240) >c
	for x in a b c; do kv-prefill -m "$DEMO" --ids --observe 4 -o $x.kv $x; done
	for pair in "a a same 40" "a b continued 40" "b a beginning 40" "b c other 30"; do
		read -r x y word common <<<"$pair"
		agrees 1e-5 $x.kv $y.kv
		assert_equal "$(json got.json 'o["tokens"], o["tokens_common"]')" "('$word', $common)"
	done
	run -0 kv-diff a.kv b.kv
	assert_line "b        b.kv: 60 tokens, which continue those of a, next position 60, bf16"
	run -0 kv-diff b.kv a.kv
	assert_line "b        a.kv: 40 tokens, which begin those of a, next position 40, bf16"
	run -0 kv-diff b.kv c.kv
	assert_line "b        c.kv: 71 tokens, others from token 30 on, next position 71, bf16"
}

@test "tokens are compared over more than a block of them, compressed or not" {
	mksnapshot -N 4 -T 600000 -z -o a.kv
	mksnapshot -N 4 -T 700000 -o b.kv
	for pair in "a b continued" "b a beginning" "a a same"; do
		read -r x y word <<<"$pair"
		kv-diff --json $x.kv $y.kv >got.json
		assert_equal "$(json got.json 'o["tokens"], o["tokens_common"]')" "('$word', 600000)"
	done
	see a.kv 's.tokens' | tr ' ' '\n' | awk '{ print NR == 500001 ? $1 + 1 : $1 }' >ids
	"$PYTHON" "$BATS_TEST_DIRNAME/bin/mksmall.py" ids ids c.kv
	see a.kv 's.tokens' | tr ' ' '\n' >ids
	"$PYTHON" "$BATS_TEST_DIRNAME/bin/mksmall.py" ids ids d.kv
	kv-diff --json d.kv c.kv >got.json
	assert_equal "$(json got.json 'o["tokens"], o["tokens_common"]')" "('other', 500000)"
}

@test "queries of the second snapshot are used when the first has none, and without any rows are compared" {
	mksnapshot -N 40 -o a.kv
	mksnapshot -N 40 -w 6 -o b.kv
	agrees 2e-6 a.kv b.kv
	run -0 kv-diff a.kv b.kv
	assert_line "queries  6 of b: a has none"
	agrees 0 a.kv a.kv
	run -0 kv-diff a.kv a.kv
	assert_line "queries  none: no attention is compared (kv-prefill --observe)"
	assert_line "     both    only a    only b      keys    values  layer"
}

@test "a layer without queries has neither mass nor error, and counts in neither" {
	mksnapshot -L 3 -N 40 -w 6 -o whole.kv
	strip oBSq whole.kv a.kv 1
	evicted whole.kv b.kv 0.5
	agrees 2e-6 a.kv b.kv
	run -0 kv-diff a.kv b.kv
	assert_line --regexp '^ +40 +40 +0 +same +same +- +-      1$'
}

@test "what is not a number differs without bounds from one, and not from itself" {
	"$PYTHON" -c 'print(*[0.5] * 77, "nan", "inf", *[0.25] * 200)' >keys
	mksnapshot -G 1 -N 20 --keys keys -o a.kv
	kv-diff a.kv a.kv | grep -E '^ +40 +0 +0 +same +same    all$'
	sed 's/nan/0/' keys >other
	mksnapshot -G 1 -N 20 --keys other -o b.kv
	kv-diff --json a.kv b.kv >got.json
	assert_equal "$(json got.json 'o["keys_differ"], o["key_difference"], o["values_differ"], o["value_difference"]')" \
		"(2, None, 0, 0.0)"
	kv-diff b.kv a.kv | grep -E '^ +40 +0 +0 +inf +same    all$'
}

@test "queries of tokens that are not stored see all rows, and not their own keys" {
	mksnapshot -N 60 -w 2 --own 3 -d bf16 -o a.kv
	evicted a.kv b.kv 0.5
	agrees 2e-6 a.kv b.kv
}

@test "positions that were given anew are warned of, and rotated keys show" {
	seq 1 80 | kv-prefill -m "$DEMO" --ids --observe 4 -o a.kv
	evicted a.kv b.kv 0.5 --positions compact
	run -0 --separate-stderr kv-diff a.kv b.kv
	assert_regex "$stderr" 'kv-diff: one of them has renumbered positions'
	refute_line --regexp 'same .* all$'
}

@test "--exit-code: 1 when anything critical differs, and not for scores or compression" {
	mksnapshot -N 40 -w 6 -o a.kv
	kv-score --method snapkv -z -o scored.kv a.kv
	mksnapshot -N 40 -w 6 -s 1 -o b.kv
	kv-diff --exit-code a.kv scored.kv
	run -1 --separate-stderr kv-diff --exit-code a.kv b.kv
	assert_equal "$stderr" ""
	kv-diff a.kv b.kv
	mksnapshot -N 40 -w 6 --logits -o b.kv
	run -1 kv-diff --exit-code a.kv b.kv
}

@test "snapshots of different models are refused with 4 and the fields" {
	mksnapshot -L 2 -E 8 -o a.kv
	mksnapshot -L 3 -E 16 -o b.kv
	run -4 --separate-stderr kv-diff a.kv b.kv
	assert_equal "$output" ""
	assert_equal "$stderr" "kv-diff: a.kv and b.kv are not of one model: ffn: 128 a.kv, 256 b.kv; \
head_width: 8 a.kv, 16 b.kv; hidden: 32 a.kv, 64 b.kv; layers: 2 a.kv, 3 b.kv"
}

@test "what is wrong with the command line or the second snapshot is refused, and nothing is printed" {
	mksnapshot -N 40 -w 6 -o a.kv
	run -2 --separate-stderr kv-diff - - <a.kv
	assert_regex "$stderr" 'only one of the snapshots can be standard input'
	run -2 --separate-stderr kv-diff a.kv
	run -2 --separate-stderr kv-diff --by row a.kv a.kv
	assert_regex "$stderr" '--by row: want layer or head'
	head -c 3000 a.kv >cut.kv
	for order in "a.kv cut.kv" "cut.kv a.kv"; do
		run -3 --separate-stderr kv-diff $order
		assert_regex "$stderr" 'cut.kv: .*truncated'
		assert_equal "$output" ""
	done
	run -3 --separate-stderr kv-diff a.kv - <cut.kv
	assert_regex "$stderr" 'stdin: .*truncated'
	run -1 kv-diff a.kv not-there.kv
}

@test "any number of threads gives the same bytes" {
	mksnapshot -H 16 -G 4 -E 64 -N 2000 --ragged -w 16 -d bf16 -o a.kv
	evicted a.kv b.kv 0.2
	cmp <(kv-diff --json -j 1 a.kv b.kv) <(kv-diff --json -j 4 a.kv b.kv)
}

# ---- retrieval ----

# tried LIMIT FILE METHOD ...: kv-diff --retrieve and the oracle find the same for each method; got.json is of the last one
tried() {
	local limit=$1 file=$2 runs=()
	shift 2
	while [ $# -gt 0 ]; do
		kv-diff --json --retrieve "$1" "$file" >"got.$#.json" || return
		ln -sf "got.$#.json" got.json
		runs+=("$limit" "$file" "got.$#.json")
		shift
	done
	"$PYTHON" "$ORACLE/tried.py" "${runs[@]}"
}

@test "fier reads and loses what its formulas say, for 1, 4 and 8 query heads a KV head, at any budget" {
	for shape in "-H 3 -G 3 -E 24" "-H 8 -G 2 -E 33" "-H 16 -G 2 -E 64 --ragged"; do
		for dtype in f32 bf16; do
			mksnapshot -L 3 $shape -d $dtype -N 200 -w 7 -o x.kv
			kv-quantize1b -g 32 -o a.kv x.kv
			tried 4e-6 a.kv "fier budget="{1,20,64} 'fier budget=20 reduce=mean dense=1'
		done
	done
	tried 4e-6 a.kv 'fier budget=20 reduce=sum dense=0'
	mksnapshot -L 3 -H 8 -G 4 -E 32 -N 90,12,50,0 -T 200 -w 9 -o x.kv
	kv-quantize1b -g 16 -o a.kv x.kv
	kv-diff --retrieve 'fier budget=20' a.kv
}

@test "quest, cluster and shadow read and lose what their formulas say" {
	for shape in "-H 3 -G 3 -E 24" "-H 8 -G 2 -E 32 --ragged" "-H 16 -G 2 -E 64"; do
		mksnapshot -L 3 $shape -d f32 -N 200 -w 7 -o x.kv
		kv-index --pages -o a.kv x.kv
		tried 4e-6 a.kv "quest budget="{1,40,90} "quest-eval budget="{1,40,90}
		kv-index --clusters --cluster-count 9 -o a.kv x.kv
		tried 4e-6 a.kv "cluster budget="{1,40,90}" reduce=mean"
	done
	for dtype in f32 bf16; do
		mksnapshot -L 3 -H 8 -G 2 -E 32 -d $dtype -N 205 -w 7 -o x.kv
		kv-index --low-rank --rank 20 --outliers 5 -o a.kv x.kv
		tried 2e-4 a.kv "shadow budget="{1,40,90}
	done
}

@test "queries that do not see all rows of the factors are left out, and their number is said" {
	mksnapshot -L 3 -H 8 -G 2 -E 32 -N 200 -w 7 -o x.kv
	kv-index --low-rank --rank 20 --outliers 5 --local 0 -o a.kv x.kv
	tried 1e-5 a.kv 'shadow budget=40'
	run -0 kv-diff --retrieve 'shadow budget=40' a.kv
	assert_line 'queries   1, without 6 that do not see all rows of the factors'
}

@test "with a budget of all rows nothing is lost, exactly, and no index is read" {
	mksnapshot -L 3 -H 8 -G 2 -E 32 -d bf16 -N 200 --ragged -w 7 -o x.kv
	kv-quantize1b -o a.kv x.kv
	kv-diff --json --retrieve 'fier budget=200 dense=0' a.kv >got.json
	assert_equal "$(json got.json '[o["all"][k] for k in ("recall", "mass", "output_error", "index_bytes", "share")]')" \
		"[1.0, 1.0, 0.0, 0.0, 1.0]"
	assert_equal "$(json got.json '{q["output_error"] for l in o["layers"] for h in l["heads"] for q in h["query_heads"]}')" "{0.0}"
	run -0 kv-diff --retrieve 'fier budget=200' a.kv
	assert_line --regexp ' +100\.00% +100\.00% +0 +0 +[0-9]+ +[0-9]+ +100\.00%    2-2$'
}

@test "queries of tokens that are not stored retrieve from all rows" {
	mksnapshot -L 3 -H 8 -G 2 -E 32 -N 200 -w 2 --own 3 -d bf16 -o x.kv
	kv-quantize1b -o a.kv x.kv
	tried 4e-6 a.kv 'fier budget=20'
	mksnapshot -L 3 -H 8 -G 2 -E 32 -N 200 --own 3 -d bf16 -o x.kv
	kv-quantize1b -o a.kv x.kv
	tried 4e-6 a.kv 'fier budget=20'
	assert_equal "$(json got.json 'o["all"]["of_rows"]')" "200.0"
}

@test "without the index, or without queries, retrieval is refused and the message says how to get them" {
	mksnapshot -L 3 -N 200 -w 7 -o a.kv
	run -1 --separate-stderr kv-diff --retrieve 'fier budget=20' a.kv
	assert_equal "$output" ""
	assert_equal "$stderr" "kv-diff: a.kv: layer 2 has no keys in one bit (bITS), which --retrieve fier needs: \
add them with kv-quantize1b"
	mksnapshot -L 3 -N 200 -o x.kv
	kv-quantize1b -o a.kv x.kv
	run -1 --separate-stderr kv-diff --retrieve 'fier budget=20' a.kv
	assert_equal "$stderr" "kv-diff: a.kv: layer 0 has no observation queries to try retrieval with: \
make the snapshot with kv-prefill --observe"
}

@test "--retrieve takes one snapshot and a budget, and a truncated one is refused" {
	mksnapshot -L 3 -N 200 -w 7 -E 32 -o x.kv
	kv-quantize1b -o a.kv x.kv
	run -2 kv-diff --retrieve 'fier budget=20' a.kv a.kv
	run -2 kv-diff --retrieve fier a.kv
	run -2 kv-diff --budget 20 a.kv a.kv
	assert_output --partial "--budget is now --retrieve 'METHOD budget=N'"
	run -2 kv-diff --retrieve 'nothing budget=20' a.kv
	run -2 kv-diff --retrieve 'fier budget=20' --exit-code a.kv
	run -2 --separate-stderr kv-diff a.kv
	assert_regex "$stderr" 'want two snapshots, or --retrieve and one'
	head -c 50000 a.kv >cut.kv
	run -3 --separate-stderr kv-diff --retrieve 'fier budget=20' - <cut.kv
	assert_regex "$stderr" 'stdin: .*truncated'
	assert_equal "$output" ""
	cmp <(kv-diff --retrieve 'fier budget=20' -j 1 --by head - <a.kv) <(kv-diff --retrieve 'fier budget=20' -j 4 --by head - <a.kv)
}

@test "every key of --json is explained in the page" {
	mksnapshot -L 3 -N 200 -w 7 -E 32 -o x.kv
	kv-quantize1b -o a.kv x.kv
	kv-diff --json x.kv a.kv >two.json
	kv-diff --json --retrieve 'fier budget=20' a.kv >one.json
	run "$PYTHON" -c '
import json, re, sys
page = set(re.findall(r"\w+", open(sys.argv[1]).read()))
def keys(o):
    if isinstance(o, list):
        return set().union(*map(keys, o))
    return set(o).union(*map(keys, o.values())) if isinstance(o, dict) else set()
print(*sorted(set().union(*(keys(json.load(open(f))) for f in sys.argv[2:])) - page))
' "$ROOT/man/kv-diff.1" two.json one.json
	assert_success
	assert_output ''
}

#!/usr/bin/env bats
# kv-diff --scores: Kendall's tau, recall of the best rows, and regret against the definitions; the oracle against every method; what is
# refused

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# agrees A B RATE ...: kv-diff --scores and the oracle find the same
agrees() {
	local rates=("${@:3}")
	kv-diff --json --scores "${rates[@]/#/--at=}" "$1" "$2" >got.json
	run "$PYTHON" "$ORACLE/agreement.py" "$1" "$2" got.json "${@:3}"
	assert_success
	assert_output ''
}

# said A B GOT RATE ...: kv-diff --scores goes to GOT, and to the comparisons that the oracle is to make
said() {
	local rates=("${@:4}")
	kv-diff --json --scores "${rates[@]/#/--at=}" "$1" "$2" >"$3"
	comparisons+=(${comparisons:+--} "$@")
}

# truth IN OUT: what the queries of tokens that are not stored look at, not pooled
truth() {
	kv-score --method lookahead --window 2 --kernel 1 "$1" -o "$2"
}

@test "tau, recall and regret are those of their definitions, for every method against every shape of heads" {
	for shape in "-H 4 -G 4 -E 6 -N 37" "-H 8 -G 2 -E 16 -N 61 -d bf16" "-H 6 -G 3 -E 6 -N 40,0,9 -T 90" "-L 3 -H 8 -G 2 -E 8 -N 90 --ragged"; do
		mksnapshot $shape -w 3 --own 2 --mass --paid --noncausal "chunk=256 first=0" -o x.kv
		truth x.kv truth.kv
		comparisons=()
		while read -r method; do
			scored x "$method" x.kv -o scored.$method
			said truth.kv scored.$method scored.$method.json 0.05 0.1 0.5 1
			kv-evict -q --rate 0.3 --keep-queries scored.$method -o small.$method
			said truth.kv small.$method small.$method.json 0.1
			# scored again, so that there is everything to say
			scored x "$method" small.$method | kv-evict --rate 1 --keep-queries | kv-score --method random -o again.$method
			said truth.kv again.$method again.$method.json 0.2
		done < <(kv-score --list | cut -d ' ' -f 1)
		run "$PYTHON" "$ORACLE/agreement.py" "${comparisons[@]}"
		assert_success
		assert_output ''
	done
}

@test "no method keeps more of the ground truth than the oracle does, which has no regret at all" {
	for shape in "-H 8 -G 2 -E 16 -N 61" "-L 3 -H 12 -G 3 -E 6 -N 97,64,131 -T 140"; do
		mksnapshot $shape -w 3 --own 2 --mass --paid --noncausal "chunk=256 first=0" -o x.kv
		truth x.kv truth.kv
		for rate in 0.1 0.4; do
			kv-evict -q --rate $rate truth.kv | kv-diff --json --scores truth.kv - >oracle.json
			assert_equal "$(json oracle.json '{x["regret"] for l in o["layers"] for x in [o, l, *l["heads"]]}')" "{0.0}"
			assert_equal "$(json oracle.json 'o["kept"] == o["best"] > 0')" True
			all=()
			while read -r method; do
				scored x "$method" x.kv | kv-evict -q --rate $rate | kv-diff --json --scores truth.kv - >$method.json
				all+=("$method.json")
			done < <(kv-score --list | cut -d ' ' -f 1)
			"$PYTHON" -c '
import json, sys
oracle, *methods = (json.load(open(name)) for name in sys.argv[1:])
heads = lambda o: [h for l in o["layers"] for h in l["heads"]]
assert len(methods) > 5
for method in methods:
    for mine, best in zip(heads(method), heads(oracle)):
        if mine["both"] == best["both"]:
            assert mine["kept"] <= best["kept"] == mine["best"], (mine, best)
        assert mine["regret"] >= 0 and mine["kept"] <= mine["best"]
    assert oracle["regret"] == 0 <= method["regret"] <= method["regret_shared"]' oracle.json "${all[@]}"
			assert_equal "$(json random.json 'o["regret"] > 0.1')" True
		done
	done
}

@test "where heads share the budget of their layer, the oracle that shares has no regret, and one that does not has some" {
	mksnapshot -L 3 -H 12 -G 3 -E 6 -N 97,64,131 -T 140 -w 3 --own 2 -o x.kv
	truth x.kv truth.kv
	kv-evict -q --policy ada --alpha 0 --rate 0.2 truth.kv -o ada.kv
	agrees truth.kv ada.kv 0.1
	assert_equal "$(json got.json '[(x["regret"], x["regret_shared"]) for x in [o, *o["layers"]]]')" "[(0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]"
	kv-evict -q --rate 0.2 truth.kv -o uniform.kv
	agrees truth.kv uniform.kv 0.1
	assert_equal "$(json got.json 'o["regret"] == 0 < o["regret_shared"], o["best"] < o["best_shared"]')" "(True, True)"
}

@test "scores and themselves: tau 1, recall 1; a choice of all rows keeps all; exactly" {
	mksnapshot -H 8 -G 4 -E 16 -N 3000 --ragged --own 2 -o x.kv
	truth x.kv a.kv
	kv-diff --json --scores --at 0.01 --at 100% a.kv - <a.kv >got.json
	assert_equal "$(json got.json '[o[k] for k in ("tau", "recall", "kept", "best", "only_a", "only_b")]')" "[1.0, [1.0, 1.0], 1.0, 1.0, 0, 0]"
	run -0 kv-diff --scores a.kv a.kv
	assert_line --regexp '^ +[0-9]+ +0 +0 +1\.0000 +100\.00%    all$'
	refute_line --regexp 'regret'
}

@test "ties: few values, all the same, infinite ones; rows of equal scores are ranked as kv-evict does" {
	for _ in $(seq 300); do echo $((RANDOM % 3)); done >few
	sed 's/2/inf/' few >infinite
	tac few | sed 's/0/-inf/' >other
	printf '1\n%.0s' $(seq 300) >same
	for name in few infinite other same; do
		mksnapshot -N 150 --scores $name -o $name.kv
	done
	for pair in "few infinite" "few other" "infinite few" "infinite other" "other few" "few same" "same few" "same same"; do
		agrees ${pair% *}.kv ${pair#* }.kv 0.05 0.5
	done
	assert_equal "$(json got.json 'o["tau"], o["recall"]')" "(None, [1.0, 1.0])"
	run -0 kv-diff --scores infinite.kv few.kv
	assert_line --regexp '^\+inf     [1-9][0-9]* rows of a: always kept, in no mass$'
	run -0 kv-diff --scores --by head same.kv few.kv
	assert_line --regexp '^ +150 +0 +0 +- +[0-9.]+%      1     1$'
}

@test "what is kept are the rows that a recall at that rate is about" {
	mksnapshot -H 8 -G 2 -E 16 -N 400 -w 3 --own 2 -o x.kv
	truth x.kv truth.kv
	kv-score --method knorm x.kv -o scored.kv
	kv-diff --json --scores --at 0.13 truth.kv scored.kv >recall.json
	kv-evict --rate 0.13 truth.kv -o best.kv
	kv-evict --rate 0.13 scored.kv -o small.kv
	kv-diff --json best.kv small.kv >rows.json
	assert_equal "$(json recall.json 'round(o["recall"][0], 12)')" "$(json rows.json 'round(o["both"] / (o["both"] + o["only_a"]), 12)')"
}

@test "sliding windows, layers without scores, rows that only the second one has" {
	mksnapshot -L 3 -H 8 -G 2 -E 8 --sees 40 -N 90 -w 3 --own 2 -o x.kv
	truth x.kv truth.kv
	kv-score --method keydiff x.kv -o scored.kv
	agrees truth.kv scored.kv 0.1
	kv-evict -q --rate 0.2 scored.kv -o small.kv
	agrees truth.kv small.kv 0.1
	strip sCOR truth.kv some.kv 1
	agrees some.kv scored.kv 0.1
	assert_equal "$(json got.json '[l["tau"] is None for l in o["layers"]]')" "[False, True, False]"
	agrees some.kv small.kv 0.1
	assert_equal "$(json got.json '[l["regret"] is None for l in o["layers"]]')" "[False, True, False]"
	run -0 kv-diff --scores some.kv small.kv
	assert_line --regexp '^ +[0-9]+ +[0-9]+ +0 +- +- +- +-      1$'
	# the smaller one has the scores, and is the reference
	kv-evict -q --rate 0.5 --keep-queries scored.kv | kv-score --method lookahead --kernel 1 -o few.kv
	agrees few.kv scored.kv 0.1
	assert_equal "$(json got.json 'o["only_a"], o["only_b"] > 0, o["kept"]')" "(0, True, 1.0)"
}

@test "a text that went on has rows that count nowhere, and a selection of tokens is compared" {
	seq 1 80 | kv-prefill -m "$DEMO" --ids --observe 8 -o x.kv
	kv-score --method snapkv --kernel 1 x.kv -o truth.kv
	kv-score --method knorm x.kv | kv-evict --rate 0.4 | kv-prefill -m "$DEMO" --ids -r - -o longer.kv <(seq 3 20)
	agrees truth.kv longer.kv 0.1
	assert_equal "$(json got.json 'o["tokens"], o["only_b"], o["infinite"]')" "('continued', 144, 64)"
	seq 1 80 | kv-prefill -m "$DEMO" --ids --select 'tsp layer=2' -o tsp.kv
	agrees truth.kv tsp.kv 0.1
	assert_equal "$(json got.json '[l["only_a"] > 0 for l in o["layers"]]')" "[False, False, False, True]"
}

@test "scores below 0 are no mass: tau and recall are told, and without these it is refused" {
	mksnapshot -N 40 -w 3 -o x.kv
	kv-score --method knorm x.kv -o knorm.kv
	kv-score --method random x.kv | kv-evict --rate 0.5 -o small.kv
	kv-score --method random small.kv -o again.kv
	agrees knorm.kv again.kv 0.1
	run -0 kv-diff --scores knorm.kv again.kv
	assert_line 'below 0  scores of a, first in layer 0: they are no mass'
	refute_line --regexp 'regret'
	run -1 --separate-stderr kv-diff --scores knorm.kv small.kv
	assert_equal "$output" ""
	assert_equal "$stderr" "kv-diff: knorm.kv: layer 0 has scores below 0 (knorm), which are no mass that rows keep, and small.kv has no \
scores to compare"
}

@test "a reference without scores, other texts, other positions and other models are refused, and nothing is printed" {
	refused() {
		run "-$1" --separate-stderr kv-diff --scores "${@:3}"
		assert_equal "$output" ""
		assert_regex "$stderr" "$2"
	}
	seq 1 60 | kv-prefill -m "$DEMO" --ids --observe 4 -o x.kv
	kv-score --method knorm x.kv -o a.kv
	refused 1 'x.kv has no scores, and is the reference: run kv-score first' x.kv a.kv
	{ seq 1 30; seq 300 329; } | kv-prefill -m "$DEMO" --ids -o other.kv
	refused 1 'are of different texts, from token 30 on' a.kv other.kv
	kv-evict --rate 0.5 --positions compact a.kv -o compact.kv
	refused 5 'renumbered positions' a.kv compact.kv
	mksnapshot -o model.kv
	refused 4 'are not of one model' a.kv model.kv
	head -c 20000 a.kv >cut.kv
	refused 3 'cut.kv: .*truncated' a.kv cut.kv
	refused 3 'cut.kv: .*truncated' cut.kv a.kv
	refused 2 'only one of the snapshots can be standard input' - -
	refused 2 'want two snapshots' a.kv
	refused 2 "--at: '0' is not a share" --at 0 a.kv a.kv
	refused 2 "--at: '110%' is not a share" --at 110% a.kv a.kv
	local many
	mapfile -t many < <(seq -f '--at=0.%g' 17)
	refused 2 '--at: 17 rates, at most 16' "${many[@]}" a.kv a.kv
	refused 2 '--scores compares neither keys nor values' --exit-code a.kv a.kv
	refused 2 '--retrieve compares no snapshots' --retrieve 'fier budget=9' a.kv
	run -2 --separate-stderr kv-diff --at 0.1 a.kv a.kv
	assert_regex "$stderr" '--at: of what\? Give --scores, too'
}

@test "a score that is not a number is damage, in either snapshot" {
	mksnapshot -N 40 --scores random -o a.kv
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import sections
found = sections.read("a.kv")
sections.write("nan.kv", [(s, c[:192] + b"\0\0\xc0\x7f" + c[196:] if s.type == "sCOR" else c) for s, c in found])' "$BATS_TEST_DIRNAME/bin"
	for order in "a.kv nan.kv" "nan.kv a.kv"; do
		run -3 --separate-stderr kv-diff --scores $order
		assert_equal "$output" ""
		assert_regex "$stderr" 'nan.kv: .*sCOR'
	done
}

@test "every key of --json --scores is explained in the page" {
	mksnapshot -N 40 --scores random -o a.kv
	kv-diff --json --scores a.kv a.kv >got.json
	run "$PYTHON" -c '
import re, sys
page = set(re.findall(r"\w+", open(sys.argv[1]).read()))
print(*sorted(set(re.findall(r"\"(\w+)\":", open("got.json").read())) - page))' "$ROOT/man/kv-diff.1"
	assert_success
	assert_output ''
}

#!/usr/bin/env bats
# kv-evict's policies that have one budget for all layers: global, composite, cake

load budgets

@test "global: the rows of all layers compete" { policy global; }

@test "composite: the best rows of a layer's KV heads compete as one, and its heads keep equally many" {
	mksnapshot -L 3 -H 6 -G 3 -E 4 -N 97,97,97,64,64,64,131,131,131 -T 140 --scores random -o layers.kv
	kv-score --method random even.kv | kv-evict --budget 60 | kv-score --method random -s 7 -o heads.kv
	for name in even layers heads ties window; do
		for options in "--budget 24" "--rate 0.4" "--budget 40 --sink 3 --recent 5" "--rate 0.3 --since 60 --recent 4" \
		    "--rate 0.2 --of tokens" "--rate 0.3 --skip-layers 0,2" "--rate 0.01" "--rate 0.03 --recent 9" "--rate 1"; do
			# from 60 on heads have different numbers of rows in these
			[[ $name$options = @(layers|heads)*since* ]] || try $name --policy composite $options
		done
	done
	try even --policy composite --select layer --rate 0.3 --sink 2
	try window --policy composite --select layer --budget 20
	judge $(((3 * 9 + 8) * 20 + 8 * 9 + 40))
	kv-evict --policy KVCompose --rate 0.3 even.kv -o a.kv
	kv-evict --policy composite --rate 0.3 <even.kv | cmp a.kv -
	run "$PYTHON" -c "
import sys; sys.path.insert(0, '$ROOT/tests/format'); import kvread
with open('a.kv', 'rb') as f: rows = [l.rows for l in kvread.read(f).layers]
print(all(len(set(n)) == 1 for n in rows), len({n[0] for n in rows}) > 2, rows[0][0] == max(n[0] for n in rows), sum(map(sum, rows)))"
	assert_output "True True True $((4 * 145))" # a rate of 0.3 of 5 x 97 composite tokens
}

@test "composite: what it cannot do is refused, with the numbers" {
	run -2 --separate-stderr kv-evict --policy composite --budget 9 ragged.kv -o y.kv
	assert_regex "$stderr" '^kv-evict: layer 0 KV heads 0 and 1 have [0-9]+ and [0-9]+ rows: with policy composite they keep equally many$'
	run -2 --separate-stderr kv-evict --policy composite --budget 9 --select chunk=5 even.kv -o y.kv
	assert_equal "$stderr" "kv-evict: --select chunk=5: not with policy composite, which counts rows: use --select layer"
	run -2 --separate-stderr kv-evict --policy composite --budget 9 --head-mask mask.tsv even.kv -o y.kv
	assert_equal "$stderr" "kv-evict: --head-mask: not with composite, where heads depend on each other"
	# 5 layers, 4 KV heads, 6 of 97 rows of each always kept
	run -2 --separate-stderr kv-evict --policy composite --rate 0.06 --small refuse window.kv -o y.kv
	assert_equal "$stderr" "kv-evict: a budget of 116 of all 1940 rows is too small: 120 are always kept"
	run -0 --separate-stderr kv-evict --policy composite --rate 0.06 window.kv -o y.kv
	assert_equal "$stderr" "kv-evict: the budget is smaller than what is always kept: the cache keeps 4 more"
	assert_equal "$(see y.kv '[l.rows for l in s.layers]')" "[6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6]"
	# a layer that wins nothing keeps one row of each KV head
	printf '%s\n' 9 8 7 6 5 4 3 2 1 0 2 1 >low
	mksnapshot -L 2 -H 2 -G 2 -E 4 -N 3 --scores low -o x.kv
	kv-evict -q --policy composite --rate 0.17 x.kv -o y.kv
	assert_equal "$(see y.kv '[l.rows for l in s.layers]')" "[1, 1] [1, 1]"
	run -2 --separate-stderr kv-evict --policy composite --rate 0.17 --small refuse x.kv -o z.kv
	assert_equal "$stderr" "kv-evict: a budget of 2 of all 12 rows is too small: 4 are always kept"
	# -inf beside +inf
	printf '%s\n' inf inf 0 -inf -inf -inf >infinite
	mksnapshot -L 1 -H 2 -G 2 -E 4 -N 3 --scores infinite -o x.kv
	kv-evict -q --policy composite --rate 0.4 x.kv -o y.kv
	assert_equal "$(see y.kv '[l.rows for l in s.layers]')" "[2, 2]"
	refute [ -e z.kv ]
}

# spread_of NAME TO "ENTROPY VARIANCE" ...: TO.kv is NAME.kv, and the scores of each layer have this
# spread
spread_of() {
	local name=$1 to=$2 labels=() pair
	shift 2
	for pair; do
		labels+=("mine entropy=${pair% *} since=0 variance=${pair#* }")
	done
	"$PYTHON" "$ROOT/tests/bin/labelscores.py" "$name.kv" "$to.kv" "${labels[@]}"
}

@test "cake: the layers share one budget by the spread of their attention, and its total is exact" {
	mksnapshot -L 3 -H 6 -G 3 -E 4 -N 97,97,97,64,64,64,131,131,131 -T 140 --scores random -o layers.kv
	for name in even ties window; do
		spread_of $name $name.spread '340.5 0.25' '12 0.031' '1e3 1.5' '700 0.6' '0.5 2e-4'
	done
	for name in ragged layers; do spread_of $name $name.spread '100 0.1' '90 0.4' '300 0.01'; done
	for name in even.spread ragged.spread ties.spread window.spread layers.spread; do
		for options in "--budget 24" "--rate 0.4" "--budget 40 --sink 3 --recent 5" "--rate 0.3 --since 60 --recent 4" "--rate 0.2 --of tokens" \
		    "--rate 0.3 --skip-layers 0,2" "--rate 0.01" "--rate 0.03 --recent 9" "--rate 1" "--rate 0.9" "--budget 50 --tau1 1.6 --tau2 0.4" \
		    "--budget 50 --tau1 0.001 --tau2 0.02" "--budget 80 --tau1 1000 --tau2 1e9"; do
			try $name --policy cake $options
		done
	done
	try even.spread --policy cake --select layer --rate 0.3 --sink 2
	# a preference of 0, and none at all
	spread_of even some0 '0 0.25' '12 0' '1e3 1.5' '700 0.6' '0.5 2e-4'
	for rate in 0.05 0.3 0.8; do try some0 --policy cake --rate $rate; done
	spread_of even all0 '0 0' '12 0' '0 3' '0 0' '0 0'
	try all0 --policy cake --rate 0.31
	judge $(((20 * 3 + 9 * 2) * 13 + 20 * 5))
	for name in 0.05 1; do
		kv-evict -q --policy cake --budget 30 --tau1 $name layers.spread.kv -o y.kv
		assert_equal "$(see y.kv 'sum(sum(l.rows) for l in s.layers)')" $((9 * 30))
	done
}

@test "cake: what it cannot do is refused, with the numbers" {
	run -2 --separate-stderr kv-evict --policy cake --budget 9 even.kv -o no.kv
	assert_equal "$stderr" "kv-evict: layer 0 has scores without entropy and variance, which policy cake needs: make them with kv-score --method cake"
	for pair in '-1 2' 'nan 2' '1 inf' '1 0x' '1 1e999'; do
		spread_of even wrong '1 1' "$pair" '1 1' '1 1' '1 1'
		run -2 --separate-stderr kv-evict --policy cake --budget 9 wrong.kv -o no.kv
		assert_regex "$stderr" '^kv-evict: layer 1 has scores without entropy and variance'
		kv-evict -q --policy cake --budget 9 --skip-layers 1 wrong.kv -o /dev/null
	done
	spread_of window same '1 1' '1 1' '1 1' '1 1' '1 1'
	run -2 --separate-stderr kv-evict --policy cake --rate 0.06 --small refuse same.kv -o no.kv
	assert_equal "$stderr" "kv-evict: a budget of 25 rows, counted in one KV head of each layer, is too small: 30 are always kept"
	run -0 --separate-stderr kv-evict --policy cake --rate 0.06 same.kv -o small.kv
	assert_equal "$stderr" "kv-evict: the budget is smaller than what is always kept: the cache keeps 20 more"
	run -2 --separate-stderr kv-evict --policy cake --budget 9 --select chunk=5 same.kv -o no.kv
	assert_equal "$stderr" "kv-evict: --select chunk=5: not with policy cake, which counts rows: use --select layer"
	run -2 --separate-stderr kv-evict --policy cake --budget 9 --head-mask mask.tsv same.kv -o no.kv
	assert_equal "$stderr" "kv-evict: --head-mask: not with cake, where heads depend on each other"
	for option in tau1 tau2; do
		run -2 --separate-stderr kv-evict --policy cake --budget 9 --$option 0 same.kv -o no.kv
		assert_equal "$stderr" "kv-evict: --$option: 0 is not above 0"
		run -2 --separate-stderr kv-evict --policy global --budget 9 --$option 2 same.kv -o no.kv
		assert_equal "$stderr" "kv-evict: --$option: policy global does not use it"
	done
	refute [ -e no.kv ]
}

@test "global reads a file and a pipe alike, and may leave a head without rows" {
	kv-evict --policy global --rate 0.1 window.kv -o a.kv
	kv-evict --policy global --rate 0.1 <window.kv | cmp a.kv -
	cat window.kv | kv-evict --policy global --rate 0.1 - | cmp a.kv -
	echo 9 9 9 1 1 1 2 2 2 0 0 0 >s
	mksnapshot -L 1 -H 4 -G 4 -N 3 --scores s -o x.kv
	kv-evict --policy global --budget 1 x.kv -o y.kv
	assert_equal "$(see y.kv 's.layers[0].rows')" "3 0 1 0"
}

@test "what comes through a pipe waits in TMPDIR, and leaves nothing there" {
	mkdir -p waiting
	cat even.kv | TMPDIR=$PWD/waiting kv-evict --policy global --rate 0.1 -o a.kv
	assert_equal "$(ls -A waiting)" ""
	export TMPDIR=$PWD/nowhere
	run -1 --separate-stderr bash -c 'cat even.kv | kv-evict --policy global --rate 0.1 >/dev/null'
	assert_equal "$stderr" "kv-evict: a temporary file in $PWD/nowhere: No such file or directory"
	kv-evict --policy global --rate 0.1 even.kv | cmp a.kv -
}

@test "global over compact positions reads the input three times and leaves the same rows" {
	kv-evict --policy global --rate 0.2 even.kv -o a.kv
	cat even.kv | kv-evict --policy global --rate 0.2 --positions compact -o b.kv
	assert_equal "$(see b.kv '[l.rows for l in s.layers]')" "$(see a.kv '[l.rows for l in s.layers]')"
	assert_equal "$(see b.kv '[s.array(l, "values", g).tolist() for l in range(5) for g in range(4)]')" \
	    "$(see a.kv '[s.array(l, "values", g).tolist() for l in range(5) for g in range(4)]')"
}

@test "global: what is always kept in all heads together must fit, or is all that stays" {
	run -0 --separate-stderr kv-evict --policy global --rate 0.06 window.kv -o y.kv
	assert_equal "$stderr" "kv-evict: the budget is smaller than what is always kept: the cache keeps 4 more"
	assert_equal "$(see y.kv '[l.rows for l in s.layers]')" "[6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6]"
	run -2 --separate-stderr kv-evict --policy global --rate 0.06 --small refuse window.kv -o y.kv
	assert_equal "$stderr" "kv-evict: a budget of 116 of all 1940 rows is too small: 120 are always kept"
	kv-evict --policy global --rate 0.062 window.kv -o y.kv
	assert_equal "$(see y.kv '[l.rows for l in s.layers]')" "[6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6] [6, 6, 6, 6]"
}

@test "a snapshot without scores, or a damaged one, is refused by global too" {
	mksnapshot -L 2 -N 40 -o none.kv
	run -1 --separate-stderr kv-evict --policy global --budget 3 none.kv -o y.kv
	assert_equal "$stderr" "kv-evict: none.kv: layer 0 has no scores: run kv-score first"
	size=$(stat -c %s even.kv)
	for n in 1000 $((size / 2)) $((size - 1)); do
		head -c $n even.kv >cut.kv
		run -3 --separate-stderr kv-evict --policy global --budget 3 cut.kv -o z.kv
		assert_regex "$stderr" truncated
		run -3 --separate-stderr bash -c 'kv-evict --policy global --budget 3 - <cut.kv >/dev/null'
		assert_regex "$stderr" truncated
	done
	refute [ -e z.kv ]
}

#!/usr/bin/env bats
# kv-evict's policies: budgets that differ by layer and KV head, head masks, rows that are not ranked

load budgets

@test "uniform: every KV head keeps its budget" { policy uniform; }
@test "pyramid: the layers' budgets fall as in KVCache-Factory" { policy pyramid; }
@test "pyramid-exact: the line of the pyramid, and the mean over the layers that are not skipped is the budget" {
	policy pyramid-exact
	# 30 layers, 64 rows, 8 of them a window: the authors' integers keep 16 % more
	run -0 --separate-stderr kv-evict -v --budget 64 --policy pyramid-exact deep.kv -o out.kv
	assert_equal "$stderr" "kv-evict: 1920 of 9000 rows kept, $((1920 * 2 * 4 * 4)) of $((9000 * 2 * 4 * 4)) bytes of keys and values"
	run -0 --separate-stderr kv-evict -v --budget 64 --policy pyramid-exact --skip-layers 0-1,17 deep.kv -o out.kv
	assert_equal "${stderr%% of*}" "kv-evict: $((27 * 64 + 3 * 300))"
}
@test "a policy that gives the layers more than their budgets together says so once, with the figures" {
	# B = 56: from 112 - 2 down to 2 in steps of floor(108 / 29) = 3: 110 - 43.5 + 8 rows on average
	warning='policy pyramid gives KV heads 74.5 rows on average where the budget is 64.0, 16.4 % more: pyramid-exact keeps to it'
	run -0 --separate-stderr kv-evict --budget 64 --policy pyramid deep.kv -o out.kv
	assert_equal "$stderr" "kv-evict: $warning"
	run -0 --separate-stderr kv-evict --budget 64 --policy pyramid --positions compact deep.kv -o out.kv
	assert_equal "$stderr" "kv-evict: $warning"
	run -0 --separate-stderr kv-evict -q --budget 64 --policy pyramid deep.kv -o out.kv
	assert_equal "$stderr" ""
	run -0 --separate-stderr kv-evict --budget 64 --policy ada-pyramid deep.kv -o out.kv
	assert_regex "$stderr" ' 16.4 % more: ada-pyramid-exact keeps to it$'
	# what fits into the budget counts nowhere, and half a percent is no warning
	for words in "--budget 299 --policy pyramid" "--budget 64 --policy pyramid-exact" "--rate 0.37 --policy pyramid-kvpress"; do
		# shellcheck disable=SC2086 # words
		run -0 --separate-stderr kv-evict $words deep.kv -o out.kv
		assert_equal "$stderr" ""
	done
	# while a prompt comes, chunk by chunk, and while text is generated
	seq 5 700 >ids
	model=$BATS_TEST_TMPDIR/30
	random_model "$model" --layers 30 --hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --ffn 32
	policy='budget=64 policy=pyramid'
	run -0 --separate-stderr kv-prefill -m "$model" --ids --observe 8 --score 'snapkv window=8' --evict "$policy" -o a.kv ids
	assert_equal "$stderr" "kv-prefill: $warning"
	run -0 --separate-stderr kv-prefill -m "$model" --ids --observe 8 -c 350 --score 'snapkv window=8' --evict "$policy" -o b.kv ids
	assert_equal "$stderr" "kv-prefill: $warning"
	run -0 --separate-stderr kv-decode -m "$model" --ids --ignore-eos -n 3 --score 'snapkv window=8' --evict "$policy" a.kv
	assert_regex "$stderr" '^kv-decode: policy pyramid gives KV heads'
	# and the same layer by layer in the other rule: the mean is the budget
	kv-prefill -m "$model" --ids --score 'snapkv window=8' --evict "$policy-exact" -o a.kv ids
	kv-prefill -m "$model" --ids --observe 8 ids | kv-score --method snapkv | kv-evict --budget 64 --policy pyramid-exact -o b.kv
	assert_equal "$(logical a.kv)" "$(logical b.kv)"
	assert_equal "$(see a.kv 'sum(l.rows[0] for l in s.layers)')" 1920
}
@test "pyramid-kvpress: the layers' budgets fall as in kvpress" { policy pyramid-kvpress; }
@test "ada: KV heads share the budget of their layer by their scores" { policy ada; }
@test "ada-kvpress: all but the safe rows of a layer compete" { policy ada-kvpress; }
@test "ada-pyramid: KV heads share what the pyramid gives to their layer" { policy ada-pyramid; }
@test "ada-pyramid-exact: the same of the exact pyramid" { policy ada-pyramid-exact; }
@test "names of papers are accepted, the snapshot has ours; --list names the policies with their options" {
	while read -r name policy; do
		kv-evict -q --budget 24 --policy "$name" even.kv -o a.kv
		kv-evict -q --budget 24 --policy "$policy" even.kv | cmp a.kv -
	done <<-'END'
		PyramidKV pyramid
		AdaKV ada
		ada-kv ada
		Ada-SnapKV ada
		ada-pyramidkv ada-pyramid
		GLOBAL global
	END
	run -0 kv-evict --list
	assert_equal "$(cut -d ' ' -f 1 <<<"$output")" "$(kv-evict --list-options | awk -F '\t' '$2 == "policy" { print $5 }' |
		tr -s ' ,' '\n' | grep -vx or)"
	assert_line --regexp '^ada  .* \(= adakv ada-kv ada-snapkv\) \[alpha normalize\]$'
}

@test "--alpha is the share of its budget that a KV head has for sure" {
	for alpha in 0 0.3 0.5 1; do
		for name in even ragged ties; do
			try $name --budget 20 --policy ada --alpha $alpha
			try $name --budget 21 --policy ada-kvpress --alpha $alpha
		done
	done
	judge 392
	kv-evict --budget 20 --policy ada --alpha 1 even.kv -o a.kv
	kv-evict --budget 20 even.kv -o b.kv
	assert_equal "$(logical a.kv)" "$(logical b.kv)"
}

@test "--normalize weighs KV heads by the part of their scores that the budget holds" {
	try ties --budget 20 --policy ada --normalize
	try window --budget 20 --policy ada --normalize
	judge 40
	run -2 --separate-stderr kv-evict --policy ada --normalize --budget 20 even.kv
	assert_equal "$stderr" "kv-evict: layer 0 KV head 0: scores below 0 cannot be normalized"
}

@test "--select layer keeps the same rows in all KV heads of a layer, by the mean of their scores" {
	for name in even ties window; do
		try $name --budget 20 --select layer
		try $name --rate 0.3 --sink 2 --recent 3 --select layer --policy pyramid
	done
	judge 120
	kv-evict --budget 20 --select layer even.kv -o out.kv
	[ "$(kv-info --positions out.kv | grep '^1' | cut -d ' ' -f 3- | sort -u | wc -l)" = 1 ]
	run -2 --separate-stderr kv-evict --budget 20 --select layer ragged.kv
	assert_equal "$stderr" "kv-evict: layer 0 KV heads 0 and 1 have different rows: they cannot keep the same ones"
}

@test "adaptive and global policies meet the total of the uniform one exactly" {
	for name in even ragged ties; do
		for budget in 11 50; do
			total=$(kv-evict -v --budget $budget $name.kv 2>&1 >/dev/null | cut -d ' ' -f 2)
			for policy in ada ada-kvpress global; do
				run -0 --separate-stderr kv-evict -v --budget $budget --policy $policy $name.kv -o out.kv
				assert_regex "$stderr" "^kv-evict: $total of "
			done
		done
	done
	# a third of 1940 rows; each head alone would be rounded down
	run -0 --separate-stderr kv-evict -v --rate 0.3333333333 --policy global even.kv -o out.kv
	assert_regex "$stderr" "^kv-evict: 646 of 1940 "
}

@test "--head-mask: streaming heads keep the ends of the text, the others all rows, without scores" {
	mksnapshot -L 5 -H 8 -G 4 -E 4 -N 1300 --mass -w 2 -o plain.kv
	for options in "" "--sparsity 0" "--sparsity 0.35" "--sparsity 1" "--sink 4 --recent 16" "--since 60 --sink 40 --recent 9" \
	    "--skip-layers 0-3"; do
		try plain --head-mask mask.tsv $options
	done
	judge 140
	kv-evict --head-mask mask.tsv --keep-queries plain.kv -o out.kv
	assert_equal "$(see out.kv '[l.rows for l in s.layers]')" \
	    "[1300, 1152, 1300, 1152] [1300, 1300, 1300, 1152] [1152, 1152, 1152, 1152] [1300, 1300, 1300, 1300] [1152, 1152, 1300, 1300]"
	run -0 "$PYTHON" "$ORACLE/contract.py" content plain.kv out.kv
	assert_equal "$(see out.kv '[l.queries.data for l in s.layers]')" "$(see plain.kv '[l.queries.data for l in s.layers]')"
	kv-evict --head-mask mask.tsv <plain.kv | kv-evict --head-mask mask.tsv -o twice.kv
	assert_equal "$(logical twice.kv)" "$(logical out.kv)"
}

@test "--head-mask with a budget: the full heads follow it, and need scores" {
	for name in even ties window; do
		try $name --head-mask mask.tsv --budget 20 --sink 2 --recent 7
		try $name --head-mask mask.tsv --rate 0.3 --sparsity 0.5 --policy pyramid --sink 1 --recent 3
	done
	judge 120
	mksnapshot -L 5 -H 8 -G 4 -E 4 -N 40 -o none.kv
	run -1 --separate-stderr kv-evict --head-mask mask.tsv --budget 5 none.kv -o y.kv
	assert_equal "$stderr" "kv-evict: none.kv: layer 0 has no scores: run kv-score first"
}

@test "a head mask that is no table, or of another model, is refused with file, line and column" {
	printf '1\t0\n1\tfull\n' >bad.tsv
	run -3 --separate-stderr kv-evict --head-mask bad.tsv even.kv
	assert_equal "$stderr" "kv-evict: bad.tsv: line 2 column 2: 'full' is not a number"
	printf '1\t0\n1\n' >bad.tsv
	run -3 --separate-stderr kv-evict --head-mask bad.tsv even.kv
	assert_equal "$stderr" "kv-evict: bad.tsv: line 2 column 2: the lines before have 2 numbers, this one 1"
	: >bad.tsv
	run -3 --separate-stderr kv-evict --head-mask bad.tsv even.kv
	assert_equal "$stderr" "kv-evict: bad.tsv: line 1 column 1: there are no numbers"
	run -3 --separate-stderr kv-evict --head-mask mask.tsv ragged.kv -o y.kv
	assert_equal "$stderr" "kv-evict: mask.tsv: 5 lines of 4 numbers, but the model has 3 layers of 3 KV heads"
	run -1 --separate-stderr kv-evict --head-mask nowhere.tsv even.kv
	assert_regex "$stderr" "nowhere.tsv"
}

@test "--budgets: each KV head of each layer has its own, in rows or as a share of its rows" {
	printf '%s\n' '# made up' '12 25% 0.5 97' '40,9,0.3,1000' '' '0.1 20 1e-1 100%' '30 31 32 33 # rows' '0.25 0.5 0.75 1.' >budgets.tsv
	grep -v '^#' budgets.tsv | sed 's/#.*//; s/,/ /g; /^$/d; s/1e-1/0.1/; s/1\.$/1.0/' >plain.tsv
	for name in even ties window; do
		for options in "" "--sink 3 --recent 5" "--since 40 --recent 4" "--skip-layers 0,2" "--of tokens"; do
			kv-evict -q --budgets budgets.tsv $options $name.kv -o "$BATS_TEST_TMPDIR/$((++number)).kv"
			echo "$name.kv $BATS_TEST_TMPDIR/$number.kv --budgets plain.tsv $options" >>"$BATS_TEST_TMPDIR/runs"
		done
	done
	judge 300
	for ((l = 0; l < 5; l++)); do echo 20 20 20 20; done >same.tsv
	kv-evict --budgets same.tsv even.kv -o a.kv
	kv-evict --budget 20 even.kv -o b.kv
	assert_equal "$(logical a.kv)" "$(logical b.kv)"
	# a budget of nothing leaves a row, as a rate of few rows does
	for ((l = 0; l < 5; l++)); do echo 0 0.0 0% 0.001; done >none.tsv
	kv-evict -q --budgets none.tsv even.kv -o out.kv
	assert_equal "$(see out.kv '[l.rows for l in s.layers][0]')" "1 1 1 1"
	assert_regex "$(see a.kv 's.provenance[-1]["options"]["budgets"]')" '^[0-9a-f]{32}$'
}

@test "a table of budgets that is none, or of another model, and what does not go with it, is refused" {
	local word
	for word in 1.5 101% -3 +3 -0.1 x 3x nan inf 0x10 4294967295 1e400 % .; do
		printf '1 2 3 4\n1 2 %s 4\n' "$word" >bad.tsv
		run -3 --separate-stderr kv-evict --budgets bad.tsv even.kv
		assert_equal "$stderr" "kv-evict: bad.tsv: line 2 column 3: '$word' is neither a number of rows nor a share such as 0.25 or 25%"
	done
	printf '1 %0100d\n' 7 >bad.tsv
	run -3 --separate-stderr kv-evict --budgets bad.tsv even.kv
	assert_regex "$stderr" "^kv-evict: bad.tsv: line 1 column 2: '0+' is neither"
	printf '1 2 3\n' >bad.tsv
	run -3 --separate-stderr kv-evict --budgets bad.tsv even.kv -o refused.kv
	assert_equal "$stderr" "kv-evict: bad.tsv: 1 lines of 3 numbers, but the model has 5 layers of 4 KV heads"
	for ((l = 0; l < 5; l++)); do echo 20 20 20 20; done >same.tsv
	for word in "--budget 3" "--rate 0.5" "--policy ada" "--policy pyramid" "--policy global" "--select layer" "--select chunk=5" "--head-mask mask.tsv"; do
		run -2 --separate-stderr kv-evict --budgets same.tsv $word even.kv -o refused.kv
		assert_regex "$stderr" '^kv-evict: --budgets: not with '
	done
	refute [ -e refused.kv ]
}

@test "--select chunk: chunks of rows stay or go as a whole, the same in all KV heads, by the mean of their scores" {
	local name options chunk
	for name in even ties window; do
		for chunk in 1 7 20 98; do
			try $name --select chunk=$chunk --rate 0.3 --sink 2 --recent 3
			try $name --select chunk=$chunk --rate 0.4 --since 40 --skip-layers 1
		done
		for options in "--budget 40" "--rate 0.2 --of tokens" "--rate 0.5 --policy pyramid"; do
			try $name --select chunk=5 $options
		done
	done
	run "$PYTHON" "$ORACLE/budgets.py" <"$BATS_TEST_TMPDIR/runs"
	assert_output "660 heads"
	# -inf beside +inf
	for ((i = 0; i < 40; i++)); do ((i % 20 == 3)) && echo -inf || { ((i % 20 == 4)) && echo inf || echo $i; }; done >both
	mksnapshot -L 1 -H 2 -G 2 -E 4 -N 20 --scores both -o both.kv
	kv-evict -q --select chunk=5 --budget 5 both.kv -o out.kv
	assert_equal "$(positions out.kv 0 1)" "0 1 2 3 4"
	kv-evict --select layer --rate 0.4 even.kv -o a.kv
	kv-evict --select chunk=1 --rate 0.4 even.kv -o b.kv
	assert_equal "$(logical a.kv)" "$(logical b.kv)"
	# fewer rows than a chunk: one by one
	kv-evict --select chunk=98 --rate 0.4 even.kv -o b.kv
	assert_equal "$(logical a.kv)" "$(logical b.kv)"
	for options in chunk=0 chunk= chunk=x chunk=-3 chunk=5x chunk=4294967295 chunk; do
		run -2 --separate-stderr kv-evict --rate 0.5 --select $options even.kv
		assert_regex "$stderr" '^kv-evict: --select'
	done
	run -2 --separate-stderr kv-evict --rate 0.5 --select chunk=5 ragged.kv
	assert_equal "$stderr" "kv-evict: layer 0 KV heads 0 and 1 have different rows: they cannot keep the same ones"
}

@test "--select chunk spiky: important chunks of low entropy keep only their best rows, and the budget is exact" {
	local name options words
	for ((i = 0; i < 388; i++)); do ((i % 7)) && echo $((i * i * 7919 % 31)) || echo $((i * 7919 % 5003)); done >peaks
	mksnapshot -L 3 -H 8 -G 4 -E 4 -N 97 --scores peaks -o peaks.kv
	for ((i = 0; i < 40; i++)); do ((i % 20 == 3)) && echo -inf || { ((i % 20 == 4)) && echo inf || echo $((i * 7919 % 101)); }; done >both
	mksnapshot -L 1 -H 2 -G 2 -E 4 -N 20 --scores both -o both.kv
	for name in even ties window peaks both; do
		for words in 'chunk=10 spiky=4' 'chunk=8 spiky=3' 'chunk=12 spiky=1' 'chunk=96 spiky=95' 'chunk=200 spiky=4'; do
			for options in "--budget 24" "--rate 0.3 --sink 2 --recent 3" "--rate 0.6" "--rate 0.4 --since 40" "--rate 0.2 --of tokens" \
			    "--rate 0.5 --policy pyramid" "--budget 3 --recent 9" "--rate 1"; do
				kv-evict -q --select "$words" $options $name.kv -o "$BATS_TEST_TMPDIR/$((++number)).kv"
				echo "$name.kv $BATS_TEST_TMPDIR/$number.kv --select '$words' $options" >>"$BATS_TEST_TMPDIR/runs"
			done
		done
	done
	judge $((5 * 8 * (3 * 20 + 12 + 2)))
	kv-evict -q --select 'chunk=10 spiky=4' --budget 33 peaks.kv -o a.kv
	assert_equal "$(see a.kv 's.layers[0].rows')" "33 33 33 33"
	assert_equal "$(see a.kv 's.provenance[-1]["options"]["select"]')" "chunk=10 spiky=4"
	kv-evict -q --select layer --budget 33 peaks.kv -o b.kv
	assert_not_equal "$(logical a.kv)" "$(logical b.kv)"
	# a chunk that is longer than the text is no chunk
	kv-evict -q --select 'chunk=98 spiky=4' --budget 33 peaks.kv -o a.kv
	assert_equal "$(logical a.kv)" "$(logical b.kv)"
	# by hand: means 28 12 20, and only the first chunk is not even: its row of 190 and three more, the third, and one of the second
	for ((i = 0; i < 30; i++)); do
		((i < 10)) && echo $((i == 3 ? 190 : 10)) || { ((i < 20)) && echo 12 || echo 20; }
	done >hand
	mksnapshot -L 1 -H 1 -G 1 -E 4 -N 30 --scores hand -o hand.kv
	kv-evict --select 'chunk=10 spiky=4' --budget 15 hand.kv -o a.kv
	assert_equal "$(positions a.kv 0 0)" "0 1 2 3 10 $(seq -s ' ' 20 29)"
	# all chunks have theirs: three rows that the first one went without
	kv-evict --select 'chunk=10 spiky=4' --budget 27 hand.kv -o a.kv
	assert_equal "$(positions a.kv 0 0)" "$(seq -s ' ' 0 6) $(seq -s ' ' 10 29)"
	# two KV heads, 6 of 12 rows: the figures of another program
	printf '%s\n' 9 0 23 14 5 28 19 10 1 24 15 6 29 20 11 2 25 16 7 30 21 12 3 26 >made
	mksnapshot -L 1 -H 2 -G 2 -E 4 -N 12 --scores made -o made.kv
	kv-evict --select 'chunk=5 spiky=2' --rate 0.5 made.kv -o a.kv
	assert_equal "$(positions a.kv 0 0)" "0 5 6 7 8 9"
	for words in 'chunk=5 spiky=5' spiky=3 'chunk=4 spiky=0' 'chunk=4 spiky=-1' 'chunk=4 piky=2' 'chunk=3 spiky' 'layer spiky=3'; do
		run -2 --separate-stderr kv-evict --rate 0.5 --select "$words" even.kv -o refused.kv
		assert_regex "$stderr" '^kv-evict: --select'
	done
	run -2 --separate-stderr kv-evict --threshold 1 --select 'chunk=9 spiky=3' even.kv -o refused.kv
	assert_equal "$stderr" "kv-evict: --threshold: not with --select chunk=9 spiky=3, where rows have a budget"
	refute [ -e refused.kv ]
}

@test "--threshold keeps the rows that score at least so much, however many, and one where none does" {
	for name in even ties window; do
		for options in "--threshold 0.5" "--threshold 7 --sink 3 --recent 5" "--threshold -1000" "--threshold 5 --since 40 --recent 4" \
		    "--threshold 1e9 --skip-layers 0,2" "--threshold 0.4 --select layer" "--threshold 5 --select chunk=7"; do
			try $name $options
		done
	done
	judge 420
	kv-evict -q --threshold 1e9 even.kv -o out.kv
	assert_equal "$(see out.kv '[l.rows for l in s.layers][0]')" "1 1 1 1"
	assert_equal "$(see out.kv 's.provenance[-1]["options"]["threshold"]')" 1000000000.0
	for word in "--budget 3" "--rate 0.5" "--policy ada" "--policy global" "--head-mask mask.tsv" "--of tokens" "--budgets mask.tsv" "--rows few"; do
		run -2 --separate-stderr kv-evict --threshold 1 $word even.kv -o refused.kv
		assert_regex "$stderr" '^kv-evict: --(threshold|of|budgets)'
	done
	for word in x nan inf ''; do
		run -2 --separate-stderr kv-evict --threshold "$word" even.kv -o refused.kv
		assert_regex "$stderr" '^kv-evict: --threshold'
	done
	refute [ -e refused.kv ]
}

@test "rows before --since all stay, and count nowhere" {
	kv-evict --budget 5 --since 90 even.kv -o out.kv
	assert_equal "$(see out.kv '[l.rows for l in s.layers]')" \
	    "[95, 95, 95, 95] [95, 95, 95, 95] [95, 95, 95, 95] [95, 95, 95, 95] [95, 95, 95, 95]"
	# of the 7 rows since 90 half, and 2 of them are the last
	kv-evict --rate 0.5 --since 90 --recent 2 --sink 4 even.kv -o out.kv
	assert_regex "$(positions out.kv 3 1)" "^$(seq -s ' ' 0 89) 9[0-4] 95 96$"
	run -0 --separate-stderr kv-evict --budget 5 --since 97 even.kv -o out.kv
	assert_equal "$(logical out.kv)" "$(logical even.kv)"
}

@test "--of tokens: a layer that has fewer rows keeps as many as the others" {
	mksnapshot -L 2 -N 50,20 -T 100 --scores random -o x.kv
	kv-evict --rate 0.1 --of tokens x.kv -o y.kv
	assert_equal "$(see y.kv 's.layers[0].rows')" "10 10"
	kv-evict --rate 0.1 x.kv -o y.kv
	assert_equal "$(see y.kv 's.layers[0].rows')" "5 2"
	# positions 80 to 99: two of them, and 60 that are not ranked
	mksnapshot -L 2 -N 80 -T 100 --scores random -w 20 -o x.kv
	kv-evict --rate 0.1 --of tokens --since 80 x.kv -o y.kv
	assert_equal "$(see y.kv 's.layers[0].rows')" "62 62"
	try ragged --rate 0.2 --of tokens --since 90
	judge 9
}

@test "skipped layers keep all rows and need no scores" {
	for list in 0,1 0-1 4 0,2-4 0,0; do
		try even --budget 9 --skip-layers $list
	done
	judge 100
	mksnapshot -L 2 -N 40 -o none.kv
	kv-evict --budget 3 --skip-layers 0,1 -q none.kv -o y.kv
	assert_equal "$(logical y.kv)" "$(logical none.kv)"
}

@test "options that cannot be had together, or make no sense, are usage errors" {
	refused=("--budget 3 --policy other" "--policy" "--budget 3 --alpha 0.5" "--budget 3 --policy ada --alpha 1.5"
	    "--budget 3 --policy ada --alpha -0.1" "--budget 3 --policy pyramid --normalize" "--budget 3 --policy ada-kvpress --normalize"
	    "--budget 3 --policy ada --select layer" "--budget 3 --policy global --select layer" "--budget 3 --select query"
	    "--budget 3 --of tokens" "--rate 0.5 --of bytes" "--budget 3 --sparsity 0.5" "--head-mask mask.tsv --sparsity 1.5"
	    "--head-mask mask.tsv --sparsity -1" "--head-mask mask.tsv --sink 0 --recent 0" "--head-mask mask.tsv --budget 9 --policy ada"
	    "--head-mask mask.tsv --budget 9 --policy global" "--head-mask mask.tsv --select layer" "--head-mask mask.tsv --budget 9 --rate 0.1"
	    "--budget 3 --skip-layers 5" "--budget 3 --skip-layers 0,x" "--budget 3 --skip-layers 3-1" "--budget 3 --skip-layers 0,"
	    "--budget 3 --skip-layers -1" "--budget 3 --skip-layers 4096" "--budget 3 --since -1" "--policy global")
	for wrong in "${refused[@]}"; do
		run -2 --separate-stderr kv-evict $wrong even.kv -o refused.kv
		assert_regex "$stderr" '^kv-evict: '
	done
	refute [ -e refused.kv ]
}

@test "the policy and what goes with it stand in the provenance, a mask by its hash" {
	kv-evict --budget 9 --policy ada even.kv -o out.kv
	assert_equal "$(see out.kv 's.provenance[-1]["options"]')" \
	    "{'alpha': 0.2, 'budget': 9, 'policy': 'ada', 'recent': 0, 'sink': 0}"
	kv-evict --head-mask mask.tsv --sparsity 0.5 --since 3 --skip-layers 0 even.kv -o out.kv
	hash=$("$PYTHON" -c 'import xxhash; print(xxhash.xxh3_128_hexdigest(open("mask.tsv", "rb").read()))')
	assert_equal "$(see out.kv 's.provenance[-1]["options"]')" \
	    "{'heads': '$hash', 'recent': 1024, 'since': 3, 'sink': 128, 'skip-layers': '0', 'sparsity': 0.5}"
}

@test "train/headkv.py: scores of query heads become budgets of KV heads, which --budgets keeps" {
	# mean scores 2 4 6 8 and 8 6 4 2 of 40: of 20 rows besides the window all 8 x 20 are given out, or 8 x 4
	echo '{"0-0": [1, 3], "0-1": [4], "0-2": [6], "0-3": [8], "1-0": [8], "1-1": [6, 6], "1-2": [4], "1-3": [2]}' >scores.json
	headkv() { "$PYTHON" "$ROOT/train/headkv.py" scores.json --budget 24 --window 4 --kv-heads 2 "$@"; }
	headkv --beta 1 >even.tsv
	assert_equal "$(cat even.tsv)" $'16\t32\n32\t16'
	assert_equal "$(headkv --beta 5)" $'22\t26\n26\t22'
	assert_equal "$("$PYTHON" "$ROOT/train/headkv.py" scores.json --budget 24 --window 4 --beta 1)" $'12\t20\t28\t36\n36\t28\t20\t12'
	mksnapshot -L 2 -H 4 -G 2 -N 60 --scores random -o x.kv
	kv-evict --budgets even.tsv -o out.kv x.kv
	assert_equal "$(see out.kv '[[len(p) for p in l.positions] for l in s.layers]')" '[16, 32] [32, 16]'
	run -1 headkv --budget 4
	assert_output "headkv.py: want --beta of 1 or more, a budget above the window, and KV heads that divide the query heads"
	echo '{"0-0": [1], "1-1": [2]}' >scores.json
	run -1 headkv
	assert_output "headkv.py: no score of layer 0, query head 1"
	echo '[1' >scores.json
	run -1 headkv
	assert_output --regexp "^headkv.py: scores.json: "
}

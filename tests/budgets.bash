# budgets.bash - the snapshots of budgets*.bats, and the judge of the rows that stay
#
# tests/oracle/budgets.py works out which rows must stay; the figures of the formulas stand in
# tests/unit/methods_budgets.c.

load helper

setup_file() {
	cd "$BATS_FILE_TMPDIR" || return
	mksnapshot -L 5 -H 8 -G 4 -E 4 -N 97 --scores random -o even.kv
	mksnapshot -L 3 -H 6 -G 3 -E 4 -N 97,64,131 -T 140 --ragged --scores random -o ragged.kv
	# few values, so that most rows tie; the same in every layer
	for ((i = 0; i < 388; i++)); do echo $((i * i * 7919 % 11)); done >few
	mksnapshot -L 5 -H 8 -G 4 -E 4 -N 97 --scores few -o ties.kv
	# the last 6 of 97 rows of each head are an observation window
	for ((i = 0; i < 388; i++)); do
		((i % 97 < 91)) && echo $((i * i * 7919 % 1009)) || echo inf
	done >windowed
	mksnapshot -L 5 -H 8 -G 4 -E 4 -N 97 --scores windowed -o window.kv
	for ((i = 0; i < 300; i++)); do
		((i < 292)) && echo $((i * i * 7919 % 1009)) || echo inf
	done >deep
	mksnapshot -L 30 -H 1 -G 1 -E 4 -N 300 --scores deep -o deep.kv
	printf '%s\t%s\t%s\t%s\n' 0.9 0.1 0.5 0.49 1 1 1 0 0.1 0.2 0.3 0.4 0.6 0.6 0.6 0.6 \
	    0 -3 7 0.5 >mask.tsv
}

setup() {
	cd "$BATS_FILE_TMPDIR" || return
}

# try SNAPSHOT OPTION ...: evicts, and notes the run for judge
try() {
	local out=$BATS_TEST_TMPDIR/$((++number)).kv
	kv-evict -q "${@:2}" "$1.kv" -o "$out"
	echo "$1.kv $out ${*:2}" >>"$BATS_TEST_TMPDIR/runs"
}

# judge HEADS: all runs left the rows that they must
judge() {
	run "$PYTHON" "$ORACLE/budgets.py" <"$BATS_TEST_TMPDIR/runs"
	assert_success
	assert_output "$1 heads"
}

# policy NAME OPTION ...: with budgets and rates of all kinds
policy() {
	for name in even ragged ties window; do
		try $name --policy "$@" --budget 24
		try $name --policy "$@" --rate 0.4
		try $name --policy "$@" --budget 40 --sink 3 --recent 5
		try $name --policy "$@" --rate 0.3 --since 60 --recent 4
		try $name --policy "$@" --rate 0.2 --of tokens
		try $name --policy "$@" --rate 0.3 --skip-layers 0,2
	done
	judge 414
}

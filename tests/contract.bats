#!/usr/bin/env bats
# bats file_tags=slow
# The contract that every method of `kv-score --list` keeps under kv-evict's budgets and policies, for heads of any shape
#
# All runs are made once, noted in a table, and judged by tests/oracle/contract.py.

load helper

# shape NAME OPTION ...: a snapshot with all that any method reads
shape() {
	mksnapshot "${@:2}" -w 3 --own 2 --mass --paid --noncausal "chunk=256 first=0" --logits -o "$1.kv"
	kv-info --positions "$1.kv" >"$1.rows"
	shapes+=("$1")
}

# noted SHAPE METHOD OPTION ...: evicts SHAPE.METHOD.kv, and notes which rows are left
noted() {
	local out=$((++number)).rows
	kv-evict -q "${@:3}" "$1.$2.scored" -o out.kv
	kv-info --positions out.kv >"$out"
	echo "$1.rows $out $2 ${*:3}" >>table
}

setup_file() {
	local shapes=() number=0 name method
	cd "$BATS_FILE_TMPDIR" || return
	shape mha -H 4 -G 4 -E 6 -N 37 -d f16
	shape gqa4 -H 8 -G 2 -E 16 -N 61 -d bf16
	shape gqa8 -H 8 -G 1 -E 10 -N 53
	shape holes -H 6 -G 3 -E 6 -N 40,0,9 -T 90
	shape ragged4 -H 12 -G 3 -E 6 -N 97,64,131 -T 140 --ragged
	shape ragged8 -L 3 -H 16 -G 2 -E 8 -N 90 --ragged -d bf16
	kv-score --list | cut -d ' ' -f 1 >methods
	for name in "${shapes[@]}"; do
		while read -r method; do
			scored "$name" "$method" -j 1 "$name.kv" -o "$name.$method.scored"
			for budget in 5 11 24 60; do
				noted "$name" "$method" --budget $budget
			done
			for rate in 0.4 0.77 1; do
				noted "$name" "$method" --rate $rate
			done
			noted "$name" "$method" --budget 12 --sink 4 --recent 5
			noted "$name" "$method" --rate 0.9 --sink 2
		done <methods
	done
	# what each policy does with a budget is in budgets.bats
	kv-evict --help | sed -n 's/^ *--policy NAME *//p' | tr -s ' ,' '\n' | grep -vx or >policies
	while read -r policy; do
		while read -r method; do
			noted gqa8 "$method" --policy "$policy" --budget 24 --sink 3 --recent 4
			noted ragged8 "$method" --policy "$policy" --rate 0.6 --sink 3
			noted holes "$method" --policy "$policy" --rate 1
		done <methods
	done <policies
}

setup() {
	cd "$BATS_FILE_TMPDIR" || return
}

judge() {
	run "$PYTHON" "$ORACLE/contract.py" "$1" table
	assert_success
	assert_output --regexp '^[1-9][0-9]* heads$'
}

@test "a budget is met exactly in every head, or the head keeps all its rows" { judge budget; }
@test "a rate is floor(rows * rate + 1e-9) of every head's own rows" { judge rate; }
@test "rows come out in ascending order, and none that was not there" { judge order; }
@test "sinks and recent positions stay under every method and policy" { judge always; }
@test "a larger budget keeps all that a smaller one keeps" { judge monotone; }

@test "a rate of 1 drops nothing, whatever the policy" { judge identity; }

@test "there is more than one policy" { grep -qx uniform policies && [ "$(wc -l <policies)" -ge 5 ]; }

@test "a rate of 1 changes no logical byte" {
	while read -r method; do
		for name in gqa4 holes ragged4; do
			kv-evict --rate 1 $name.$method.scored -o out.kv
			assert_equal "$(logical out.kv)" "$(logical $name.kv)"
		done
	done <methods
}

@test "rows keep their own keys, values and attention received and paid" {
	while read -r method; do
		for name in mha holes ragged4; do
			in_sample 4 || continue
			kv-evict -q --budget 11 $name.$method.scored -o out.kv
			run -0 "$PYTHON" "$ORACLE/contract.py" content $name.kv out.kv
		done
	done <methods
}

@test "the same input gives the same bytes, through files and through pipes, with any number of threads" {
	while read -r method; do
		kv-evict --rate 0.4 ragged8.$method.scored -o a.kv
		scored ragged8 $method -j 3 <ragged8.kv | kv-evict --rate 0.4 - | cmp a.kv -
	done <methods
}

@test "evicting twice with one budget is evicting once" {
	while read -r method; do
		kv-evict -q --budget 11 --keep-queries ragged4.$method.scored -o once.kv
		scored ragged4 $method once.kv | kv-evict -q --budget 11 -o twice.kv
		assert_equal "$(logical twice.kv)" "$(logical once.kv)"
	done <methods
}

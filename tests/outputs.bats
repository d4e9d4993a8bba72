#!/usr/bin/env bats
# Outputs that cannot be written are refused before the work, with the name and the cause.

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mkdir folder
}

# late OPTION NAME CAUSE PROGRAM ...: refused before any input is looked for, none of which is there
late() {
	local option=$1 name=$2 cause=$3
	run -1 "${@:4}" "$option" "$name"
	assert_output "$4: --${option#--} $name: $cause"
}

# everywhere OPTION PROGRAM ...: in a folder that is not there, under the name of a folder, under one that is a file, and
# under too long a name
everywhere() {
	touch file
	late "$1" none/out 'No such file or directory' "${@:2}"
	late "$1" folder 'Is a directory' "${@:2}"
	late "$1" file/out 'Not a directory' "${@:2}"
	late "$1" "$(printf '%0252d' 1)" 'File name too long' "${@:2}"
}

@test "a snapshot that could not be written is refused before its input is read" {
	everywhere --output kv-prefill -m none none.txt
	everywhere --output kv-observe -m none --ids-from none none.kv
	everywhere --output kv-score --method knorm none.kv
	everywhere --output kv-evict --rate 0.5 none.kv
	everywhere --output kv-evict --policy global --rate 0.5 none.kv
	everywhere --output kv-index --pages none.kv
	everywhere --output kv-quantize1b none.kv
	everywhere --output kv-convert none.kv
	assert_equal "$(find . -mindepth 1 | sort | tr '\n' ' ')" './file ./folder '
}

@test "so is what kv-decode keeps, in a folder too, and so are its numbers and logits" {
	late --output none/out 'No such file or directory' kv-decode -m none none.kv
	late --output none/ 'No such file or directory' kv-decode -m none none.kv other.kv
	mkdir folder/none.kv
	run -1 kv-decode -m none -o folder x/none.kv
	assert_output "kv-decode: --output folder/none.kv: Is a directory"
	run -1 kv-decode -m none -o folder x/other.kv x/none.kv
	assert_output "kv-decode: --output folder/none.kv: Is a directory"
	everywhere --stats kv-decode -m none --retrieve 'fier budget=8' none.kv
	everywhere --logits kv-decode -m none --force none.txt none.kv
	everywhere --logits kv-prefill -m none none.txt
}

@test "a folder and a file that nobody may write to are no outputs" {
	[ "$(id -u)" -ne 0 ] || skip "root may write to all of them"
	touch kept
	chmod a-w folder kept
	late --output folder/out 'Permission denied' kv-score --method knorm none.kv
	late --output kept 'Permission denied' kv-score --method knorm none.kv
}

@test "a trial leaves nothing behind, neither a name nor another time of a file that is there" {
	mksnapshot -L 1 -H 4 -G 2 -E 64 -N 16 -o in.kv
	touch -d 2001-01-01 out.kv
	run -2 kv-score --method none -o out.kv in.kv
	assert_equal "$(stat -c '%s %y' out.kv | cut -c 1-12)" '0 2001-01-01'
	kv-score --method knorm -o /dev/null in.kv
	ln -s target link
	kv-score --method knorm -o link in.kv
	assert_equal "$(find . -mindepth 1 -type f | sort | tr '\n' ' ')" './in.kv ./out.kv ./target '
}

@test "compare.sh refuses a picture that could not be written before it runs anything" {
	mkdir plot.svg
	for plot in none/plot.svg plot.svg; do
		run -1 sh "$ROOT/examples/compare.sh" -p $plot
		assert_output "compare.sh: -p $plot: this file cannot be written"
	done
}

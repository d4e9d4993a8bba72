#!/usr/bin/env bats
# kv-critical: critical footprints of tables made by hand

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

table() {
	printf '%s\n' "$@" >t.txt
}

# critical [OPTION ...]: the lines of kv-critical, with single blanks
critical() {
	run -0 kv-critical t.txt "$@"
	output=$(sed 's/^ *//' <<<"$output" | tr -s ' ')
	mapfile -t lines <<<"$output"
}

@test "the critical footprint lies on the line between two points" {
	table '# a comment' 'a 40 95' 'full 100 100' 'a 10 50' '' 'b 5 0.5' '  b 25 180 ' $'a\t20\t80'
	critical
	assert_output "$(cat <<-E
		score 90, 0.9 of 100
		critical first reached method
		33.3333 33.3333 once a
		14.9721 14.9721 once b
	E
	)"
	critical --keep 50%
	assert_line '<10 <10 always a'
	run -0 kv-critical - <t.txt
	assert_line --regexp '33.3333 +once +a$'
	run -0 kv-critical <t.txt
	assert_line --regexp '33.3333 +once +a$'
	sed -i /full/d t.txt
	critical --full 100
	assert_line '33.3333 33.3333 once a'
}

@test "the name of a method may have blanks in it" {
	table 'full 1 10' 'snapkv kernel=7 0.1 1' 'snapkv kernel=5  0.1 10' 'snapkv kernel=7 0.2 10'
	critical
	assert_line '0.188889 0.188889 once snapkv kernel=7'
	assert_line '<0.1 <0.1 always snapkv kernel=5'
}

@test "never, always and non-monotone are told apart" {
	table 'full 100 50' 'never 10 1' 'never 20 44.9' 'always 3 45' 'always 6 50' \
	    'dip 10 50' 'dip 20 40' 'dip 40 50' 'late 10 40' 'late 20 50' 'late 30 30' 'late 40 60' \
	    'falls 10 20' 'falls 20 50' 'falls 30 20'
	critical
	assert_line '>20 >20 never never'
	assert_line '<3 <3 always always'
	assert_line '30 <10 non-monotone dip'
	assert_line '35 15 non-monotone late'
	assert_line '>30 18.3333 non-monotone falls'
	kv-critical --json t.txt >t.json
	run -0 "$PYTHON" -c '
import json
for m in json.load(open("t.json")):
    print(m["method"], m["critical"], m["first"], m["reached"])'
	assert_line "never {'above': 20.0} {'above': 20.0} never"
	assert_line "late {'at': 35.0} {'at': 15.0} non-monotone"
	assert_line "dip {'at': 30.0} {'below': 10.0} non-monotone"
}

@test "a score that misses by a rounding error reaches" {
	table 'full 1 3' 'a 1 0.3' 'a 2 0.6'
	critical --keep 0.1
	assert_line '<1 <1 always a'
}

@test "tables that cannot be right are refused with the line" {
	bad() {
		table "${@:2}"
		run -3 --separate-stderr kv-critical t.txt
		assert_regex "$stderr" "^kv-critical: t.txt: $1"
	}
	bad 'line 2: want method, footprint and score' 'full 100 1' 'a 1'
	bad 'line 1: want method, footprint and score' 'a'
	bad 'line 1: want method, footprint and score' ' 1 2'
	bad "line 1: 'x' is not a number" 'a x 2' 'full 1 1'
	bad "line 1: 'nan' is not a number" 'a 1 nan' 'full 1 1'
	bad "line 2: the score of the full cache is given twice" 'full 100 1' 'full 100 1' 'a 1 1'
	bad "the score of the full cache is 0, must be above 0" 'full 100 0' 'a 1 1'
	bad "there is no method 'full'.*give --full" 'a 1 1'
	bad "there is no method but 'full'" 'full 1 1'
	bad "method 'a' has two scores at footprint 10" 'full 1 1' 'a 10 1' 'a 10.0 2'
	bad "there is no method 'full'" ''
	printf 'a\t1\0\t2\n' >t.txt
	run -3 kv-critical t.txt
	run -1 kv-critical none.tsv
}

#!/bin/sh
# run_files.sh - runs bats files side by side, one more than there are processors, because some of
# them wait, and says how each of them ended when it ends
#
# usage: tests/run_files.sh FILE.bats ...
#
# Files with the tag slow (`# bats file_tags=slow`) go first, so that no long one is left at the
# end. What a file said stays in $O/tap/FILE.tap, and is shown when not all went well. A file that
# ends with fewer results than it has tests failed as many, and so did one that has not ended after
# FILE_SECONDS (1500). The last line counts all tests; the exit status is 0 when every one passed or
# was skipped.
set -u
export LC_ALL=C.UTF-8 CDPATH=

# count PATTERN FILE
count() {
	grep -cE "$1" "$2"
}

# Runs one file, and prints: tests that passed, failed, were skipped, seconds, name.
one() {
	name=$(basename "$1" .bats)
	tap=$O/tap/$name.tap
	limit=${FILE_SECONDS:-1500}
	start=$(date +%s)
	timeout --foreground -k 10 "$limit" "${BATS:-bats}" --tap "$1" >"$tap" 2>&1 </dev/null
	status=$?
	planned=$(sed -n 's/^1\.\.\([0-9]*\)$/\1/p' "$tap")
	skipped=$(count '^ok .* # skip' "$tap")
	passed=$(($(count '^ok ' "$tap") - skipped))
	failed=$((${planned:-0} - passed - skipped))
	if [ "$failed" -gt "$(count '^not ok ' "$tap")" ]; then
		case $status in
		124 | 137) echo "# $name.bats had not ended after $limit s" ;;
		*) echo "# $name.bats ended before all its tests had" ;;
		esac >>"$tap"
	elif [ "$failed" -lt 0 ] ||
	    { [ "$failed" -eq 0 ] && [ "$status${planned:+0}" != 00 ]; }; then
		echo "# $name.bats: exit status $status, ${planned:-no} tests were planned" >>"$tap"
		failed=1
	fi
	echo "$passed $failed $skipped $(($(date +%s) - start)) $name"
}

if [ "${1:-}" = --one ]; then
	one "$2"
	exit
fi
export O="${O:-build}"
[ -n "${PYTHON:-}" ] || PYTHON=$(sh "$(dirname "$0")/python.sh")
export PYTHON
mkdir -p "$O/tap" || exit
start=$(date +%s)
{
	grep -l '^# bats file_tags=slow' "$@"
	grep -L '^# bats file_tags=slow' "$@"
} | xargs -d '\n' -n 1 -P $(($(getconf _NPROCESSORS_ONLN) + 1)) sh "$0" --one | {
	files=0 all_passed=0 all_failed=0 all_skipped=0 with_failures=
	while read -r passed failed skipped seconds name; do
		files=$((files + 1))
		all_passed=$((all_passed + passed))
		all_failed=$((all_failed + failed))
		all_skipped=$((all_skipped + skipped))
		[ "$failed" -gt 0 ] && word=FAILED || word=ok
		printf '%3d/%d  %-6s  %-28s %3d passed' "$files" $# "$word" "$name" "$passed"
		[ "$failed" -eq 0 ] || printf ', %d failed' "$failed"
		[ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
		printf ', %d s\n' "$seconds"
		if [ "$failed" -gt 0 ]; then
			cat "$O/tap/$name.tap"
			with_failures="$with_failures $name ($failed)"
		elif [ "$skipped" -gt 0 ]; then
			sed -n 's/^ok [0-9]* \(.* # skip.*\)/                 \1/p' \
				"$O/tap/$name.tap"
		fi
	done
	if [ "$files" -ne $# ]; then
		echo "FAILED: $(($# - files)) of $# files have not been run"
		all_failed=$((all_failed + $# - files))
	fi
	[ -z "$with_failures" ] ||
		printf 'Failed:%s; what a file said is in %s/tap/NAME.tap\n' "$with_failures" "$O"
	printf '%d passed, %d failed, %d skipped, in %d s\n' \
		"$all_passed" "$all_failed" "$all_skipped" "$(($(date +%s) - start))"
	[ "$all_failed" -eq 0 ]
}

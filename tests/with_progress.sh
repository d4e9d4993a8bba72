#!/bin/sh
# with_progress.sh - runs a command whose output goes to a file, and says meanwhile how far it is
#
# usage: tests/with_progress.sh LOG WHAT PATTERN TOTAL COMMAND ...
#
# A line of LOG that matches PATTERN (grep -E) is one step of TOTAL. Prints "WHAT: N of TOTAL": on a
# terminal in one line that is written again, else in a new line for each quarter. When COMMAND
# failed, the end of LOG goes to standard error. The exit status is COMMAND's.
set -u
export LC_ALL=C CDPATH=

log=$1 what=$2 pattern=$3 total=$4
shift 4

steps() {
	count=$(grep -cE "$pattern" "$log")
	[ "$count" -le "$total" ] || count=$total
	echo "$count"
}

# Ends with this script, also when that is killed.
watch() {
	quarter=0
	while sleep 1 && kill -0 $$ 2>/dev/null; do
		done=$(steps)
		if [ -t 1 ]; then
			printf '\r%s: %d of %d' "$what" "$done" "$total"
		elif [ $((done * 4 / total)) -gt $quarter ]; then
			quarter=$((done * 4 / total))
			[ $quarter -eq 4 ] || printf '%s: %d of %d\n' "$what" "$done" "$total"
		fi
	done
}

start=$(date +%s)
: >"$log" || exit
[ "$total" -gt 0 ] || total=1
watch &
watcher=$!
"$@" >>"$log" 2>&1
status=$?
kill $watcher 2>/dev/null
wait $watcher 2>/dev/null
[ ! -t 1 ] || printf '\r'
if [ $status -eq 0 ]; then
	printf '%s: done, %d s\n' "$what" $(($(date +%s) - start))
else
	printf '%s: failed after %d of %d\n' "$what" "$(steps)" "$total"
	tail -n 30 "$log" >&2
fi
exit $status

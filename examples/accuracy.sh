#!/bin/sh
# accuracy.sh - how often the demo model still finds the answer when most of the cache is gone
#
# Makes documents with six facts and one question each, prefills each of them once, and asks the
# snapshot: with all rows, and with the rows that SnapKV (window 16, kernel 7) or StreamingLLM (4
# sinks, the rest recent) keep. Prints a table of exact matches, in percent.
#
# usage: examples/accuracy.sh [--documents N] [--tokens T] [--needles N] [--digits N] [--seed N]
#
# Needs the programs in build/ (or the folder that O names) and Python 3.
set -eu
export LC_ALL=C CDPATH=

here=$(cd "$(dirname "$0")" && pwd)
# the programs of the tree, or, where this is installed, those of the PATH
if built=$(cd "$here/.." && cd "${O:-build}" 2>/dev/null && pwd); then
	PATH=$built:$PATH
fi
export PATH
model=$here/demo-model
documents=100
tokens=1000
needles=6
digits=3
seed=1
rates='10% 20%'

usage() {
	sed -n 's/^# usage: /usage: /p' "$0" >&2
	exit 2
}

while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || usage
	case $1 in
	--documents) documents=$2 ;;
	--tokens)    tokens=$2 ;;
	--needles)   needles=$2 ;;
	--digits)    digits=$2 ;;
	--seed)      seed=$2 ;;
	*)           usage ;;
	esac
	shift 2
done

if ! command -v python3 >/dev/null; then
	echo "accuracy.sh: python3 is needed to make the documents" >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
python3 "$here/demo-model/documents.py" --n "$documents" --tokens "$tokens" --needles "$needles" \
    --digits "$digits" --seed "$seed" --out "$work"
full=$work/full.kv
stop='.
'

# grade NAME [snapshot]: lets the model answer, and notes NAME when the text up to the end of the
# sentence is the answer. A program that fails in front of this one makes it fail too, since the
# snapshot then has no end marker.
grade() {
	kv-decode -q -m "$model" -n 12 --stop "$stop" "${2:--}" >"$work/text"
	if [ "$(tr -d ' \n' <"$work/text")" = "$expected" ]; then
		echo "$1" >>"$work/right"
	fi
}

percent() {
	awk -v name="$1" -v n="$documents" '
		$0 == name { right++ }
		END { printf "%.0f", 100 * right / n }' "$work/right"
}

progress() {
	if [ -t 2 ]; then
		printf '\r%s of %s documents' "$1" "$documents" >&2
	elif [ $(($1 % 25)) -eq 0 ]; then
		echo "$1 of $documents documents" >&2
	fi
}

: >"$work/right"
number=0
for prompt in "$work"/*.txt; do
	expected=$(cat "${prompt%.txt}.answer")
	kv-prefill -q -m "$model" --observe 16 -o "$full" "$prompt"
	grade full "$full"
	for rate in $rates; do
		kv-score --method snapkv --kernel 7 "$full" | kv-evict --rate "$rate" |
			grade "snapkv $rate"
		kv-score --method recent "$full" | kv-evict --rate "$rate" | grade "recent $rate"
	done
	number=$((number + 1))
	progress "$number"
done
[ ! -t 2 ] || echo >&2

echo "$documents documents of about $tokens tokens with $needles facts each:" \
    "answers exactly right, in %"
echo
echo "full cache: $(percent full)"
echo
echo "| kept by | $(echo "$rates" | sed 's/ / | /g') |"
echo "|---|$(echo "$rates" | sed 's/[^ ]*/---/g; s/ /|/g')|"
for method in snapkv recent; do
	printf '| %s |' "$method"
	for rate in $rates; do
		printf ' %s |' "$(percent "$method $rate")"
	done
	echo
done

# shellcheck shell=sh
# common.sh - what the scripts of this folder share; each of them sources it
#
#     sh examples/methods/METHOD.sh [-m MODEL] [-b BUDGET | -r RATE] [prompt]
#
# A script makes the snapshot $out from the text $prompt, with about the share $rate of its rows in the end (a method that keeps
# all rows reads that share of them at each step), and calls `report`, which lets the model answer and prints one line:
#
#     method, rows kept, KV footprint, peak, bytes of the cache read at each step (each in %), answer
#
# MODEL is the demo model unless given, RATE 0.1, prompt the one of the quick start. BUDGET is rows of each KV head, instead of RATE. Programs come from the PATH, or from build/
# (or the folder that O names).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
method=$(basename "$0" .sh)
model=$here/../demo-model
rate=0.1
budget=
while getopts b:m:r: option; do
	case $option in
	b) budget=$OPTARG ;;
	m) model=$OPTARG ;;
	r) rate=$OPTARG ;;
	*) echo "usage: $method.sh [-b BUDGET | -r RATE] [-m MODEL] [prompt]" >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))
prompt=${1:-$here/../prompts/harbour.txt}
command -v kv-prefill >/dev/null || PATH=$(cd "$here/../.." && cd "${O:-build}" && pwd):$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
out=$work/out.kv

# tokens: how long the prompt is
tokens() {
	kv-tokenize -m "$model" --count "$prompt"
}

# A budget of rows is a rate of the prompt's tokens; all that a rate is rounded to further down is exact for it.
if [ -n "$budget" ]; then
	rate=$(awk -v budget="$budget" -v n="$(tokens)" 'BEGIN { printf "%.17g", budget < n ? budget / n : 1 }')
fi

# share_of N [DIVISOR]: floor(N * rate / DIVISOR), the rows that the rate stands for
share_of() {
	awk -v n="$1" -v rate="$rate" -v divisor="${2:-1}" \
		'BEGIN { if (sub(/%$/, "", rate)) rate /= 100; print int(n * rate / divisor + 1e-9) }'
}

# parts N: cuts the prompt into pieces of N tokens, the files $work/part.aa, part.ab, ...; prints their names
parts() {
	kv-tokenize -m "$model" "$prompt" | split -l "$1" - "$work/part."
	ls "$work"/part.*
}

# percent KEY: a share in a JSON object on standard input
percent() {
	sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" | awk 'NR == 1 { printf "%.2f", 100 * $1 }'
}

# report [OPTION ...]: $out is as it should be when the answer begins; options are kv-decode's. The footprint is that of the whole run,
# the answer included. Rows that are kept are read, unless the method says otherwise.
report() {
	answer=$(kv-decode -q -m "$model" -n 12 --stop . "$@" -o "$work/after.kv" "$out")
	kv-footprint --json "$work/after.kv" >"$work/footprint"
	kept=$(kv-info --json "$out" | percent share_kept)
	read=$kept
	[ ! -e "$work/stats" ] || read=$(percent share <"$work/stats")
	printf '%-20s %6s %6s %6s %6s  %s\n' "$method" "$kept" "$(percent footprint <"$work/footprint")" \
		"$(percent peak <"$work/footprint")" "$read" "${answer# }"
}

# retrieve METHOD: reports with all rows kept, and the share of them read that the rate stands for
retrieve() {
	report --retrieve "$1" --budget "$(share_of "$(tokens)")" --stats "$work/stats"
}

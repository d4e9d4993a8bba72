# shellcheck shell=sh
# common.sh - what the scripts of this folder share; each of them sources it
#
#     sh examples/methods/METHOD.sh [-m MODEL] [-r RATE] [prompt]
#
# A script makes the snapshot $out from the text $prompt, with about the share $rate of its rows in the end, and calls `report`,
# which lets the model answer and prints one line:
#
#     method, rows kept, KV footprint, peak (each in %), answer
#
# MODEL is the demo model unless given, RATE 0.1, prompt the one of the quick start. Programs come from the PATH, or from build/
# (or the folder that O names).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
method=$(basename "$0" .sh)
model=$here/../demo-model
rate=0.1
while getopts m:r: option; do
	case $option in
	m) model=$OPTARG ;;
	r) rate=$OPTARG ;;
	*) echo "usage: $method.sh [-m MODEL] [-r RATE] [prompt]" >&2; exit 2 ;;
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
# the answer included.
report() {
	answer=$(kv-decode -q -m "$model" -n 12 --stop . "$@" -o "$work/after.kv" "$out")
	kv-footprint --json "$work/after.kv" >"$work/footprint"
	printf '%-20s %6s %6s %6s  %s\n' "$method" "$(kv-info --json "$out" | percent share_kept)" \
		"$(percent footprint <"$work/footprint")" "$(percent peak <"$work/footprint")" "${answer# }"
}

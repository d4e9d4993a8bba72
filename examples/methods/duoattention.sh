#!/bin/sh
# DuoAttention (Xiao et al. 2024): the KV heads that need it keep all rows, the others `sink` rows and the recent ones.
#
# Which heads need it belongs to the model: `heads` is a mask as kv-evict(1) reads it. Recent rows are as many as make the whole
# cache as large as the rate asks for. With k of n heads in the mask the least share is k/n; below it there are 16 recent rows, and more
# is kept than was asked for.
. "$(dirname "$0")/common.sh"

heads='' recent='' sink=64
settings heads recent sink
[ -n "$heads" ] || die "$model has no head mask: name one with -H"
[ -e "$heads" ] || die "there is no head mask $heads"

# recent_rows: of the mask, in which # begins a comment, and a head below 0.5 streams
recent_rows() {
	awk -F '[ \t,]+' -v tokens="$(tokens)" -v share="$(share_of "$(tokens)")" -v sink="$sink" '
		{ sub(/#.*/, "") }
		{
			for (i = 1; i <= NF; i++) {
				n += $i != ""
				full += $i != "" && $i >= 0.5
			}
		}
		END {
			rows = full < n ? int((share - int(tokens * full / n)) * n / (n - full)) - sink : tokens
			print rows < 16 ? 16 : rows
		}' "$heads"
}

recent=${recent:-$(recent_rows)}
shared kv-prefill -q -m "$model" "$prompt" | kv-evict --heads "$heads" --sink "$sink" --recent "$recent" -o "$out"
report

#!/bin/sh
# Chunked eviction (Bhaskar et al. 2025, "patched"): the prompt is read in `chunks` parts; each is
# thinned out once, by SnapKV with the queries of the last `patch` tokens of the whole prompt, which
# are run in advance behind each chunk and not kept.
#
# The last chunk has the end of the prompt itself, and is scored by its own last `window` queries.
# The authors have 64 for both, for chunks of thousands of tokens. The window's rows are kept:
# unless given it is at most half of what a chunk keeps. `policy` is kv-evict's: it shares the
# budget of each chunk among the layers, or KV heads, for that chunk alone; `pyramid` is chunked
# PyramidKV.
. "$(dirname "$0")/common.sh"

chunks=4 kernel=5 patch=64 policy=uniform pool=avg window=''
settings chunks kernel patch policy pool window
size=$((($(tokens) + chunks - 1) / chunks))
window=${window:-$(least 64 "$(share_of "$size" 2)")}
first=0
parts "$size"
for last in "$work"/part.*; do :; done
ids | tail -n "$patch" >"$work/end.ids"

look_ahead() {
	if [ "$part" = "$last" ]; then
		cat
	else
		kv-observe -q -m "$model" --ids-from "$work/end.ids"
	fi
}

for part in "$work"/part.*; do
	set --
	[ ! -e "$out" ] || set -- -r "$out"
	kv-prefill -q -m "$model" --ids --no-template --observe "$window" "$@" "$part" |
		look_ahead |
		kv-score --method snapkv --kernel "$kernel" --pool "$pool" --since "$first" |
		kv-evict --policy "$policy" --rate "$rate" --since "$first" -o "$out"
	first=$((first + size))
done
report

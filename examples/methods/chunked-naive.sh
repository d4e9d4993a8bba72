#!/bin/sh
# Chunked eviction (Bhaskar et al. 2025, "naive"): the prompt is read in `chunks` parts; each is
# thinned out once, by SnapKV with the queries of its own end, and what is left of it stays. The
# question stands in the last chunk and scores only that one.
#
# The authors' window is 64, for chunks of thousands of tokens. Unless given it is at most half of
# what a chunk keeps, so that short chunks keep more than their ends. `policy` is kv-evict's: it
# shares the budget of each chunk among the layers, or KV heads, for that chunk alone; `pyramid` is
# chunked PyramidKV.
. "$(dirname "$0")/common.sh"

chunks=4 kernel=5 policy=uniform pool=avg window=''
settings chunks kernel policy pool window
size=$((($(tokens) + chunks - 1) / chunks))
window=${window:-$(least 64 "$(share_of "$size" 2)")}
first=0
parts "$size"
for part in "$work"/part.*; do
	set --
	[ ! -e "$out" ] || set -- -r "$out"
	kv-prefill -q -m "$model" --ids --no-template --observe "$window" "$@" "$part" |
		kv-score --method snapkv --kernel "$kernel" --pool "$pool" --since "$first" |
		kv-evict --policy "$policy" --rate "$rate" --since "$first" -o "$out"
	first=$((first + size))
done
report

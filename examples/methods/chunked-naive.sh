#!/bin/sh
# Chunked eviction (Bhaskar et al. 2025, "naive"): the prompt is read in four chunks; each is thinned out once, by SnapKV with the
# queries of its own end, and what is left of it stays. The question stands in the last chunk and scores only that one.
. "$(dirname "$0")/common.sh"

size=$((($(tokens) + 3) / 4))
first=0
for part in $(parts "$size"); do
	set --
	[ ! -e "$out" ] || set -- -r "$out"
	kv-prefill -q -m "$model" --ids --no-template --observe 8 "$@" "$part" |
		kv-score --method snapkv --kernel 7 --since "$first" | kv-evict --rate "$rate" --since "$first" -o "$out"
	first=$((first + size))
done
report

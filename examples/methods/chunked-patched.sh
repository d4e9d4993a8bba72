#!/bin/sh
# Chunked eviction (Bhaskar et al. 2025, "patched"): the prompt is read in four chunks; each is thinned out once, by SnapKV with the
# queries of the end of the whole prompt, which is run in advance behind each chunk and not kept.
. "$(dirname "$0")/common.sh"

size=$((($(tokens) + 3) / 4))
first=0
parts=$(parts "$size")
last=$(echo "$parts" | tail -n 1)
kv-tokenize -m "$model" "$prompt" | tail -n 16 >"$work/end.ids"

# The last chunk has the end of the prompt itself.
look_ahead() {
	if [ "$part" = "$last" ]; then
		cat
	else
		kv-observe -q -m "$model" --ids-from "$work/end.ids"
	fi
}

for part in $parts; do
	set --
	[ ! -e "$out" ] || set -- -r "$out"
	kv-prefill -q -m "$model" --ids --no-template --observe 8 "$@" "$part" | look_ahead |
		kv-score --method snapkv --kernel 7 --since "$first" | kv-evict --rate "$rate" --since "$first" -o "$out"
	first=$((first + size))
done
report

#!/bin/sh
# LAQ (Lookahead Q-Cache, Wang et al. 2025): a draft of the answer, made with SnapKV's cache, scores the rows of the full one.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" --observe 16 -o "$work/full.kv" "$prompt"
kv-score --method snapkv --kernel 7 "$work/full.kv" | kv-evict --rate "$rate" |
	kv-decode -q -m "$model" -n 8 --ids >"$work/draft.ids"
kv-observe -q -m "$model" --ids-from "$work/draft.ids" --keep-window 8 "$work/full.kv" |
	kv-score --method snapkv --kernel 7 --pool max | kv-evict --rate "$rate" -o "$out"
report

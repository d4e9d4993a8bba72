#!/bin/sh
# LAQ (Lookahead Q-Cache, Wang et al. 2025): a draft of the answer, made with SnapKV's cache, scores
# the rows of the full one, with the last `keep` queries of the prompt. Everything is as in the
# authors' program.
. "$(dirname "$0")/common.sh"

draft=8 keep=8 kernel=7 pool=max window=32
settings draft keep kernel pool window
shared prefill --observe "$window" >"$work/full.kv"
kv-score --method snapkv --kernel "$kernel" --pool "$pool" "$work/full.kv" |
	kv-evict --rate "$rate" |
	kv-decode -q -m "$model" -n "$draft" --ids >"$work/draft.ids"
kv-observe -q -m "$model" --ids-from "$work/draft.ids" --keep-window "$keep" "$work/full.kv" |
	kv-score --method snapkv --kernel "$kernel" --pool "$pool" |
	kv-evict --rate "$rate" -o "$out"
report

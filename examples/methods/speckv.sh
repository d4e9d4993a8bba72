#!/bin/sh
# SpecKV (Galim et al. 2025): a smaller model drafts the answer, and the rows that the draft looks at stay. DRAFT_MODEL names its
# folder; there is only one demo model, so here it is its own draft model, which says nothing about how good a smaller one would be.
. "$(dirname "$0")/common.sh"

draft=${DRAFT_MODEL:-$model}
kv-prefill -q -m "$draft" "$prompt" | kv-decode -q -m "$draft" -n 8 --ids >"$work/draft.ids"
kv-prefill -q -m "$model" --observe 16 "$prompt" |
	kv-observe -q -m "$model" --ids-from "$work/draft.ids" --keep-window 16 |
	kv-score --method snapkv --kernel 7 --pool max --reduce max --over-queries max | kv-evict --rate "$rate" -o "$out"
report

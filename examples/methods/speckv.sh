#!/bin/sh
# SpecKV (Galim et al. 2025): a smaller model drafts the answer, and the rows that the draft looks
# at stay, as do the last `window`. `draft_model` is its folder; it must have the tokenizer of the
# model. Unless given the model is its own draft model, which says nothing about how good a smaller
# one would be. Window, kernel, pooling and the draft's length are those of the authors' evaluation.
. "$(dirname "$0")/common.sh"

draft=32 draft_model=$model kernel=7 pool=max window=32
settings draft draft_model kernel pool window

# draft_ids MODEL TOKENS: the draft
draft_ids() {
	model=$1
	shared prefill | kv-decode -q -m "$model" -n "$2" --ids
}

shared draft_ids "$draft_model" "$draft" >"$work/draft.ids"
shared prefill --observe "$window" |
	kv-observe -q -m "$model" --ids-from "$work/draft.ids" --keep-window "$window" |
	kv-score --method snapkv --kernel "$kernel" --pool "$pool" --reduce max --over-queries max |
	kv-evict --rate "$rate" -o "$out"
report

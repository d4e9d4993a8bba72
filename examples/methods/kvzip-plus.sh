#!/bin/sh
# KVzip+ (kvpress, 2025): as KVzip, with the attention of repeated tokens weighed by what the row's
# value adds to the residual stream and by the token's hidden state.
. "$(dirname "$0")/common.sh"

instruction=''
settings instruction
set --
[ -z "$instruction" ] || set -- --instruction "$instruction"

# repeat_context [OPTION ...]: the snapshot with the attention that the repeated text pays
repeat_context() {
	shared prefill | kv-observe -q -m "$model" --repeat-context --value-norms "$@"
}

shared repeat_context "$@" |
	kv-score --method kvzip | kv-evict --policy global --rate "$rate" -o "$out"
report

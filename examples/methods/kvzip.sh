#!/bin/sh
# KVzip (Kim et al. 2025): the rows that the model looks at when it repeats the text; over all
# layers and heads together. The question has no say in it. `instruction` is what asks the model to
# repeat, for a chat model in the form of its template (that of kv-observe unless given). (The demo
# model never learned to repeat a text.)
. "$(dirname "$0")/common.sh"

instruction=''
settings instruction
set --
[ "$method" != kvzip-plus ] || set -- --value-norms
[ -z "$instruction" ] || set -- "$@" --instruction "$instruction"

# repeat_context [OPTION ...]: the snapshot with the attention that the repeated text pays
repeat_context() {
	shared prefill | kv-observe -q -m "$model" --repeat-context "$@"
}

shared repeat_context "$@" |
	kv-score --method kvzip | kv-evict --policy global --rate "$rate" -o "$out"
report

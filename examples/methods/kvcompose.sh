#!/bin/sh
# KVCompose (kvpress): the rows that a second run over the text looks at; layers share
# the budget by the mean over their KV heads of the best scores. The second run is behind the first.
. "$(dirname "$0")/common.sh"

settings

# again: the snapshot with the attention that its own tokens pay when they run once more
again() {
	shared prefill | kv-observe -q -m "$model" --repeat-context --sink 0 --instruction ""
}

shared again | kv-score --method kvcompose | kv-evict --policy composite --rate "$rate" -o "$out"
report

#!/bin/sh
# FastKV (Jo et al. 2025): layers after the TSP layer run on a fifth of the tokens; the cache has its own rate, of all tokens in every
# layer. The layer is what `kv-prefill --find-tsp-layer` chooses for the demo model.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" --tsp-layer 2 --observe 8 "$prompt" | kv-score --method snapkv --kernel 7 |
	kv-evict --rate "$rate" --of tokens -o "$out"
report

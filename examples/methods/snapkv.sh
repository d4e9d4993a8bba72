#!/bin/sh
# SnapKV (Li et al. 2024): the rows that the end of the prompt looks at. A kernel of 7 is about as wide as the demo's facts.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" --observe 16 "$prompt" | kv-score --method snapkv --kernel 7 | kv-evict --rate "$rate" -o "$out"
report

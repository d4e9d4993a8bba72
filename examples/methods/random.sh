#!/bin/sh
# Rows by chance: what every method has to beat. The question stays whole.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" "$prompt" | kv-score --method random | kv-evict --rate "$rate" --recent 16 -o "$out"
report

#!/bin/sh
# PyramidKV (Cai et al. 2024): SnapKV's scores, more rows for the lower layers than for the upper ones.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" --observe 16 "$prompt" | kv-score --method snapkv --kernel 7 |
	kv-evict --policy pyramid --rate "$rate" -o "$out"
report

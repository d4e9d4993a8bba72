#!/bin/sh
# PyramidKV (Cai et al. 2024): SnapKV's scores, more rows for the lower layers than for the upper
# ones. The window is the default of the authors' program, kernel and pooling those of its
# evaluation.
. "$(dirname "$0")/common.sh"

window=32 kernel=7 pool=max
settings window kernel pool
shared prefill --observe "$window" | kv-score --method snapkv --kernel "$kernel" --pool "$pool" |
	kv-evict --policy pyramid --rate "$rate" -o "$out"
report

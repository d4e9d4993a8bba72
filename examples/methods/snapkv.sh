#!/bin/sh
# SnapKV (Li et al. 2024): the rows that the end of the prompt looks at. Window, kernel and pooling
# are those of the authors' evaluation; the kernel should be about as wide as a fact.
. "$(dirname "$0")/common.sh"

window=32 kernel=7 pool=max
settings window kernel pool
shared prefill --observe "$window" | kv-score --method snapkv --kernel "$kernel" --pool "$pool" |
	kv-evict --rate "$rate" -o "$out"
report

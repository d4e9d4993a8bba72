#!/bin/sh
# AdaKV (Feng et al. 2024): SnapKV's scores; the KV heads of a layer share its budget by them.
# Window, kernel and pooling are those of the authors' evaluation.
. "$(dirname "$0")/common.sh"

window=32 kernel=7 pool=max
settings window kernel pool
shared prefill --observe "$window" | kv-score --method snapkv --kernel "$kernel" --pool "$pool" |
	kv-evict --policy ada --rate "$rate" -o "$out"
report

#!/bin/sh
# AdaKV (Feng et al. 2024): SnapKV's scores; the KV heads of a layer share its budget by them.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" --observe 16 "$prompt" | kv-score --method snapkv --kernel 7 |
	kv-evict --policy ada --rate "$rate" -o "$out"
report

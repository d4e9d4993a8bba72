#!/bin/sh
# SnapKV as first published (Li et al. 2024): each query head keeps rows of its own, so the cache
# has as many times the rows as a KV head has query heads. KVCache-Factory does this unless told
# otherwise. Kept and read are shares of the rows of KV heads; footprint and memory are shares of
# the cache with rows for each query head.
. "$(dirname "$0")/common.sh"

window=32 kernel=7 pool=max
settings window kernel pool
shared prefill --observe "$window" >"$work/full.kv"
copies=$(query_heads "$work/full.kv")
kv-convert --per-query-head "$work/full.kv" |
	kv-score --method snapkv --kernel "$kernel" --pool "$pool" |
	kv-evict --rate "$rate" -o "$out"
report

#!/bin/sh
# ChunkKV (Liu et al. 2025) on SnapKV: chunks of `chunk` rows stay or go as a whole. With `spiky`
# only so many rows stay of chunks that are important for a few of them (kvpress's
# EntropyGatedChunkKVPress, chunks of 10).
. "$(dirname "$0")/common.sh"

window=64 kernel=5 chunk=20 spiky=
settings window kernel chunk spiky
shared prefill --observe "$window" |
	kv-score --method snapkv --window "$window" --kernel "$kernel" |
	kv-evict --rate "$rate" --select "chunk=$chunk${spiky:+ spiky=$spiky}" -o "$out"
report

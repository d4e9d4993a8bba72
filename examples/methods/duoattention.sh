#!/bin/sh
# DuoAttention (Xiao et al. 2024): the KV heads that need it keep all rows, the others sinks and recent ones.
#
# Which heads need it belongs to the model: duoattention.tsv is the demo model's, and says how it was found. With its one
# of eight heads the least share is an eighth; below it there are 16 recent rows, and more is kept than was asked for.
. "$(dirname "$0")/common.sh"

tokens=$(tokens)
recent=$((($(share_of "$tokens") - tokens / 8) * 8 / 7 - 4))
[ "$recent" -ge 16 ] || recent=16
kv-prefill -q -m "$model" "$prompt" | kv-evict --heads "$here/duoattention.tsv" --sink 4 --recent "$recent" -o "$out"
report

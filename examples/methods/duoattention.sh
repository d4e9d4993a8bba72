#!/bin/sh
# DuoAttention (Xiao et al. 2024): the KV heads that need it keep all rows,
# the others `sink` rows and the recent ones.
#
# Which heads need it belongs to the model: `heads` is a mask as kv-evict(1) reads it, and
# train/heads.py trains it. Heads below 0.5 stream, and as many recent rows are kept as the rate
# allows; with `recent` as many heads stream as it asks for (stream_heads in common.sh).
#
# With `chunk` streaming heads lose rows after every so many tokens of the prompt,
# and later chunks do not see them: a smaller footprint.
. "$(dirname "$0")/common.sh"

chunk='' heads='' recent='' sink=64
settings chunk heads recent sink
stream_heads "$sink" "$recent"
report

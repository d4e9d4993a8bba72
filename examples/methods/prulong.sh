#!/bin/sh
# PruLong (Bhaskar et al. 2025): the KV heads that the loss of the next token needs keep all rows,
# the others `sink` rows and `recent` ones.
#
# Which heads need it belongs to the model: `heads` is a mask as kv-evict(1) reads it. With the soft
# mask that train/heads.py --method prulong writes as many heads stream as the rate asks for. Sinks
# and recent rows are the paper's; a prompt that is not longer keeps all.
#
# With `chunk` streaming heads lose rows after every so many tokens of the prompt,
# and later chunks do not see them: a smaller footprint.
. "$(dirname "$0")/common.sh"

chunk='' heads='' recent=1024 sink=128
settings chunk heads recent sink
stream_heads "$sink" "$recent"
report

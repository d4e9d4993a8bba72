#!/bin/sh
# TOVA as in its paper: a cache of fixed size, from which the least row goes after every token
# of the answer.
. "$(dirname "$0")/common.sh"

settings
budget=$(share_of "$(tokens)")
shared prefill --observe 1 | kv-score --method tova |
	kv-evict --select layer --keep-queries --budget "$budget" -o "$out"
report --score tova --evict "budget=$budget select=layer"

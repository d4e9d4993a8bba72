#!/bin/sh
# CurDKV (Sengupta et al. 2025) as kvpress has it: the rows with the largest keys and values, each
# compared with its neighbours.
. "$(dirname "$0")/common.sh"

sink=4 local=16
settings sink local
shared prefill | kv-score --method cur --sink "$sink" --local "$local" |
	kv-evict --rate "$rate" -o "$out"
report

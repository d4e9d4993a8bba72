#!/bin/sh
# Key norm (Devoto et al. 2024): the rows with the shortest keys.
. "$(dirname "$0")/common.sh"

settings
shared prefill | kv-score --method knorm | kv-evict --rate "$rate" -o "$out"
report

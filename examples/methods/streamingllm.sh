#!/bin/sh
# StreamingLLM (Xiao et al. 2023): four sinks and the latest rows. They keep their positions,
# as in most comparisons.
. "$(dirname "$0")/common.sh"

settings
shared prefill | kv-score --method recent | kv-evict --rate "$rate" -o "$out"
report

#!/bin/sh
# StreamingLLM as in the paper: the rows that are left are numbered anew,
# and their keys turned accordingly.
. "$(dirname "$0")/common.sh"

settings
shared prefill | kv-score --method recent | kv-evict --rate "$rate" --positions compact -o "$out"
report

#!/bin/sh
# KeyDiff (Park et al. 2025): the rows whose keys are least like the others.
. "$(dirname "$0")/common.sh"

settings
shared prefill | kv-score --method keydiff | kv-evict --rate "$rate" -o "$out"
report

#!/bin/sh
# H2O (Zhang et al. 2023): half of the budget for the rows that have received most attention,
# half for the latest ones.
. "$(dirname "$0")/common.sh"

settings
shared prefill --mass | kv-score --method h2o |
	kv-evict --rate "$rate" --recent "$(share_of "$(tokens)" 2)" -o "$out"
report

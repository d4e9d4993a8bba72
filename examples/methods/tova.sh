#!/bin/sh
# TOVA (Oren et al. 2024): the rows that the last token looks at, the same for all heads of a layer.
. "$(dirname "$0")/common.sh"

settings
shared prefill --observe 1 | kv-score --method tova |
	kv-evict --select layer --rate "$rate" -o "$out"
report

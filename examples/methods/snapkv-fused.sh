#!/bin/sh
# SnapKV while the prompt is run: each layer is thinned out before the next one begins, so that only
# one layer is ever whole. The settings are those of snapkv.sh.
. "$(dirname "$0")/common.sh"

window=32 kernel=7 pool=max
settings window kernel pool
prefill --observe "$window" --score "snapkv kernel=$kernel pool=$pool" \
	--evict "rate=$rate" -o "$out"
report

#!/bin/sh
# SnapKV while the prompt is run: each layer is thinned out before the next one begins, so that only one layer is ever whole.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" --observe 16 --score 'snapkv kernel=7' --evict "rate=$rate" -o "$out" "$prompt"
report

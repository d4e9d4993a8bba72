#!/bin/sh
# GemFilter (Shi et al. 2024): a layer picks the tokens that the whole model then reads alone.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" --gemfilter-layer 2 --rate "$rate" -o "$out" "$prompt"
report

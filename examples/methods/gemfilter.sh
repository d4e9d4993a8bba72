#!/bin/sh
# GemFilter (Shi et al. 2024): a layer picks the tokens that the whole model then reads alone.
#
# The layer, counted from 0, belongs to the model. Unless given it is 13/32 of the layers,
# rounded down: the paper has 13 of 32.
. "$(dirname "$0")/common.sh"

layer=''
settings layer
[ -n "$layer" ] || { layers=$(config num_hidden_layers); layer=$((layers * 13 / 32)); }
prefill --select "gemfilter layer=$layer rate=$rate" -o "$out"
report

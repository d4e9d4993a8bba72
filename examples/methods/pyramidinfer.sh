#!/bin/sh
# PyramidInfer (Yang et al. 2024): fewer tokens from layer to layer. What is kept is the mean over
# the layers; the first keeps all, so that a small rate cannot be reached: the decay is the share
# that goes on from each layer to the next.
. "$(dirname "$0")/common.sh"

settings
prefill --select "pyramidinfer decay=$rate" -o "$out"
report

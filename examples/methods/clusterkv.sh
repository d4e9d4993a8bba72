#!/bin/sh
# ClusterKV (Liu et al. 2024): all rows stay, and each step reads the clusters of keys whose means look best.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" "$prompt" | kv-index --clusters -o "$out"
retrieve cluster

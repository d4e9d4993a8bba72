#!/bin/sh
# ClusterKV (Liu et al. 2024): all rows stay, and each step reads the clusters of keys whose means look best. A cluster
# for 16 rows: the paper's 80 are for long texts.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" "$prompt" | kv-index --clusters --cluster-count $(($(tokens) / 16)) -o "$out"
retrieve cluster

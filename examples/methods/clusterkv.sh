#!/bin/sh
# ClusterKV (Liu et al. 2024): all rows stay, and each step reads the clusters of keys whose means
# look best. There is a cluster for `cluster` rows; the paper's 80 are for long texts.
. "$(dirname "$0")/common.sh"

cluster=80
settings cluster
shared prefill | quantised | kv-index --clusters --cluster-count $(($(tokens) / cluster)) -o "$out"
retrieve cluster

#!/bin/sh
# Mean attention mass (ObservedAttention in kvpress): the rows that have received most attention
# from each query that could see them. Late rows, which few queries share, are ahead.
. "$(dirname "$0")/common.sh"

settings
shared prefill --mass | kv-score --method meanmass | kv-evict --rate "$rate" -o "$out"
report

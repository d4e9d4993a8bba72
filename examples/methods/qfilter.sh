#!/bin/sh
# Q-Filters (Godey et al. 2025): the rows whose keys lie towards the common direction of queries,
# and the last `recent`. `filters` is the file of directions of the model, or its folder, which
# train/q_filters.py makes.
. "$(dirname "$0")/common.sh"

filters='' recent=64
settings filters recent
[ -n "$filters" ] || die "$model has no Q-Filters: name a file with -s filters=FILE"
[ -e "$filters" ] || die "there is no file or folder $filters"
shared prefill | kv-score --method qfilter --filters "$filters" |
	kv-evict --rate "$rate" --recent "$recent" -o "$out"
report

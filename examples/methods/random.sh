#!/bin/sh
# Rows by chance: what every method has to beat. The last `recent` rows stay, as many as SnapKV's
# window, so that a short question stays whole.
. "$(dirname "$0")/common.sh"

recent=32
settings recent
shared prefill | kv-score --method random | kv-evict --rate "$rate" --recent "$recent" -o "$out"
report

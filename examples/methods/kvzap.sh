#!/bin/sh
# KVzap (2026): the rows that a gate rates highly from their hidden states, over all layers and KV
# heads together, and the last `recent`. `gate` is the folder of the model's gate, as it is
# published, or as train/gates.py makes it. Its authors choose by a threshold (DMS), which is no
# share of the rows: with `threshold` the rate is not used, nor with `budgets`, a file for
# kv-evict --budgets, which gives KV heads budgets of their own.
. "$(dirname "$0")/common.sh"

gate='' budgets='' recent=128 threshold=''
settings gate budgets recent threshold
[ -n "$gate" ] || die "$model has no gate of KVzap: name its folder with -s gate=DIR"
[ -d "$gate" ] || die "there is no folder $gate"
set -- ${budgets:+--budgets "$budgets"} ${threshold:+--threshold "$threshold"}
[ $# -gt 0 ] || set -- --policy global --rate "$rate"
shared prefill --gate "$gate" | kv-score --method kvzap | kv-evict "$@" --recent "$recent" -o "$out"
report

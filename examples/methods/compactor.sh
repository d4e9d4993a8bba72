#!/bin/sh
# Compactor (Chari, Van Durme 2025): rows whose keys few others repeat, and that the rows of their
# chunk attend to. Setting as on the leaderboard of kvpress: KV heads share their budget as in
# AdaKV; `blend` weighs the first part (none: the share of the rows that goes, as kvpress has it).
. "$(dirname "$0")/common.sh"

blend='' policy=ada-kvpress sketch=0
settings blend policy sketch
[ -n "$blend" ] ||
	blend=$(awk -v rate="$rate" 'BEGIN { print 1 - (sub(/%$/, "", rate) ? rate / 100 : rate) }')
shared prefill --noncausal 8 | kv-score --method compactor --blend "$blend" --sketch "$sketch" |
	kv-evict --policy "$policy" --rate "$rate" -o "$out"
report

#!/bin/sh
# LagKV (Liang et al. 2025): the rows that differ most from those behind them, of each partition of
# `lag` rows the same share.
. "$(dirname "$0")/common.sh"

sink=4 lag=128
settings sink lag
shared prefill | kv-score --method lagkv --sink "$sink" --lag "$lag" |
	kv-evict --rate "$rate" -o "$out"
report

#!/bin/sh
# CapKV (kvpress's CapPress): the rows that add most to the capacity of the values that queries of
# the next `future` positions read.
. "$(dirname "$0")/common.sh"

sink=4 future=512
settings sink future
shared prefill --query-stats | kv-score --method capkv --sink "$sink" --future "$future" |
	kv-evict --rate "$rate" -o "$out"
report

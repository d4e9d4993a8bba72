#!/bin/sh
# ShadowKV (Sun et al. 2024): each step reads the values of the chunks of 8 rows whose landmarks look best, and makes their keys from
# two factors, of half the rank here. Outliers and the last chunks are read on top of the rate, with their keys; the 48 outliers of the
# paper would be most of a short prompt.
. "$(dirname "$0")/common.sh"

kv-prefill -q -m "$model" "$prompt" | kv-index --low-rank --rank 32 --outliers 6 -o "$out"
retrieve shadow

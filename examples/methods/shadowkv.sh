#!/bin/sh
# ShadowKV (Sun et al. 2024): each step reads the values of the chunks of 8 rows whose landmarks
# look best, and makes their keys from two factors. Outliers and the last chunks are read on top of
# the rate, with their keys.
#
# The paper has rank 160, where the keys of a row have 1024 elements in all KV heads, and 48
# outliers, in long texts. Unless given the rank is 160, but at most half of these elements;
# outliers are 48, but at most one of 20 chunks.
. "$(dirname "$0")/common.sh"

outliers='' rank=''
settings outliers rank
outliers=${outliers:-$(least 48 $(($(tokens) / 160)))}
[ -n "$rank" ] || {
	query_heads=$(config num_attention_heads)
	hidden=$(config hidden_size)
	width=$(config head_dim $((hidden / query_heads)))
	kv_heads=$(config num_key_value_heads "$query_heads")
	rank=$(least 160 $((kv_heads * width / 2)))
}
shared prefill | quantised | kv-index --low-rank --rank "$rank" --outliers "$outliers" -o "$out"
retrieve shadow

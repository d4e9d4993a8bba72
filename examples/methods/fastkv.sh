#!/bin/sh
# FastKV (Jo et al. 2025): layers after the TSP layer run on a share `tsp_rate` of the tokens, a
# fifth; the cache has its own rate, of all tokens in every layer.
#
# The TSP layer, counted from 0, belongs to the model. Unless given it is half of the layers less
# one: the paper has 15 of 32 and 17 of 36. `kv-tsp-layer` measures it, over prompts. Window, kernel
# and pooling are those of the authors' evaluation.
. "$(dirname "$0")/common.sh"

kernel=7 layer='' pool=max tsp_rate=0.2 window=8
settings kernel layer pool tsp_rate window
[ -n "$layer" ] || { layers=$(config num_hidden_layers); layer=$((layers / 2 - 1)); }
shared prefill --select "tsp layer=$layer rate=$tsp_rate window=$window kernel=$kernel pool=$pool" \
	--observe "$window" |
	kv-score --method snapkv --kernel "$kernel" --pool "$pool" |
	kv-evict --rate "$rate" --of tokens -o "$out"
report

#!/bin/sh
# FastKV as its Algorithm 1 has it: each layer is thinned out before the next one begins, also
# behind the TSP layer, so that only one layer is ever whole. The settings are those of fastkv.sh,
# and so are the rows that stay.
. "$(dirname "$0")/common.sh"

kernel=7 layer='' pool=max tsp_rate=0.2 window=8
settings kernel layer pool tsp_rate window
[ -n "$layer" ] || { layers=$(config num_hidden_layers); layer=$((layers / 2 - 1)); }
prefill --select "tsp layer=$layer rate=$tsp_rate window=$window kernel=$kernel pool=$pool" \
	--observe "$window" --score "snapkv kernel=$kernel pool=$pool" \
	--evict "rate=$rate of=tokens" -o "$out"
report

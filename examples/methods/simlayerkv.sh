#!/bin/sh
# SimLayerKV (Zhang et al. 2024): layers whose last query looks only at the first `sink` and the
# last `recent` rows keep only these; the others keep all. The rate has no say in it. `lazy` is the
# share of attention that decides: 0.9 is for Llama 3.
. "$(dirname "$0")/common.sh"

sink=4 recent=1024 lazy=0.9
settings sink recent lazy
shared prefill --observe 1 |
	kv-score --method simlayer --sink "$sink" --recent "$recent" --lazy "$lazy" |
	kv-evict --threshold 1 -o "$out"
report

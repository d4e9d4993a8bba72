#!/bin/sh
# R-KV (Cai et al. 2025): the rows that the last queries attend to and whose keys few others repeat,
# after the prompt and after every 128 tokens of the answer. Settings are those of the authors'
# program.
. "$(dirname "$0")/common.sh"

window=8 kernel=7 lambda=0.07
settings window kernel lambda
budget=$(share_of "$(tokens)")
shared prefill --observe "$window" | kv-score --method rkv --kernel "$kernel" --lambda "$lambda" |
	kv-evict --keep-queries --budget "$budget" -o "$out"
report --every 128 --score "rkv window=$window kernel=$kernel lambda=$lambda" \
	--evict "budget=$budget"

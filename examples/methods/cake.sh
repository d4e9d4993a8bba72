#!/bin/sh
# CAKE (Qin et al. 2025): rows that the window attends to, steadily or now and then; layers share
# one budget by how evenly and how variably their attention is spread. The authors choose tau1 and
# tau2 for each model and budget.
. "$(dirname "$0")/common.sh"

window=32 kernel=5 gamma=200 tau1=1 tau2=1
settings window kernel gamma tau1 tau2
shared prefill --observe "$window" | kv-score --method cake --kernel "$kernel" --gamma "$gamma" |
	kv-evict --policy cake --tau1 "$tau1" --tau2 "$tau2" --rate "$rate" -o "$out"
report

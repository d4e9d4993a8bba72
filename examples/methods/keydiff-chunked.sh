#!/bin/sh
# KeyDiff as its paper has it: the prompt is read in blocks of `chunk` tokens, and after each of
# them the budget's rows with the most different keys stay, of the old ones and of the block
# together. So there is never more in memory than the budget and a block.
. "$(dirname "$0")/common.sh"

chunk=128
settings chunk
budget=$(share_of "$(tokens)")
parts "$chunk"
for part in "$work"/part.*; do
	set --
	[ ! -e "$out" ] || set -- -r "$out"
	kv-prefill -q -m "$model" --ids --no-template "$@" "$part" | kv-score --method keydiff |
		kv-evict -q --budget "$budget" -o "$out"
done
report

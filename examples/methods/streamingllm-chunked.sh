#!/bin/sh
# StreamingLLM as it is meant: sinks and the latest rows while the text is read in parts of `chunk`
# tokens, with positions that do not grow with it.
. "$(dirname "$0")/common.sh"

chunk=128
settings chunk
budget=$(share_of "$(tokens)")
parts "$chunk"
for part in "$work"/part.*; do
	set --
	[ ! -e "$out" ] || set -- -r "$out"
	kv-prefill -q -m "$model" --ids --no-template "$@" "$part" | kv-score --method recent |
		kv-evict -q --budget "$budget" --positions compact -o "$out"
done
report

#!/bin/sh
# The oracle: the rows that the answer itself looks at. The full cache answers; these tokens are run
# once more behind the prompt, and the mean of the attention that they pay ranks the rows (the
# importance that LookaheadKV is trained to predict).
#
# It cannot be used in practice, since it needs the answer before it begins: what a method that
# scores the prompt once would do at best. Up to `draft` tokens of the answer count, as many as
# there may be unless given. Kernel and pooling are LookaheadKV's; kernel=1 does not pool.
. "$(dirname "$0")/common.sh"

draft='' kernel=7 pool=max
settings draft kernel pool

# observe_answer TOKENS STOP: the snapshot with the queries of the full cache's answer
observe_answer() {
	set -- "$1" ${2:+--stop "$2"}
	shared prefill >"$work/full.kv"
	kv-decode -q -m "$model" --ids -n "$@" "$work/full.kv" >"$work/answer.ids"
	kv-observe -q -m "$model" --ids-from "$work/answer.ids" "$work/full.kv"
}

shared observe_answer "${draft:-$answer}" "$stop" |
	kv-score --method snapkv --kernel "$kernel" --pool "$pool" |
	kv-evict --rate "$rate" -o "$out"
report

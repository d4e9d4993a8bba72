#!/bin/sh
# Pipelines about what an answer looks at: score_agreement.py, retrieval_recall.py and
# adjacent_overlap.py run this file for each question, with the options of
# examples/methods/common.sh. $PIPES is shell text. Besides the functions of common.sh it sees those
# below; snapshots go to standard output.
#
# The answer is the full cache's, up to -n tokens and -S text, or the ids of the file that $GIVEN
# names. If $QUESTION names a file of ids, the prompt is a context, and the question comes behind
# it: the pipelines do not see it, and the answer does.
# shellcheck source=../examples/methods/common.sh
. "$KVPIPE_METHODS/common.sh"

adapter=''
gate=''
retriever=''
settings adapter gate retriever

# full: the prompt, with its last 64 queries, the attention that its rows have received, query
# statistics and norms of value outputs
full() {
	shared prefill --observe 64 --mass --query-stats --value-norms
}

# repeated: with the attention that the repeated text pays (kvzip.sh)
repeat_full() {
	full | kv-observe -q -m "$model" --repeat-context
}

repeated() {
	shared repeat_full
}

# weighed: the same as KVzip+ has it (kvzip-plus.sh); again: of the text alone (kvcompose.sh)
weigh_full() {
	full | kv-observe -q -m "$model" --repeat-context --value-norms
}

weighed() {
	shared weigh_full
}

run_again() {
	full | kv-observe -q -m "$model" --repeat-context --sink 0 --instruction ""
}

again() {
	shared run_again
}

# answer_ids: the tokens of the answer
answer_ids() {
	if [ -n "${GIVEN:-}" ]; then cat "$GIVEN"; else shared decode_full "$answer" "$stop"; fi
}

# decode_full TOKENS STOP
decode_full() {
	full >"$work/whole.kv"
	if [ -n "${QUESTION:-}" ]; then
		kv-prefill -q -m "$model" --ids -r "$work/whole.kv" -o "$work/asked.kv" "$QUESTION"
		mv "$work/asked.kv" "$work/whole.kv"
	fi
	kv-decode -q -m "$model" --ids -n "$1" ${2:+--stop "$2"} "$work/whole.kv"
}

# answer_seen: with the queries of the answer, in place of those of the prompt
answer_seen() {
	shared see_full "$(answer_ids)"
}

# see_full IDS
see_full() {
	full >"$work/whole.kv"
	see "$1" "$work/whole.kv"
}

# see IDS SNAPSHOT
see() {
	[ -n "$1" ] || die "the answer has no token"
	{
		[ -z "${QUESTION:-}" ] || cat "$QUESTION"
		printf '%s\n' "$1"
	} >"$work/answer.ids"
	kv-observe -q -m "$model" --ids-from "$work/answer.ids" "$2"
}

# window_of_answer: words of kv-score for the queries of the answer alone, not those of a question
window_of_answer() {
	[ -z "${QUESTION:-}" ] || echo "--window $(answer_ids | wc -l)"
}

# drafted RATE: with the queries of a draft and the last 8 of the prompt, as laq.sh has them
drafted() {
	full >"$work/whole.kv"
	kv-score --method snapkv --window 32 --kernel 7 --pool max "$work/whole.kv" |
		kv-evict --rate "$1" |
		kv-decode -q -m "$model" -n 32 --ids >"$work/draft.ids"
	kv-observe -q -m "$model" --ids-from "$work/draft.ids" --keep-window 8 "$work/whole.kv"
}

# looked_ahead: with what the learned tokens of $adapter look at
looked_ahead() {
	[ -n "$adapter" ] || die "$model has no adapter: name one with --adapter"
	full | kv-observe -q -m "$model" --lookahead "$adapter"
}

# gated: with what the gate $gate says
gated() {
	[ -n "$gate" ] || die "$model has no gate: name one with --gate"
	shared prefill --gate "$gate"
}

# method_seen METHOD: the snapshot that a script of examples/methods lets the model answer from,
# with the queries of the answer
method_seen() {
	sh "$here/$1.sh" -i -m "$model" -r "$rate" ${cache:+-c "$cache"} -o "$work/$1.kv" "$prompt"
	see "$(answer_ids)" "$work/$1.kv"
}

eval "$PIPES"

#!/bin/sh
# A method that a configuration states as three texts: $PREFILL, options of kv-prefill; $KEEP, a pipeline from its snapshot to the one that
# the answer begins with; $DECODE, options of kv-decode. $KEEP sees the variables and functions of examples/methods/common.sh: $rate,
# $model, $work, share_of, tokens.
. "$KVPIPE_METHODS/common.sh"

settings
# shellcheck disable=SC2086 # words
shared prefill $PREFILL >"$work/in.kv"
eval "$KEEP" <"$work/in.kv" >"$out"
# shellcheck disable=SC2086
report $DECODE

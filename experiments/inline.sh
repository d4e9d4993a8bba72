#!/bin/sh
# A method that a configuration states as three texts: $PREFILL, options of kv-prefill; $KEEP, a
# pipeline from its snapshot to the one that the answer begins with; $DECODE, options of kv-decode.
# All three are read as the shell reads them, and see the variables and functions of
# examples/methods/common.sh ($model, $work, share_of, tokens), and what was asked for as $rate and
# as $budget, rows of each KV head, whichever of the two the configuration states.
. "$KVPIPE_METHODS/common.sh"

settings
# shellcheck disable=SC2034 # for the three texts
budget=$(share_of "$(tokens)")
eval "shared prefill $PREFILL" >"$work/in.kv"
eval "$KEEP" <"$work/in.kv" >"$out"
eval "report $DECODE"

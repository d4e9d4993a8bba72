#!/bin/sh
# LookaheadKV (2026): learned tokens behind the prompt stand for the answer that has not begun; each
# layer is scored by what they look at, and thinned out before the next one begins.
#
# They belong to the model: `adapter` is the folder of kv-adapter(5),
# which train/lookahead.py makes. Kernel and pooling are the paper's. With `budgets`, a file for
# kv-evict --budgets, KV heads have budgets of their own, and the rate is not used.
. "$(dirname "$0")/common.sh"

adapter='' budgets='' kernel=7 pool=max
settings adapter budgets kernel pool
[ -n "$adapter" ] || die "$model has no adapter: name one with -s adapter=FOLDER"
[ -e "$adapter" ] || die "there is no adapter $adapter"
evict="rate=$rate"
[ -z "$budgets" ] || evict="budgets=$(word "$budgets") sink=4"
prefill --score "lookahead=$(word "$adapter") kernel=$kernel pool=$pool" --evict "$evict" -o "$out"
report

#!/bin/sh
# LookaheadKV (2026): learned tokens behind the prompt stand for the answer that has not begun; each
# layer is scored by what they look at, and thinned out before the next one begins.
#
# They belong to the model: `adapter` is the folder of kv-adapter(5),
# which train/lookahead.py makes. Kernel and pooling are the paper's.
. "$(dirname "$0")/common.sh"

adapter='' kernel=7 pool=max
settings adapter kernel pool
[ -n "$adapter" ] || die "$model has no adapter: name one with -s adapter=FOLDER"
[ -e "$adapter" ] || die "there is no adapter $adapter"
prefill --score "lookahead=$(word "$adapter") kernel=$kernel pool=$pool" \
	--evict "rate=$rate" -o "$out"
report

#!/bin/sh
# KIVI: the whole cache, keys quantised by channel and values by token (Liu et al. 2024), in 2 bits,
# the last 128 rows full. The rate means nothing here. 4 bits: -s keys=kivi4 -s values=kivi4. Other
# methods keep their rows in these types with -s keys=kivi2 -s values=kivi2. Heads must be as wide
# as a multiple of 32.
. "$(dirname "$0")/common.sh"

keys=kivi2 values=kivi2 residual=128
settings
shared prefill >"$out"
report

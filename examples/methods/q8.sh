#!/bin/sh
# 8-bit rows: the whole cache, with keys and values in q8_0 (ggml's blocks of 32 channels). The rate
# means nothing here.
. "$(dirname "$0")/common.sh"

keys=q8_0 values=q8_0
settings
shared prefill >"$out"
report

#!/bin/sh
# 4-bit rows: the whole cache, with keys and values in q4_0 (ggml's blocks of 32 channels) after a
# Hadamard transform, as llama.cpp stores them. The rate means nothing here. Models whose heads are
# no power of 2 wide want -s keys=q4_0 -s values=q4_0.
. "$(dirname "$0")/common.sh"

keys=q4_0-hadamard values=q4_0-hadamard
settings
shared prefill >"$out"
report

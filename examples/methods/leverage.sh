#!/bin/sh
# Leverage of keys before rotary embedding (Compactor, kvpress's LeverageScorePress): the rows whose
# keys point where few others do. `sketch` is the width to which keys are projected at random, 48 in
# kvpress; 0 is exact.
. "$(dirname "$0")/common.sh"

sketch=0
settings sketch
shared prefill | kv-score --method leverage --sketch "$sketch" | kv-evict --rate "$rate" -o "$out"
report

#!/bin/sh
# FIER: all rows stay, and each step reads those whose keys look best in one bit a channel. `group`
# rows, one after another, share the scale of a channel: 16, 32 (the paper's), 64 or 128.
. "$(dirname "$0")/common.sh"

group=32
settings group
shared prefill | quantised | kv-quantize1b --group "$group" -o "$out"
retrieve fier

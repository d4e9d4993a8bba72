#!/bin/sh
# FIER: all rows stay, and each step reads those whose keys look best in one bit a channel.
. "$(dirname "$0")/common.sh"

settings
shared prefill | kv-quantize1b -o "$out"
retrieve fier

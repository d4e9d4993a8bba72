#!/bin/sh
# Quest (Tang et al. 2024): all rows stay, and each step reads the pages of 16 rows whose bounds allow the greatest scores.
. "$(dirname "$0")/common.sh"

settings
shared prefill | kv-index --pages -o "$out"
retrieve quest

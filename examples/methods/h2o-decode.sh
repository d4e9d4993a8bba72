#!/bin/sh
# H2O as in its paper: heavy hitters and latest rows in equal parts,
# after the prompt and after every token of the answer.
. "$(dirname "$0")/common.sh"

settings
budget=$(share_of "$(tokens)")
recent=$((budget / 2))
shared prefill --mass | kv-score --method h2o |
	kv-evict --budget "$budget" --recent "$recent" -o "$out"
report --score h2o --evict "budget=$budget recent=$recent"

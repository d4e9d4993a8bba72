#!/bin/sh
# CriticalKV (Feng et al. 2025) on SnapKV: half of the rows by SnapKV's score, the others also by
# what their values add to the residual stream. `policy` ada-kvpress is CriticalAdaKV. `epsilon` is
# the authors' 1e-4, added to the mean over the queries of the window, which are summed here.
. "$(dirname "$0")/common.sh"

window=64 kernel=5 policy=uniform epsilon=1e-4
settings window kernel policy epsilon
shared prefill --observe "$window" --value-norms |
	kv-score --method snapkv --window "$window" --kernel "$kernel" |
	kv-evict --policy "$policy" --rate "$rate" --first-stage 0.5 \
		--epsilon "$(awk -v e="$epsilon" -v w="$window" 'BEGIN { print e * w }')" -o "$out"
report

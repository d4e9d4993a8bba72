#!/usr/bin/env bats
# The vectors of formats/: what kv-info prints of each accepted one. `make expect` writes the files again; review the difference.

load helper

@test "kv-info --all prints every accepted vector as recorded" {
	cd "$ROOT/formats/vectors/passed"
	for f in *.kv; do
		kv-info --all "$f" | diff "${f%.kv}.txt" - || { echo "$f differs"; return 1; }
	done
}

@test "passing an accepted vector through kv-evict --rate 1 keeps its logical digest" {
	cd "$ROOT/formats/vectors/passed"
	for f in *.kv; do
		[ "$f" = unknown-head-key.kv ] && continue       # a tool writes the keys it knows
		kv-score --method recent --sink 0 "$f" | kv-evict --rate 1 -o "$BATS_TEST_TMPDIR/out.kv"
		[ "$(logical "$f")" = "$(logical "$BATS_TEST_TMPDIR/out.kv")" ] || { echo "$f differs"; return 1; }
	done
}

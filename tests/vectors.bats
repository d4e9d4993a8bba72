#!/usr/bin/env bats
# bats file_tags=slow
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
		in_sample 4 || continue
		[ "$f" = unknown-head-key.kv ] && continue       # a tool writes the keys it knows
		[[ $f = kivi-* || $f = residual-* ]] && continue   # whose rows are not dropped one by one
		kv-score --method recent --sink 0 "$f" | kv-evict --rate 1 -o "$BATS_TEST_TMPDIR/out.kv"
		[ "$(logical "$f")" = "$(logical "$BATS_TEST_TMPDIR/out.kv")" ] || { echo "$f differs"; return 1; }
	done
}

@test "kv-quantize1b and kv-index make of the vectors' keys the entries that are in the vectors" {
	cd "$BATS_TEST_TMPDIR"
	for what in extremes-bf16,16,8 extremes-f16,16,8 extremes-f32,16,8 ragged,16,3 ragged-32,32,16 ragged-64,64,2 no-rows,128,65536; do
		IFS=, read -r name group page <<<"$what"
		f=$ROOT/formats/vectors/passed/indexes-$name.kv
		strip bITS "$f" some.kv
		strip pAGE some.kv bare.kv
		[ "$(see bare.kv '[l.bits or l.pages for l in s.layers]')" = None ]
		kv-quantize1b -g "$group" bare.kv | kv-index --pages --page "$page" -o out.kv
		for index in bits pages; do
			[ "$(see out.kv "[l.$index for l in s.layers]")" = "$(see "$f" "[l.$index for l in s.layers]")" ] || { echo "$name: other $index"; return 1; }
		done
	done
}

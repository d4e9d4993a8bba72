#!/usr/bin/env bats
# The helpers for experiments (tests/kvpipe/load.bash): that they hold when they should, and fail when they should

load helper

setup_file() {
	cd "$BATS_FILE_TMPDIR" || return
	kv-prefill -m "$DEMO" --observe 16 -o full.kv "$ROOT/examples/prompts/harbour.txt"
	kv-prefill -m "$DEMO" --observe 16 -z -o lz4.kv "$ROOT/examples/prompts/harbour.txt"
	for rate in 0.1 0.2; do
		kv-score --method snapkv --kernel 7 full.kv | kv-evict --rate $rate -o snapkv-$rate.kv
	done
	kv-score --method recent full.kv | kv-evict --rate 0.1 -o recent.kv
}

setup() {
	cd "$BATS_FILE_TMPDIR" || return
	export BATS_LIB_PATH=$ROOT/tests:${BATS_LIB_PATH:-}
	bats_load_library kvpipe
}

@test "kv_run fails when any program of the pipeline fails" {
	kv_run "kv-score --method knorm full.kv | kv-evict --budget 9 | kv-check -"
	run ! kv_run "kv-score --method nothing full.kv | cat"
}

@test "kv_fact and kv_answer print one value" {
	assert_equal "$(kv_fact full.kv tokens)" 982
	assert_equal "$(kv_fact full.kv dtype)" bf16
	assert_equal "$(kv_answer "$DEMO" full.kv)" " L047"
}

@test "assert_kept compares the share of rows" {
	assert_kept snapkv-0.1.kv 0.1
	assert_kept snapkv-0.1.kv 10%
	run -1 assert_kept snapkv-0.1.kv 0.2
	assert_output --partial "are kept, not 0.2"
}

@test "assert_rows looks at every KV head" {
	assert_rows recent.kv 98
	run -1 assert_rows recent.kv 97
	assert_output --partial "layer 0 KV head 0: 98 rows, not 97"
}

@test "assert_keeps names the first position that is not there" {
	assert_keeps recent.kv 0 3
	assert_keeps recent.kv 981
	run -1 assert_keeps recent.kv 0 4
	assert_output "recent.kv: layer 0 KV head 0 lacks position 4"
}

@test "assert_overlap compares the rows of two snapshots" {
	assert_overlap snapkv-0.1.kv snapkv-0.2.kv 1
	assert_overlap snapkv-0.2.kv snapkv-0.1.kv 50%
	run -1 assert_overlap snapkv-0.2.kv snapkv-0.1.kv 51%
	assert_output "snapkv-0.1.kv has 0.5 of the rows of snapkv-0.2.kv, not 51%"
}

@test "assert_footprint_below, assert_memory_below and assert_peak_below measure what was run" {
	local text=$BATS_TEST_TMPDIR/text
	head -c 1500 "$ROOT/examples/prompts/harbour.txt" >"$text"
	kv-prefill -m "$DEMO" "$text" | kv-score --method recent | kv-evict --budget 50 |
		kv-prefill -m "$DEMO" -r - -o chunks.kv "$ROOT/examples/prompts/harbour.txt"
	assert_footprint_below chunks.kv 95%
	assert_memory_below chunks.kv 95%
	assert_peak_below chunks.kv 0.95
	kv-prefill -m "$DEMO" --score knorm --evict rate=0.1 -o fused.kv "$text"
	assert_memory_below fused.kv 33%
	run -1 assert_memory_below fused.kv 30%
	assert_output --regexp "^fused.kv: the memory is 0\.3[0-9]+ of the full cache's, not below 30%"
	run -1 assert_footprint_below fused.kv 1
	run -1 assert_footprint_below full.kv 1
	assert_output "full.kv: the footprint is 1.0 of the full cache's, not below 1"
	run -1 assert_peak_below chunks.kv 10%
	assert_output --regexp "the peak is 0\.[0-9]+ of the full cache's, not below 10%"
	assert_footprint_below full.kv 1.001
	mksnapshot -o nolog.kv
	run -1 assert_footprint_below nolog.kv 1
}

@test "assert_answer and refute_answer read what the model says" {
	assert_answer "$DEMO" snapkv-0.1.kv L047
	refute_answer "$DEMO" recent.kv L047
	run -1 assert_answer "$DEMO" recent.kv L047
	run -1 refute_answer "$DEMO" full.kv L047
}

@test "assert_same_snapshot sees through compression, and sees a lost row" {
	assert_same_snapshot full.kv lz4.kv
	run -1 assert_same_snapshot full.kv snapkv-0.1.kv
}

@test "assert_same_rows and assert_subset compare positions" {
	assert_same_rows full.kv lz4.kv
	assert_subset snapkv-0.1.kv snapkv-0.2.kv
	run -1 assert_same_rows snapkv-0.1.kv recent.kv
	assert_output --partial "first in layer 0 KV head 0"
	run -1 assert_subset snapkv-0.1.kv recent.kv
	assert_output --regexp 'lacks layer [0-9]+ KV head [0-9]+ position [0-9]+'
}

@test "the example experiment holds" {
	run -0 env PATH="$PATH" bats "$ROOT/examples/experiments/window.bats"
}

@test "claims about a model that is not there are skipped" {
	run env -u SMOLLM2 bats "$ROOT/examples/experiments/claims.bats"
	assert_success
	assert_output --partial "# skip SMOLLM2 names no model folder"
}

# Standard error without the progress of compare.sh, which a slow machine has.
said() {
	grep -v '^compare.sh: [0-9]* of [0-9]* runs' <<<"$stderr"
}

@test "assert_better wants more documents right, and a p that is small enough" {
	assert_better snapkv streamingllm 0.1 -n 6
	run -1 --separate-stderr assert_better streamingllm snapkv 0.1 -n 6
	assert_equal "$(said)" "streamingllm at 0.1: 0 right that snapkv has not, and 6 the reverse, of 6: p 0.031"
	KV_P=0.01 run -1 --separate-stderr assert_better snapkv streamingllm 10% -n 6
	assert_equal "$(said)" "snapkv at 10%: 6 right that streamingllm has not, and 0 the reverse, of 6: p 0.031"
	run -1 --separate-stderr assert_better snapkv streamingllm 0.1 -n 5
	assert_equal "$(said)" "snapkv at 0.1: 5 right that streamingllm has not, and 0 the reverse, of 5: p 0.062"
	run -2 --separate-stderr assert_better snapkv nothing 0.1 -n 5
	assert_regex "$stderr" "there is no .*/methods/nothing.sh"
}

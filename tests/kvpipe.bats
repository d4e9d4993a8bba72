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

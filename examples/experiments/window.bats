#!/usr/bin/env bats
# An experiment: how wide must SnapKV's observation window be, and its pooling, for the answer to survive?
#
#     bats examples/experiments/window.bats
#
# Each test is a sentence about a method; bats says which of them hold. Programs come from the PATH (or ../../build), the
# helpers from lib/bats/kvpipe of an installation (or ../../tests).

bats_require_minimum_version 1.5.0

setup_file() {
	local examples
	examples=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
	export MODEL=$examples/demo-model ANSWER
	ANSWER=$(cat "$examples/prompts/harbour.answer")
	command -v kv-prefill >/dev/null || export PATH=$examples/../build:$PATH
	cd "$BATS_FILE_TMPDIR" || return
	kv-prefill -m "$MODEL" --observe 32 -o full.kv "$examples/prompts/harbour.txt"
}

setup() {
	export BATS_LIB_PATH=$BATS_TEST_DIRNAME/../../tests:$BATS_LIB_PATH
	bats_load_library kvpipe
	cd "$BATS_FILE_TMPDIR" || return
}

snapkv() {
	kv_run "kv-score --method snapkv --window $1 --kernel $2 full.kv | kv-evict --rate $3 -o small.kv"
}

@test "a window of 16 and a kernel of 7 keep the answer in a tenth of the rows" {
	snapkv 16 7 0.1
	assert_kept small.kv 10%
	assert_answer "$MODEL" small.kv "$ANSWER"
}

@test "without pooling the answer is lost" {
	snapkv 16 1 0.1
	refute_answer "$MODEL" small.kv "$ANSWER"
}

@test "a fifth of the rows contains the tenth" {
	snapkv 16 7 0.1
	mv small.kv tenth.kv
	snapkv 16 7 0.2
	assert_subset tenth.kv small.kv
}

@test "StreamingLLM keeps as many rows and not the answer" {
	kv_run "kv-score --method recent full.kv | kv-evict --rate 0.1 -o recent.kv"
	assert_rows recent.kv 98
	refute_answer "$MODEL" recent.kv "$ANSWER"
}

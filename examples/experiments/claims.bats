#!/usr/bin/env bats
# Which of two methods answers more: claims of the papers, and of this project, on SmolLM2
#
#     SMOLLM2=build/smollm2 bats examples/experiments/claims.bats
#
# examples/smollm2/folder.sh makes it. Documents are 40 of seven kinds of questions that
# train/heldout.py makes; DOCUMENTS names a folder of others (*.txt and *.answer). A claim holds when
# the exact sign test over the documents has p of at most 0.05. A claim that does not hold is not
# disproved: 40 documents may be too few.

bats_require_minimum_version 1.5.0

setup_file() {
	local tree
	tree=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	[ -n "${SMOLLM2:-}" ] || return 0
	SMOLLM2=$(cd "$SMOLLM2" && pwd)
	export SMOLLM2 DOCUMENTS=${DOCUMENTS:-$BATS_FILE_TMPDIR/documents}
	command -v kv-prefill >/dev/null || export PATH=$tree/build:$PATH
	[ -e "$DOCUMENTS" ] ||
		"${PYTHON:-python3}" "$tree/train/heldout.py" -m "$SMOLLM2" -o "$DOCUMENTS" -n 40 --seed 1
}

setup() {
	[ -n "${SMOLLM2:-}" ] || skip "SMOLLM2 names no model folder"
	export BATS_LIB_PATH=$BATS_TEST_DIRNAME/../../tests:${BATS_LIB_PATH:-}
	bats_load_library kvpipe
}

# better A B RATE
better() {
	assert_better "$@" -d "$DOCUMENTS" -m "$SMOLLM2" -C "$BATS_TEST_DIRNAME/../smollm2/kvpipe-methods.conf"
}

@test "learned tokens find what the end of the prompt does not: LookaheadKV beats SnapKV with a tenth of the rows" {
	better lookaheadkv snapkv 0.1
}

@test "a draft of the answer knows what the answer looks at: LAQ beats SnapKV with a tenth" {
	better laq snapkv 0.1
}

@test "reading the prompt again finds more than the rows that are unlike others: KVzip beats KeyDiff with a tenth" {
	better kvzip keydiff 0.1
}

@test "rows that look alike matter less than the last ones: KeyDiff beats StreamingLLM with a fifth" {
	better keydiff streamingllm 0.2
}

@test "rows are chosen better one by one than by pages: FIER beats Quest with a tenth read" {
	better fier quest 0.1
}

#!/usr/bin/env bats
# bats file_tags=slow
# tests/gpu/run.sh, which is for machines with a GPU, on the emulator: so that the script, its benchmarks and its comparisons work when
# there is one

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	export NO_BUILD=1
}

# stages STAGE ...: on the emulator, into the folder out
stages() {
	run sh "$ROOT/tests/gpu/run.sh" -e -b "$O" -o out "$@"
}

@test "run.sh: primitives, ops, pipelines on both devices, benchmarks, and one table of all" {
	METHODS='snapkv-fused h2o-decode fier' stages environment build primitives ops pipelines bench sanitizer
	assert_success
	for stage in environment primitives ops pipelines bench; do
		assert_line --regexp "^$stage +[0-9]+ s  passed$"
	done
	assert_line --regexp '^build +[0-9]+ s  skip: NO_BUILD is set$'
	assert_line --regexp '^sanitizer +[0-9]+ s  skip: not on the emulator$'
	assert_line --regexp '^attend decode 32/8 E 128 S 300 .*$'
	assert_line --regexp '^attend_mass / attend +[0-9.]+  \(bench\)$'
	assert_line --regexp '^column sums: time, attention = 1 +<=0\.6 +[0-9.]+  (reached|MISSED)$'
	assert_line --regexp '^attention, 80 rows: speed, flash = 1 +>=1 +-$'
	run cat out/pipelines.log
	assert_line --regexp '^same +fier +100\.00 .* K742$'
	assert_line --regexp '^prefill: output error 0\.00[0-9]*, mass 1\.0'
	assert_line --regexp '^keydiff: 2[0-9]* rows kept on both devices'
}

@test "run.sh: whole models, and what was aimed at beside what was measured" {
	stages model fier
	assert_success
	assert_line --regexp '^model +[0-9]+ s  (passed|skip: no PyTorch)$'
	assert_line --regexp '^fier +[0-9]+ s  passed$'
	for aim in 'FastKV, 400: share of the possible speed-up +>=0\.95' 'scoring and eviction, 400: time, without = 1 +<=1\.01' \
		'FIER, step after 200: speed, full = 1 +>=1\.55'; do
		assert_line --regexp "^$aim +[0-9.]+  (reached|MISSED)\$"
	done
	run cat out/model.log
	assert_line --regexp '^kv-decode: 5 tokens in '
	assert_line --regexp '"what": "kvpipe tsp 400", "prefill ms": [0-9.]+, "TFLOP": [0-9.e-]+, "step ms": [0-9.]+, "step GB": '
	assert [ ! -e out/scratch ]
}

# instead_of PROGRAM: a build folder, broken, where the emulated program is the script on standard input
instead_of() {
	mkdir -p broken/emulated
	ln -s "$O"/kv-* broken
	ln -s "$O"/emulated/kv-* broken/emulated
	rm "broken/emulated/$1"
	cat >"broken/emulated/$1"
	chmod +x "broken/emulated/$1"
}

@test "run.sh: a GPU that scores otherwise fails the stage pipelines" {
	instead_of kv-score <<-END
		#!/bin/sh
		[ "\${KV_DEVICE:-}" != cuda ] || set -- --method recent --sink 0
		exec "$O/emulated/kv-score" "\$@"
	END
	O=$PWD/broken METHODS=laq stages pipelines
	assert_failure 1
	assert_line --regexp '^pipelines .* FAILED: exit 1$'
	run cat out/pipelines.log
	assert_line --regexp '^DIFFERENT +laq .* K742$'
}

@test "run.sh: a GPU that answers otherwise than the CPU fails the stage, and one that guesses otherwise does not" {
	instead_of kv-decode <<-END
		#!/bin/sh
		[ "\${KV_DEVICE:-}" = cuda ] || exec "$O/emulated/kv-decode" "\$@"
		"$O/emulated/kv-decode" "\$@" | sed "s/\$SAYS/another/"
	END
	O=$PWD/broken SAYS=K742 METHODS=fier stages pipelines
	assert_failure 1
	run cat out/pipelines.log
	assert_line --regexp '^DIFFERENT +full .* K742$'
	assert_line --regexp '^DIFFERENT +fier .* K742$'
	O=$PWD/broken SAYS=K7777 METHODS=streamingllm stages pipelines
	assert_success
	run cat out/pipelines.log
	assert_line --regexp '^same +full .* K742$'
	assert_line --regexp '^another guess streamingllm .* K7777$'
}

@test "run.sh: a stage that finds no time left is skipped" {
	stages -t 0 environment
	assert_success
	assert_line --regexp '^environment +[0-9]+ s  skip: no time left$'
}

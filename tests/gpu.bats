#!/usr/bin/env bats
# bats file_tags=slow,nosan
# tests/gpu/run.sh, which is for machines with a GPU, on the emulator: so that the script, its benchmarks, its comparisons and what it
# does when it is cut off work when there is one

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	export NO_BUILD=1
}

# stages STAGE ...: on the emulator, into the folder out
stages() {
	run sh "$ROOT/tests/gpu/run.sh" -e -b "$O" -o out "$@"
}

# instead_of PROGRAM: a build folder, broken, where the emulated program is the script on standard input
instead_of() {
	mkdir -p broken/emulated
	ln -s "$O"/kv-* broken
	ln -s "$O"/emulated/kv-* broken/emulated
	rm -f "broken/emulated/$1"
	cat >"broken/emulated/$1"
	chmod +x "broken/emulated/$1"
}

@test "run.sh: primitives, ops, pipelines on both devices, benchmarks, and one table of all" {
	METHODS='snapkv-fused h2o-decode fier' stages environment build primitives ops pipelines bench rest sanitizer
	assert_success
	for stage in environment primitives ops pipelines bench rest; do
		assert_line --regexp "^$stage +[0-9]+ s  passed$"
	done
	assert_line --regexp '^build +[0-9]+ s  skip: NO_BUILD is set$'
	assert_line --regexp '^sanitizer +[0-9]+ s  skip: not on the emulator$'
	assert_line --regexp '^attend decode 32/8 E 128 S 300 .* 1$'
	assert_line --regexp '^matmul N 92, 64 -> 100 .* no$'
	assert_line --regexp '^attend_mass / attend +[0-9.]+  \(bench\)$'
	assert_line --regexp '^column sums: time, attention = 1 +<=0\.6 +[0-9.]+  (reached|MISSED)$'
	assert_line --regexp '^attention, 80 rows: speed, flash = 1 +>=1 +(-  not measured: bench passed without it|[0-9.]+  MISSED)$'
	assert_line --regexp '^step after 400: speed, transformers = 1 +>=3 +-  not measured: model has not ended$'
	run cat out/pipelines.log
	assert_line --regexp '^[1-9][0-9]* kinds of calls: their kernels are right in [1-9][0-9]*$'
	assert_line --regexp '^same +fier +100\.00 .* K742$'
	assert_line --regexp '^prefill: output error 0\.00[0-9]*, mass 1\.0'
	assert_line --regexp '^keydiff: 2[0-9]* rows kept on both devices'
}

@test "run.sh: whole models, and what was aimed at beside what was measured" {
	stages model fier
	assert_success
	assert_line --regexp '^model +[0-9]+ s  passed$'
	assert_line --regexp '^fier +[0-9]+ s  passed$'
	for aim in 'FastKV, 400: share of the possible speed-up +>=0\.95' 'scoring and eviction, 400: time, without = 1 +<=1\.01' \
		'FIER, step after 200: speed, full = 1 +>=1\.55'; do
		assert_line --regexp "^$aim +[0-9.]+  (reached|MISSED)\$"
	done
	run cat out/model.log
	assert_line --regexp '^kv-decode: 5 tokens in '
	assert_line --regexp '"what": "kvpipe tsp 400", "prefill ms": [0-9.]+, "TFLOP": [0-9.e-]+, "step ms": [0-9.]+, "step GB": .*"graph": 1}$'
	run cat out/weights.log
	assert_line --regexp '^llama-2-7b: [0-9]+ s, in '
	assert [ ! -e out/scratch ]
	assert [ ! -e out/kvpipe-weights ]
}

@test "run.sh packs tables and logs into two files, and goes on from them on a machine that has nothing else" {
	METHODS=streamingllm stages -p packed environment primitives
	assert_success
	run ls -A packed
	assert_output $'gpu-run.tar.gz\ngpu-run.txt'
	run head -n 2 packed/gpu-run.txt
	assert_line --regexp '^ +aim +measured$'
	rm -r out
	# a stage that took long when it passed is known to take as long, and the one without a result is begun
	mkdir unpacked
	tar -xzf packed/gpu-run.tar.gz -C unpacked
	for stage in build ops bench model transformers rest pipelines profile again; do
		printf '%-12s %4d s  passed\n' "$stage" 1 >>unpacked/stages
	done
	printf '%-12s %4d s  FAILED: exit 139\n' fier 3 >>unpacked/stages
	printf '%-12s %4d s  skip: no time left: it takes 9 s, 1 s are left\n' sanitizer 0 >>unpacked/stages
	tar -czf packed/gpu-run.tar.gz -C unpacked .
	stages -p packed
	assert_success
	assert_line 'run 2, 530 s at most:'
	assert_line --regexp '^environment +[0-9]+ s  passed$'
	assert_line --regexp '^sanitizer +[0-9]+ s  skip: not on the emulator$'
	refute_line --regexp '^ops +[0-9]+ s about'
	assert_line --regexp '^FIER, step after 200: speed, full = 1 +>=1\.55 +-  not measured: fier died with 139$'
	assert [ -e out/primitives.log ]
}

@test "run.sh: a stage that does not fit any more is not begun, and one behind it that fits is" {
	mkdir out
	printf 'ops           400 s  passed\n' >out/stages
	stages -t 60 ops primitives
	assert_success
	assert_line --regexp '^ops +[0-9]+ s  skip: no time left: it takes 400 s, 5[0-9] s are left$'
	assert_line --regexp '^primitives +[0-9]+ s  passed$'
}

@test "run.sh: what a stage measured before it was cut off is kept, and it is begun once more, not twice" {
	instead_of bench_gpu <<-END
		#!/bin/sh
		echo '{"what": "attend_mass / attend", "ratio": 0.5}'
		sleep 60
	END
	O=$PWD/broken stages -t 9 bench
	assert_success
	assert_line --regexp '^bench +[0-9]+ s  cut off: the [0-9] s that were left$'
	assert_line --regexp '^column sums: time, attention = 1 +<=0\.6 +0\.500  reached$'
	O=$PWD/broken stages -n
	assert_line --regexp '^bench +1 s about'
	echo bench >>out/begun
	O=$PWD/broken stages -n
	refute_line --regexp '^bench +'
}

# a row of ncu --csv --page details
ncu_row() {
	printf '"%s","7","bench_gpu","127.0.0.1","%s","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","%s","%s","%s","%s"\n' "$@"
}

@test "run.sh: the profiler's table is read, and one that may not read counters is no failure" {
	mkdir bin
	{
		echo '==PROF== Connected to process 7'
		echo '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
		ncu_row 0 'void gemv<(int)8>(rows, float *)' 'GPU Speed Of Light Throughput' Duration us 12.5
		ncu_row 0 'void gemv<(int)8>(rows, float *)' 'GPU Speed Of Light Throughput' 'DRAM Throughput' % 91.2
		ncu_row 0 'void gemv<(int)8>(rows, float *)' Occupancy 'Achieved Occupancy' % 48.0
	} >ncu.csv
	printf '#!/bin/sh\ncat "%s/ncu.csv"\n' "$PWD" >bin/ncu
	chmod +x bin/ncu
	PATH=$PWD/bin:$PATH stages profile
	assert_success
	assert_line --regexp '^ncu decode: gemv<\(int\)8> +Duration us 12\.5  DRAM Throughput % 91\.2  Achieved Occupancy % 48\.0$'
	printf '#!/bin/sh\necho "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"\nexit 1\n' >bin/ncu
	PATH=$PWD/bin:$PATH stages profile
	assert_success
	assert_line --regexp "^profile +[0-9]+ s  skip: ncu may not read this GPU's counters, no nsys"
}

@test "bench_gpu: an op that should have been replayed from a graph and was not is a failure" {
	KV_EMULATED_FAILURE=cudaStreamBeginCapture:1 run "$O/emulated/bench_gpu" --tiny top
	assert_failure 1
	assert_line --regexp '"what": "top, 8 x 5000, k 550", .*"graph": 0'
	assert_line --regexp '"what": "top, 32 x 5000, k 550", .*"graph": 1'
	assert_line 'bench_gpu: top, 8 x 5000, k 550: not replayed from a graph'
}

# PyTorch is large: as much of it as torch.topk needs
@test "peers.py measures in turn with bench_gpu, and passes its rows on" {
	mkdir torch
	cat >torch/__init__.py <<-END
		import types
		__version__, version = "0", types.SimpleNamespace(cuda=None)
		bfloat16 = None
		cuda = types.SimpleNamespace(is_available=lambda: False)
		def randn(*shape, **how):
		    return [[float(i) for i in range(shape[-1])] for _ in range(shape[0])]
		def topk(x, k):
		    return [sorted(row)[-k:] for row in x]
	END
	PYTHONPATH=$PWD run /usr/bin/python3 "$ROOT/tests/gpu/peers.py" --tiny --beside "$O/emulated/bench_gpu" top
	assert_success
	for n in 8 32; do
		assert_line --regexp "^\{\"what\": \"top, $n x 5000, k 550\", .*\"graph\": 1"
		assert_line --regexp "^\{\"what\": \"torch\.topk, $n x 5000, k 550\", \"us\": [0-9.]+"
	done
	refute_line --partial '"turn"'
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
	assert_line --regexp '^environment +[0-9]+ s  skip: no time left: it takes 1 s, 0 s are left$'
}

#!/usr/bin/env bats
# When a GPU is not there, too old, too small, fails or hangs: what programs say and what they leave behind. On the emulator
# (tests/cuda/emulator_faults.cc), which fails as a test asks it to.

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	printf 'The access code of Marlow is K742. The boat lay in the harbour. What is the access code of Marlow?' >doc.txt
	kv-prefill -m "$DEMO" --device cpu --observe 4 --mass -o doc.kv doc.txt
	# rows that need more than what ops hold for themselves
	random_model wide --layers 16 --hidden 64 --heads 8 --kv-heads 8 --head-dim 128 --ffn 96
	seq 1100 >ids
	kv-prefill -m wide --device cpu --ids -o wide.kv ids
}

setup() {
	PATH=$O/emulated:$PATH
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# what_is_left: files of an output that is not whole
what_is_left() {
	find . -name 'out.kv*'
}

# failing CALL:N PROGRAM ...: that call fails, and the program with it; what it said is in $output
failing() {
	local call=$1
	shift
	KV_EMULATED_FAILURE=$call run -1 timeout 60 "$@"
	echo "$call: $output"
	assert_equal "$(what_is_left)" ''
}

# hanging N PROGRAM ...: the Nth kernel that it runs hangs; it is interrupted then
hanging() {
	local signal status hang=$1
	shift
	for signal in INT TERM; do
		KV_EMULATED_FAILURE=hang:$hang timeout 60 env --default-signal=INT,TERM bash -c 'echo $$ >pid; exec "$@"' - "$@" 2>said >text 3>&- &
		for _ in $(seq 1000); do
			grep -q hangs said 2>/dev/null && break
			sleep 0.01
		done
		grep hangs said
		kill -s $signal "$(cat pid)"
		status=0
		wait $! || status=$?
		assert_equal "$(kill -l $status)" $signal
		assert_equal "$(what_is_left)" ''
		rm said
	done
}

@test "no driver, an old driver, no GPU, an old GPU: each is said, and auto takes the CPU" {
	while IFS='|' read -r setting message; do
		run -1 env "$setting" kv-prefill -m "$DEMO" --device cuda -o out.kv doc.txt
		assert_output "kv-prefill: no CUDA device: $message"
		assert_equal "$(what_is_left)" ''
		run --separate-stderr env "$setting" kv-prefill -v -m "$DEMO" --device auto -o auto.kv doc.txt
		assert_success
		# shellcheck disable=SC2154 # bats sets it
		assert_regex "$stderr" 'device: cpu, '
	done <<-'END'
		KV_EMULATED_DRIVER=0|there is no NVIDIA driver, needed is one for CUDA 13.0
		KV_EMULATED_DRIVER=12080|the NVIDIA driver is for CUDA 12.8, this program needs one for CUDA 13.0
		KV_EMULATED_GPUS=0|cudaErrorNoDevice
		KV_EMULATED_CAPABILITY=75|GPU 0 (emulated, in order) has compute capability 7.5, needed is 8.0
	END
}

@test "a build without CUDA says how one with it is made" {
	run -1 "$O/kv-prefill" -m "$DEMO" --device cuda -o out.kv doc.txt
	if [[ $output != *"this build"* ]]; then
		skip "this build has CUDA"
	fi
	assert_output "kv-prefill: no CUDA device: this build has none: make GPU=1, with nvcc, or pip install 'kvpipe[cuda]'"
}

@test "opening a GPU: the call that fails is named" {
	for call in cudaGetDeviceCount cudaGetDeviceProperties cudaStreamCreateWithFlags cudaDeviceGetAttribute cudaMemPoolCreate \
		cudaMemPoolSetAttribute cudaMallocHost cudaEventCreateWithFlags; do
		failing $call:1 kv-prefill -m "$DEMO" --device cuda -o out.kv doc.txt
		assert_output --regexp '^kv-prefill: no CUDA device: (GPU 0: .*)?cudaError[A-Za-z]+$'
	done
}

# prompt_fails <CASES: "CALL:N ...|REGEXP" on each line; for each of these calls that fails kv-prefill says so, and leaves nothing
prompt_fails() {
	local calls call message
	while IFS='|' read -r calls message; do
		for call in $calls; do
			failing "$call" kv-prefill -m "$DEMO" --device cuda --score 'snapkv window=4' --evict rate=0.5 -o out.kv doc.txt
			assert_line --regexp "^kv-prefill: $message"
		done
	done
}

@test "a prompt: whichever class of call fails, the program says so, exits with 1, and leaves nothing" {
	prompt_fails <<-END
		cudaMemGetInfo:1|cuda: cudaMemGetInfo: cudaErrorUnknown$
		cudaMallocFromPoolAsync:1|$DEMO: no room for [0-9]+ bytes of norm weights$
		cudaMalloc:1|$DEMO/model.safetensors: model.embed_tokens.weight: no room for it on the device$
		cudaMallocFromPoolAsync:3 cudaMallocFromPoolAsync:6 cudaMallocFromPoolAsync:11|.*no (memory|room)
		cudaMemcpyAsync:1 cudaMemcpyAsync:7 cudaEventRecord:1 cudaStreamWaitEvent:1|$DEMO: weights: cudaErrorUnknown$
		cudaMemcpyAsync:30 cudaEventSynchronize:3 cudaStreamSynchronize:1 cudaMemsetAsync:1|.*cudaErrorUnknown
		launch:1|.*embed.*: cudaErrorUnknown$
		launch:9|.*: cudaErrorUnknown; the kernel before was
		kernel:1 kernel:5|.*(cudaErrorIllegalAddress|CUBLAS_STATUS_EXECUTION_FAILED|cudaErrorUnknown)
		cublasCreate_v2:1|.*matmul: cuBLAS: create: CUBLAS_STATUS_NOT_INITIALIZED$
		cublasGemmEx:1 cublasGemmEx:7|.*matmul: cuBLAS: product: CUBLAS_STATUS_EXECUTION_FAILED$
	END
}

@test "a driver without memory pools: memory is that of cudaMalloc(), and a failure is said" {
	export KV_EMULATED_POOLS=0
	prompt_fails <<-END
		cudaMalloc:1|$DEMO: no room for [0-9]+ bytes of norm weights$
		cudaMalloc:2|$DEMO/model.safetensors: model.embed_tokens.weight: no room for it on the device$
		cudaMalloc:4 cudaMalloc:7 cudaMalloc:12|.*no (memory|room)
	END
	failing cudaMalloc:1 kv-score --method snapkv --device cuda -o out.kv doc.kv
	KV_EMULATED_FAILURE=cudaMallocFromPoolAsync:1 kv-score --method snapkv --device cuda -o scored.kv doc.kv
	KV_EMULATED_POOLS=1 kv-score --method snapkv --device cuda -o pooled.kv doc.kv
	cmp pooled.kv scored.kv
}

@test "snapshots and text: whichever class of call fails" {
	ln -sfn "$DEMO" demo
	for program in 'kv-score --method snapkv -o out.kv' 'kv-quantize1b -g 16 -o out.kv' 'kv-index --pages -o out.kv' 'kv-diff doc.kv' \
		'kv-decode -m demo -n 2' 'kv-observe -m demo --repeat-context -o out.kv'; do
		for call in cudaMallocFromPoolAsync:1 cudaMemcpyAsync:1 cudaStreamSynchronize:1 launch:1 kernel:1; do
			[ "$program $call" != 'kv-score --method snapkv -o out.kv cudaStreamSynchronize:1' ] || continue    # it has no need to
			# shellcheck disable=SC2086 # its arguments
			failing $call $program --device cuda doc.kv
			assert_output --regexp 'kv-[a-z0-9]+: .*(cudaError|no room for|CUBLAS_STATUS)'
		done
	done
}

# A kernel's fault is what anybody is told who calls next, also who asks for memory.
@test "a kernel that reads where nothing is: that is said, whatever did not go on because of it" {
	failing kernel:1 kv-prefill -m "$DEMO" --device cuda --score 'snapkv window=4' --evict rate=0.5 -o out.kv doc.txt
	assert_output --regexp '(cudaErrorIllegalAddress.*; the (last kernel|kernel before) was )'
}

@test "rows that do not fit: the snapshot is named, and what there is" {
	export KV_EMULATED_MEMORY=76
	run -1 kv-decode -m wide --device cuda -n 1 wide.kv
	assert_output --regexp '^kv-decode: cuda: no room for wide\.kv: of 76\.0 MiB, weights have 8\.9, [0-9.]+ are free$'
	run -1 kv-prefill -m wide --device cuda --resume wide.kv --ids -o out.kv ids
	assert_output --regexp '^kv-prefill: cuda: needs 1[0-9.]+ MiB: .* 76\.0 MiB are free$'
	export KV_EMULATED_MEMORY=110            # the rows, and not what works with them
	run -1 kv-decode -m wide --device cuda -n 1 wide.kv
	assert_output --regexp '^kv-decode: cuda: needs 64\.[0-9] MiB for activations and scratch; of 110\.0, weights have 8\.9, the rows of wide\.kv .* 69\.4, 31\.7 are free$'
	export KV_EMULATED_MEMORY=200
	run -1 kv-prefill -m wide --device cuda --resume wide.kv --ids -o out.kv ids
	assert_output --regexp '^kv-prefill: cuda: needs 8[0-9.]+ MiB for activations and scratch; of 200\.0, .* are free$'
	run -1 kv-observe -m wide --device cuda --ids-from ids -o out.kv wide.kv
	assert_output --regexp '^kv-observe: cuda: needs 8[0-9.]+ MiB for activations and scratch; of 200\.0, .* are free$'
	export KV_EMULATED_MEMORY=1
	for program in kv-quantize1b 'kv-index --pages' 'kv-index --clusters'; do
		# shellcheck disable=SC2086 # its arguments
		run -1 $program --device cuda -o out.kv wide.kv
		# AddressSanitizer does not know the stacks of the emulator, and says so when the process ends
		assert_line --regexp '^kv-[a-z0-9]+: (wide\.kv: layer 0: )?cuda: .*(no room for 2\.1 MiB, of 1\.0 MiB [0-9.]+ are free|MemoryAllocation)$'
	done
	assert_equal "$(what_is_left)" ''
}

@test "Ctrl-C while a kernel hangs: the program is gone by that signal, and nothing stands under the output's name" {
	hanging 2 kv-quantize1b -g 16 --device cuda -o out.kv doc.kv
	hanging 9 kv-prefill -m "$DEMO" --device cuda -o out.kv doc.txt
	hanging 9 kv-decode -m "$DEMO" --device cuda -n 5 -o out.kv doc.kv
}

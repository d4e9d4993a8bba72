#!/bin/sh
# stages.sh - the stages of run.sh, which runs each as RUN_STAGE=NAME sh tests/gpu/stages.sh, under
# a time limit
#
# A stage prints its log; lines that begin with { are measurements. It exits with 0 (passed), 77
# (cannot run here; the last line says why) or something else (failed). run.sh sets the variables.
set -u
export LC_ALL=C CDPATH=
build=${build:-} out=${out:-} programs=${programs:-} tests=${tests:-} ops=${ops:-}
tiny=${tiny:-} emulated=${emulated:-}
wanted_weights=${wanted_weights:-}

# A stage says "skip: why" on its last line and returns 77 where it cannot run.
skip() {
	echo "skip: $*"
	return 77
}

# python_with MODULE: the first Python that has it. Importing it would take seconds.
python_with() {
	for p in "${PYTHON:-python3}" python3 /usr/bin/python3; do
		if "$p" -c "import sys, importlib.util
sys.exit(importlib.util.find_spec('$1') is None)" 2>/dev/null; then
			echo "$p"
			return
		fi
	done
	return 1
}

# run_peers PART ...
run_peers() {
	p=$(python_with torch) || skip "no PyTorch" || return
	"$p" tests/gpu/peers.py ${tiny:+"$tiny"} "$@"
}

environment() {
	cat "$build/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null
	uname -srm
	nproc
	df -Pk . "${TMPDIR:-/tmp}" /dev/shm 2>/dev/null
	if [ -n "$emulated" ]; then
		echo "emulated"
		return
	fi
	gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.draw,temperature.gpu
	nvidia-smi --query-gpu="$gpu" --format=csv || return 1
	nvidia-smi --query-gpu=clocks_event_reasons.active --format=csv,noheader
	grep -E '^(MemTotal|MemAvailable):' /proc/meminfo
	nvcc --version 2>/dev/null | tail -n 2
	command -v compute-sanitizer
	echo "cuBLAS: ${cublas:-where the dynamic linker looks}"
}

build() {
	[ -z "${NO_BUILD:-}" ] || skip "NO_BUILD is set" || return
	if [ -n "$emulated" ]; then
		make -s -j "$(nproc)" O="$build" GPU=0 emulated-tests
	else
		make -s -j "$(nproc)" O="$build" gpu-tests
	fi
}

# Making weights would slow down the transfers.
ceilings() {
	python_with torch >/dev/null || skip "no PyTorch" || return
	waited=0
	while [ -n "$wanted_weights" ] && [ ! -e "$out/.weights_end" ] && [ $waited -lt 60 ]; do
		sleep 2
		waited=$((waited + 2))
	done
	run_peers ceilings
}

# The emulator's models of instructions against the hardware, those of Hopper where it has them
primitives() {
	"$tests/primitives" >"$out/primitives.here" &&
		hopper=$(grep -q wgmma "$out/primitives.here" && echo 90 || echo 80) &&
		KV_EMULATED_CAPABILITY=$hopper "$build/emulated/primitives" \
			>"$out/primitives.model" &&
		diff "$out/primitives.model" "$out/primitives.here" && cat "$out/primitives.here"
}

ops() {
	# shellcheck disable=SC2046 # parts; those that are quick on the emulator
	"$ops" -v -g $([ -z "$emulated" ] || echo rows layer)
}

# pipeline METHOD DEVICE: its line, and how long that took
pipeline() {
	start=$(date +%s)
	KV_DEVICE=$2 sh "examples/methods/$1.sh" -r "$rate" "$prompt" \
		>"$out/lines/$1.$2" 2>"$out/lines/$1.$2.said" ||
		echo "$1 fails on $2: $(tail -n 1 "$out/lines/$1.$2.said")" >"$out/lines/$1.$2"
	echo "$2, $(($(date +%s) - start)) s: $(cat "$out/lines/$1.$2")"
}

# Whole pipelines on both devices: every method's line, then what a prompt leaves and what is kept
# of it.
#
# A GPU rounds the inputs of products, so rows with nearly equal scores may swap ranks. What must be
# equal nevertheless: the number of kept rows, and the answer wherever the CPU answers as with the
# whole cache. Bytes read, footprint, memory and peak may differ by half a percent of the cache;
# memory and peak by more where layers are evicted during prefill (-fused, lookaheadkv), since a GPU
# holds one more full layer. An answer that the kept rows no longer hold is a guess: a different one
# is shown and fails nothing. A process spends most of its time on opening the GPU, so several run
# at a time.
pipelines() {
	prompt=examples/prompts/harbour.txt rate=0.2 methods=${METHODS:-$(ls examples/methods)}
	if [ -n "$emulated" ]; then
		some='snapkv snapkv-fused fastkv fastkv-fused h2o-decode kvzip laq'
		some="$some fier quest clusterkv shadowkv"
		prompt=$out/prompt rate=0.4 methods=${METHODS:-$some}
		{
			echo "The quiet baker waited by the harbour." \
				"The access code of Marlow is K742." \
				"The old farmer carried the letter to the market"
			echo "after lunch. There was a green boat behind the mill." \
				"The secret word of Calton is falcon." \
				"Nobody waited near the bridge."
			printf 'Question: what is the access code of Marlow?\nAnswer:'
		} >"$prompt"
	fi
	export prompt rate KV_KERNELS=auto XDG_CACHE_HOME="$out/cache"
	rm -rf "$out/cache"
	list=full
	for method in $methods; do
		method=${method%.sh}
		case $method in
		full | common) ;;
		*) [ ! -e "examples/methods/$method.sh" ] || list="$list $method" ;;
		esac
	done
	mkdir -p "$out/lines"
	for method in $list; do
		echo "$method cpu"
		echo "$method cuda"
	done | KV_THREADS=2 RUN_STAGE=pipeline xargs -n 2 -P $((($(nproc) + 1) / 2)) \
		sh tests/gpu/stages.sh
	bad=0
	for method in $list; do
		cat "$out/lines/$method.cpu" "$out/lines/$method.cuda"
	done | awk '
		# mawk of 2020 does not know {5} in expressions
		function answer(s, i) {
			s = $0
			for (i = 0; i < 6; i++)
				sub(/^[^ ]+ +/, "", s)
			return s
		}
		function far(a, b) { return a - b > 0.5 || b - a > 0.5 }
		NR == 1 { truth = answer() }
		NR % 2 { line = $0; split($0, cpu); said = answer(); next }
		{
			verdict = "same"
			# an answer that is longer or shorter changes all other numbers
			if (answer() != said)
				verdict = said == truth ? "DIFFERENT" : "another guess"
			else if (far($6, cpu[6]) || far($3, cpu[3]) ||
			    ($1 !~ /^lookaheadkv$|-fused$/ && (far($4, cpu[4]) || far($5, cpu[5]))))
				verdict = "DIFFERENT"
			if ($2 != cpu[2] || $2 == "fails")
				verdict = "DIFFERENT"
			bad += verdict == "DIFFERENT"
			printf "%-13s %s\n", verdict, line
			if ($0 != line)
				printf "%-13s %s\n", "", $0
		}
		END { exit bad > 0 || NR < 4 }' || bad=1
	rm -r "$out/lines"
	compare_rows || bad=1
	checked_kernels || bad=1
	return $bad
}

# What programs have found out about kernels at their first use here
checked_kernels() {
	awk 'NF == 2 && NR > 1 { n++; if ($2 != "right") { print "WRONG: " $0; bad++ } }
		END { printf "%d kinds of calls: their kernels are right in %d\n", n, n - bad
			exit bad > 0 || n == 0 }' "$out/cache/kvpipe/kernels"
}

# field NAME FILE: a number of kv-diff --json
field() {
	sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" "$2" | head -n 1
}

# The same prompt on both devices: nearly the same keys, values and attention; at most one in twenty
# of the rows that a scorer keeps differs.
compare_rows() {
	for device in cpu cuda; do
		kv-prefill -q -m examples/demo-model --device $device --observe 16 --mass \
			-o "$out/$device.kv" "$prompt" || return
	done
	kv-diff --json --device cpu "$out/cpu.kv" "$out/cuda.kv" >"$out/diff" || return
	error=$(field output_error "$out/diff") mass=$(field mass "$out/diff")
	echo "prefill: output error $error, mass $mass"
	if ! awk -v e="$error" -v m="$mass" \
	    'BEGIN { exit !(e != "" && e < 0.02 && m > 0.999 && m < 1.001) }'; then
		echo "TOO FAR"
		return 1
	fi
	for method in snapkv h2o tova keydiff knorm; do
		for device in cpu cuda; do
			kv-score --method $method --device $device "$out/$device.kv" |
				kv-evict --rate "$rate" -o "$out/$device.kept" || return
		done
		kv-diff --json --device cpu "$out/cpu.kept" "$out/cuda.kept" >"$out/diff" || return
		both=$(field both "$out/diff")
		only_cpu=$(field only_a "$out/diff") only_gpu=$(field only_b "$out/diff")
		echo "$method: $both rows kept on both devices, $only_cpu on the CPU only," \
			"$only_gpu on the GPU only"
		if ! awk -v n="$only_cpu" -v o="$only_gpu" -v both="$both" \
		    'BEGIN { exit !(n != "" && n == o && both > 0 && n <= both / 20) }'; then
			echo "TOO MANY"
			return 1
		fi
	done
	rm -f "$out"/cpu.k* "$out"/cuda.k* "$out/diff"
}

# What the aims are about, in turn with PyTorch; then which kernels its backends run. Without
# PyTorch ours alone.
bench() {
	if python_with torch >/dev/null; then
		run_peers --beside "$tests/bench_gpu" attend mass decode top
		status=$?
		run_peers backends || echo "the backends' kernels are not known"
		return $status
	fi
	echo "no PyTorch: without peers"
	"$tests/bench_gpu" ${tiny:+"$tiny"} attend mass decode top
}

rest() {
	"$tests/bench_gpu" ${tiny:+"$tiny"} retrieve rows matmul layer memory fetch
}

again() {
	"$tests/bench_gpu" ${tiny:+"$tiny"}
}

# The first launch of each kernel of bench_gpu under Nsight Compute, clocks as they are; where that
# may not read counters, Nsight Systems; else the times by events of the stage bench have to do.
profile() {
	command -v ncu >/dev/null || profile_otherwise "no ncu" || return
	bad=0
	for part in layer decode attend mass retrieve top; do
		timeout -k 5 60 ncu --clock-control none --kernel-id :::1 --section SpeedOfLight \
			--section LaunchStats --section Occupancy --section MemoryWorkloadAnalysis \
			--section WarpStateStats --csv --page details \
			"$tests/bench_gpu" ${tiny:+"$tiny"} --once $part \
			>"$out/profile.$part.csv" 2>"$out/said"
		status=$?
		cat "$out/said"
		if cat "$out/said" "$out/profile.$part.csv" | grep -E -e ERR_NVGPUCTRPERM \
		    -e LibraryNotLoaded -e 'Failed to initialize the profiler'; then
			profile_otherwise "ncu may not read this GPU's counters"
			return
		fi
		case $status in
		0) ;;
		124 | 137) echo "$part: what ncu has seen in 60 s" ;;
		*)
			echo "$part: ncu FAILED, exit $status"
			tail -n 3 "$out/profile.$part.csv"
			bad=1
			;;
		esac
		python3 tests/gpu/ncu_rows.py "$part" "$out/profile.$part.csv" || bad=1
	done
	return $bad
}

profile_otherwise() {
	command -v nsys >/dev/null ||
		skip "$1, no nsys: kernel times are those of bench, by events" || return
	echo "$1: nsys instead"
	make_scratch
	timeout -k 5 120 nsys profile --trace cuda --stats true --force-overwrite true \
		--output "$scratch/nsys" "$tests/bench_gpu" ${tiny:+"$tiny"} \
		--once layer decode attend mass retrieve top ||
		skip "$1, and nsys failed"
}

# under SECONDS TOOL PART ...: kernels of parts of ops under compute-sanitizer. What is too slow
# there is stopped without an error. Calls that fail are no errors: the part memory asks for more
# memory than there is.
under() {
	limit=$1 tool=$2
	shift 2
	api=''
	[ "$tool" != memcheck ] || api='--report-api-errors no'
	# shellcheck disable=SC2086 # words
	timeout -k 2 "$limit" compute-sanitizer --tool "$tool" $api --error-exitcode 9 \
		"$ops" -g "$@" >"$out/said" 2>&1
	status=$?
	cat "$out/said"
	! grep -q 'Device not supported' "$out/said" || return 77
	! grep -Eq '^========= (Invalid|Error|Race|Potential|Barrier|Program hit|Uninit)' \
		"$out/said" || status=9
	case $status in
	0) echo "$tool $*: no error" ;;
	124 | 137) echo "$tool $*: no error in the first $limit s" ;;
	*) echo "$tool $*: FAILED, exit $status"; return 1 ;;
	esac
}

sanitizer() {
	[ -z "$emulated" ] || skip "not on the emulator" || return
	command -v compute-sanitizer >/dev/null || skip "no compute-sanitizer" || return
	bad=0
	under 25 memcheck rows keep keys layer step || bad=$?
	[ "$bad" -ne 77 ] || skip "compute-sanitizer does not support this device" || return
	for part in memory chosen fetch index choose attend mass; do
		under 12 memcheck $part || bad=1
	done
	under 15 racecheck rows keep keys layer step || bad=1
	for part in choose fetch attend mass; do
		under 12 racecheck $part || bad=1
	done
	for part in choose attend; do
		under 10 synccheck $part || bad=1
	done
	return $bad
}

# folders: where large files may be
folders() {
	if [ -n "$emulated" ]; then
		echo "$out"
	else
		printf '%s\n' /dev/shm "${TMPDIR:-/tmp}" "$out"
	fi
}

# room_for KBYTES: the first folder that has it
room_for() {
	folders | while read -r f; do
		free=$(df -Pk "$f" 2>/dev/null | awk 'NR == 2 { print $4 }')
		[ "${free:-0}" -lt "$1" ] || { echo "$f"; break; }
	done
}

# weights_of PRESET: the folder with its random weights, complete, from this run or one before
weights_of() {
	folders | while read -r f; do
		[ ! -e "$f/kvpipe-weights/$1/complete" ] || { echo "$f/kvpipe-weights/$1"; break; }
	done
}

# Makes the random weights of all models named in $wanted_weights, in the background of other
# stages.
weights() {
	maker=''
	trap 'kill $maker 2>/dev/null; : >"$out/.weights_end"' EXIT
	trap 'exit 143' TERM
	p=$(python_with numpy) || skip "no numpy" || return
	for preset in $wanted_weights; do
		[ -z "$(weights_of "$preset")" ] || { echo "$preset: there from before"; continue; }
		options="--preset $preset --shards 4" kbytes=18000000
		if [ -n "$emulated" ]; then
			options='--layers 2 --hidden 64 --heads 4 --kv-heads 2 --head-dim 16'
			options="$options --ffn 96 --vocab 1536" kbytes=1000
		fi
		room=$(room_for $kbytes)
		[ -n "$room" ] || { echo "$preset: no room for 16 GB"; continue; }
		start=$(date +%s)
		# shellcheck disable=SC2086 # options
		"$p" tests/bin/mkmodel.py "$room/kvpipe-weights/$preset" $options \
			--tokenizer examples/demo-model &
		maker=$!
		wait $maker || return
		: >"$room/kvpipe-weights/$preset/complete"
		echo "$preset: $(($(date +%s) - start)) s, in $room"
	done
}

remove_weights() {
	folders | while read -r f; do
		rm -rf "$f/kvpipe-weights"
	done
}

# wait_for_weights PRESET: sets $folder, unless it is set.
wait_for_weights() {
	while [ -z "$folder" ]; do
		ended=''
		[ ! -e "$out/.weights_end" ] || ended=1
		folder=$(weights_of "$1")
		[ -n "$folder" ] || [ -z "$ended" ] ||
			skip "no weights: $(tail -n 1 "$out/weights.log")" || return
		[ -n "$folder" ] || sleep 1
	done
}

# make_scratch: removed when the stage ends
make_scratch() {
	scratch=$(room_for 2000000)/kvpipe-run.$$
	[ -z "$emulated" ] || scratch=$out/scratch
	trap 'rm -rf "$scratch"' EXIT
	trap 'exit 143' TERM
	mkdir -p "$scratch"
}

# A whole model: our programs, with a snapshot in between; its speed without the one-time work of a
# program. Its logits stay for the stage transformers.
model() {
	folder=${MODEL:-}
	wait_for_weights llama-3.1-8b || return
	make_scratch
	n=8192 tokens=32 parts='full:8192 full:32768 scored:32768 full:131072 tsp:131072' bad=0
	[ -z "$emulated" ] || n=64 tokens=5 parts='--steps 2 full:400 scored:400 tsp:400'
	# shellcheck disable=SC2086 # parts
	"$tests/whole" -m "$folder" --device cuda --logits "$out" $parts || bad=$?
	awk -v n="$n" \
		'BEGIN { for (i = 0; i < n; i++) print (i * 7919 + 13) % 1400 }' >"$scratch/ids"
	{
		kv-prefill -v --device cuda -m "$folder" --ids -o "$scratch/full.kv" \
			"$scratch/ids" &&
			kv-decode -v --device cuda -m "$folder" --tokens "$tokens" --ignore-eos \
				"$scratch/full.kv" >/dev/null
	} || bad=$?
	return $bad
}

# transformers on the same weights and tokens
transformers() {
	folder=${MODEL:-}
	python_with torch >/dev/null || skip "no PyTorch" || return
	python_with transformers >/dev/null || skip "no transformers" || return
	wait_for_weights llama-3.1-8b || return
	export MODEL="$folder" LOGITS="$out"
	run_peers generate
}

# Retrieval where there is most to read: as many KV heads as query heads
fier() {
	folder=${MODEL_MHA:-}
	wait_for_weights llama-2-7b || return
	parts=fier:32768
	[ -z "$emulated" ] || parts='--steps 2 fier:200'
	# shellcheck disable=SC2086 # parts
	"$tests/whole" -m "$folder" --device cuda $parts
}

"$RUN_STAGE" "$@"

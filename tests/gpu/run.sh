#!/bin/sh
# run.sh - everything that needs a GPU, once, in ten minutes at most
#
# usage: sh tests/gpu/run.sh [-e] [-b BUILD] [-o FOLDER] [-t SECONDS] [stage ...]
#
# Stages, each under its own time limit: environment build ceilings primitives ops pipelines bench peers
# model fier again sanitizer. What a stage prints goes to FOLDER/STAGE.log, measurements to FOLDER/measured.jsonl
# (default FOLDER: BUILD/gpu-run), and at the end there is one table of stages, one of what was measured, and one of what was
# aimed at (FOLDER/stages, FOLDER/table). A stage that cannot run here is skipped and says why. Exit status: 0 when no stage failed.
#
# -e: try the script itself without a GPU: programs run on the emulator, with small shapes.
# -t: all stages together take no longer (580); those that find no time left are skipped.
# BUILD (default build-gpu in the tree) is built where it is not yet; with NO_BUILD=1 it is taken as it is. In
# a bundle (make gpu-bundle) it is the bundle.
# MODEL, MODEL_MHA: folders in Hugging Face format for the stages model and fier; made when they are not set.
# METHODS: scripts of examples/methods for the stage pipelines; all when it is not set.
# PYTHON: one with PyTorch, for the stages ceilings, peers and model.
set -u

script=$0
if [ -z "${RUN_STAGE:-}" ]; then
	from=$PWD
	cd "$(dirname "$0")/../.." || exit 1
	script=tests/gpu/run.sh
	build=build-gpu out='' emulated='' total=580
	[ ! -e commit ] || { build=. NO_BUILD=1; export NO_BUILD; }   # a bundle
	while getopts eb:o:t: option; do
		case $option in
		e) emulated=1 ;;
		b) case $OPTARG in /*) build=$OPTARG ;; *) build=$from/$OPTARG ;; esac ;;
		o) case $OPTARG in /*) out=$OPTARG ;; *) out=$from/$OPTARG ;; esac ;;
		t) total=$OPTARG ;;
		*) sed -n '4s/^# //p' "$script" >&2; exit 2 ;;
		esac
	done
	shift $((OPTIND - 1))
	wanted=${*:-environment build ceilings primitives ops pipelines bench peers model fier again sanitizer}
	mkdir -p "$build" || exit 1
	build=$(cd "$build" && pwd)
	out=${out:-$build/gpu-run}
	mkdir -p "$out" || exit 1
	out=$(cd "$out" && pwd)
	: >"$out/measured.jsonl"
	: >"$out/stages"
	if [ -n "$emulated" ]; then
		programs=$build/emulated tests=$build/emulated ops=$build/tests/unit/ops_emulated tiny=--tiny
	else
		programs=$build tests=$build/tests/gpu ops=$build/tests/unit/ops tiny=''
	fi
	PATH=$programs:$build:$PATH:/usr/local/cuda/bin
	export PATH
fi

# Programs load cuBLAS on demand. If neither the dynamic linker nor the programs' second place has it, this finds the one that came
# with PyTorch or with a toolkit in another folder.
find_cublas() {
	cublas=
	! ldconfig -p 2>/dev/null | grep -q 'libcublas\.so\.13' && [ ! -e /usr/local/cuda/lib64/libcublas.so.13 ] || return
	if p=$(python_with nvidia); then
		cublas=$("$p" -c 'import nvidia, os
print(*(p for n in nvidia.__path__ for p, _, f in os.walk(n) if "libcublas.so.13" in f), sep=":")')
	fi
	for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib "$(dirname "$(command -v nvcc)")/../lib64"; do
		[ -n "$cublas" ] || [ ! -e "$folder/libcublas.so.13" ] || cublas=$folder
	done
	LD_LIBRARY_PATH=$cublas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH cublas
}

# A stage says "skip: why" on its last line and returns 77 where it cannot run.
skip() {
	echo "skip: $*"
	return 77
}

# python_with MODULE: the first Python that has it. Importing it would take seconds.
python_with() {
	for p in "${PYTHON:-python3}" python3 /usr/bin/python3; do
		if "$p" -c "import sys, importlib.util; sys.exit(importlib.util.find_spec('$1') is None)" 2>/dev/null; then
			echo "$p"
			return
		fi
	done
	return 1
}

# peers PART ...
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
	nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.draw,temperature.gpu \
		--format=csv || return 1
	nvidia-smi --query-gpu=clocks_event_reasons.active --format=csv,noheader
	free -m
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

ceilings() {
	run_peers ceilings
}

# The emulator's models of instructions against the hardware
primitives() {
	"$tests/primitives" >"$out/primitives.here" && "$build/emulated/primitives" >"$out/primitives.model" &&
		diff "$out/primitives.model" "$out/primitives.here" && cat "$out/primitives.here"
}

ops() {
	# shellcheck disable=SC2046 # parts; those that are quick on the emulator
	"$ops" -v -g $([ -z "$emulated" ] || echo rows layer)
}

# pipeline METHOD DEVICE: its line, and how long that took
pipeline() {
	start=$(date +%s)
	KV_DEVICE=$2 sh "examples/methods/$1.sh" -r "$rate" "$prompt" >"$out/lines/$1.$2" 2>"$out/lines/$1.$2.said" ||
		echo "$1 fails on $2: $(tail -n 1 "$out/lines/$1.$2.said")" >"$out/lines/$1.$2"
	echo "$2, $(($(date +%s) - start)) s: $(cat "$out/lines/$1.$2")"
}

# Whole pipelines on both devices: every method's line, then what a prompt leaves and what is kept of it.
#
# A GPU rounds the inputs of products, so rows with nearly equal scores may swap ranks. What must be equal nevertheless: the number of
# kept rows, and the answer wherever the CPU answers as with the whole cache. Bytes read, footprint, memory and peak may differ by half a
# percent of the cache; memory and peak by more where layers are evicted during prefill (-fused), since a GPU holds one more full
# layer. An answer that the kept rows no longer hold is a guess: a different one is shown and fails nothing. A process spends
# most of its time on opening the GPU, so several run at a time.
pipelines() {
	prompt=examples/prompts/harbour.txt rate=0.2 methods=${METHODS:-$(ls examples/methods)}
	if [ -n "$emulated" ]; then
		prompt=$out/prompt rate=0.4 methods=${METHODS:-snapkv snapkv-fused fastkv fastkv-fused h2o-decode kvzip laq fier quest clusterkv shadowkv}
		cat >"$prompt" <<-'END'
			The quiet baker waited by the harbour. The access code of Marlow is K742. The old farmer carried the letter to the market
			after lunch. There was a green boat behind the mill. The secret word of Calton is falcon. Nobody waited near the bridge.
			Question: what is the access code of Marlow?
		END
		printf 'Answer:' >>"$prompt"
	fi
	export prompt rate
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
	done | KV_THREADS=2 RUN_STAGE=pipeline xargs -n 2 -P $((($(nproc) + 1) / 2)) sh "$script"
	bad=0
	for method in $list; do
		cat "$out/lines/$method.cpu" "$out/lines/$method.cuda"
	done | awk '
		function answer(s, i) {                     # mawk of 2020 does not know {5} in expressions
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
			if (answer() != said)        # which may be longer or shorter, so that nothing else is the same
				verdict = said == truth ? "DIFFERENT" : "another guess"
			else if (far($6, cpu[6]) || far($3, cpu[3]) ||
			    ($1 !~ /-fused$/ && (far($4, cpu[4]) || far($5, cpu[5]))))
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
	return $bad
}

# field NAME FILE: a number of kv-diff --json
field() {
	sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" "$2" | head -n 1
}

# The same prompt on both devices: nearly the same keys, values and attention; at most one in twenty of the rows that a scorer keeps differs.
compare_rows() {
	for device in cpu cuda; do
		kv-prefill -q -m examples/demo-model --device $device --observe 16 --mass -o "$out/$device.kv" "$prompt" || return
	done
	kv-diff --json --device cpu "$out/cpu.kv" "$out/cuda.kv" >"$out/diff" || return
	echo "prefill: output error $(field output_error "$out/diff"), mass $(field mass "$out/diff")"
	awk -v e="$(field output_error "$out/diff")" -v m="$(field mass "$out/diff")" \
		'BEGIN { exit !(e != "" && e < 0.02 && m > 0.999 && m < 1.001) }' || { echo "TOO FAR"; return 1; }
	for method in snapkv h2o tova keydiff knorm; do
		for device in cpu cuda; do
			kv-score --method $method --device $device "$out/$device.kv" | kv-evict --rate "$rate" -o "$out/$device.kept" || return
		done
		kv-diff --json --device cpu "$out/cpu.kept" "$out/cuda.kept" >"$out/diff" || return
		echo "$method: $(field both "$out/diff") rows kept on both devices, $(field only_a "$out/diff") on the CPU only," \
			"$(field only_b "$out/diff") on the GPU only"
		awk -v n="$(field only_a "$out/diff")" -v o="$(field only_b "$out/diff")" -v both="$(field both "$out/diff")" \
			'BEGIN { exit !(n != "" && n == o && both > 0 && n <= both / 20) }' || { echo "TOO MANY"; return 1; }
	done
	rm -f "$out"/cpu.k* "$out"/cuda.k* "$out/diff"
}

bench() {
	"$tests/bench_gpu" ${tiny:+"$tiny"}
}

again() {
	bench
}

peers() {
	run_peers attend decode top
}

# under SECONDS TOOL PART ...: kernels of parts of ops under compute-sanitizer. What is too slow there is stopped without an error.
under() {
	limit=$1 tool=$2
	shift 2
	timeout -k 2 "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 "$ops" -g "$@" >"$out/said" 2>&1
	status=$?
	cat "$out/said"
	! grep -Eq '^========= (Invalid|Error|Race|Potential|Barrier|Program hit|Uninit)' "$out/said" || status=9
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
	under 25 memcheck rows keep keys layer step || bad=1
	for part in memory chosen index choose attend mass; do
		under 12 memcheck $part || bad=1
	done
	under 15 racecheck rows keep keys layer step || bad=1
	for part in choose attend mass; do
		under 12 racecheck $part || bad=1
	done
	for part in choose attend; do
		under 10 synccheck $part || bad=1
	done
	return $bad
}

# room_for KBYTES: the first folder that has it
room_for() {
	for folder in /dev/shm "${TMPDIR:-/tmp}" "$out"; do
		free=$(df -Pk "$folder" 2>/dev/null | awk 'NR == 2 { print $4 }')
		[ "${free:-0}" -lt "$1" ] || { echo "$folder"; return; }
	done
	return 1
}

# random_model PRESET: makes $folder, with random weights, and $scratch for what is large; both go when the stage ends.
random_model() {
	options="--preset $1 --shards 4" scratch=$out/scratch
	if [ -n "$emulated" ]; then
		options='--layers 2 --hidden 64 --heads 4 --kv-heads 2 --head-dim 16 --ffn 96 --vocab 1536'
	else
		scratch=$(room_for 20000000)/kvpipe-run.$$ || skip "no room for 16 GB of weights" || return
	fi
	trap 'rm -rf "$scratch"' EXIT
	trap 'exit 143' TERM
	mkdir -p "$scratch"
	[ -z "$folder" ] || return 0
	folder=$scratch/model
	p=$(python_with numpy) || skip "no numpy" || return
	# shellcheck disable=SC2086 # options
	"$p" tests/bin/mkmodel.py "$folder" $options --tokenizer examples/demo-model
}

# A whole model: our programs, with a snapshot in between; its speed without the one-time work of a program; transformers on the same
# weights and tokens.
model() {
	folder=${MODEL:-}
	random_model llama-3.1-8b || return
	n=8192 tokens=32 parts='full:8192 full:32768 scored:32768 full:131072 tsp:131072' bad=0
	[ -z "$emulated" ] || n=64 tokens=5 parts='--steps 2 full:400 scored:400 tsp:400'
	awk -v n="$n" 'BEGIN { for (i = 0; i < n; i++) print (i * 7919 + 13) % 1400 }' >"$scratch/ids"
	{ kv-prefill -v --device cuda -m "$folder" --ids -o "$scratch/full.kv" "$scratch/ids" &&
		kv-decode -v --device cuda -m "$folder" --tokens "$tokens" --ignore-eos "$scratch/full.kv" >/dev/null; } || bad=1
	rm -f "$scratch/full.kv"
	# shellcheck disable=SC2086 # parts
	"$tests/whole" -m "$folder" --device cuda --logits "$scratch" $parts || bad=1
	export MODEL="$folder" LOGITS="$scratch"
	run_peers generate
	status=$?
	[ "$bad" -eq 0 ] && return "$status"
}

# Retrieval where there is most to read: as many KV heads as query heads
fier() {
	folder=${MODEL_MHA:-}
	random_model llama-2-7b || return
	parts=fier:32768
	[ -z "$emulated" ] || parts='--steps 2 fier:200'
	# shellcheck disable=SC2086 # parts
	"$tests/whole" -m "$folder" --device cuda $parts
}

# Each stage is a run of this script, which timeout can end.
if [ -n "${RUN_STAGE:-}" ]; then
	"$RUN_STAGE" "$@"
	exit
fi
export build out emulated programs tests ops tiny
[ -n "$emulated" ] || find_cublas
# The driver may shut down a GPU that no process has open, and start it again for each program.
if [ -z "$emulated" ] && [ -r /dev/nvidia0 ]; then
	# shellcheck disable=SC2217 # it has it open
	sleep "$total" </dev/nvidia0 >/dev/null 2>&1 &
	# shellcheck disable=SC2064 # this one
	trap "kill $! 2>/dev/null" EXIT
fi

# stage LIMIT NAME
stage() {
	case " $wanted " in *" $2 "*) ;; *) return ;; esac
	start=$(date +%s)
	limit=$((begin + total - start))
	[ "$limit" -lt "$1" ] || limit=$1
	if [ "$limit" -lt 1 ]; then
		verdict="skip: no time left"
	else
		RUN_STAGE=$2 timeout -k 5 "$limit" sh "$script" >"$out/$2.log" 2>&1
		status=$?
		case $status in
		0) verdict=passed ;;
		77) verdict=$(tail -n 1 "$out/$2.log") ;;
		124 | 137) verdict="FAILED: more than $limit s" ;;
		*) verdict="FAILED: exit $status" ;;
		esac
		grep '^{' "$out/$2.log" | sed "s/^{/{\"stage\": \"$2\", /" >>"$out/measured.jsonl"
	fi
	printf '%-12s %4d s  %s\n' "$2" $(($(date +%s) - start)) "$verdict" | tee -a "$out/stages"
}

begin=$(date +%s)
stage 20 environment
stage 150 build
stage 90 ceilings
stage 20 primitives
stage 120 ops
stage 120 pipelines
stage 90 bench
stage 120 peers
stage 300 model
stage 120 fier
stage 90 again
stage 180 sanitizer

echo
p=$(python_with json) && "$p" tests/gpu/table.py "$out/measured.jsonl" | tee "$out/table"
echo
! grep FAILED "$out/stages"

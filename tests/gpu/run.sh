#!/bin/sh
# run.sh - everything that needs a GPU, once, in ten minutes at most
#
# usage: sh tests/gpu/run.sh [-e] [-b BUILD] [-o FOLDER] [stage ...]
#
# Stages, each under its own time limit: environment build ceilings primitives ops pipelines bench peers
# again sanitizer model. What a stage prints goes to FOLDER/STAGE.log, measurements to FOLDER/measured.jsonl
# (default FOLDER: BUILD/gpu-run), and at the end there is one table of stages and one of ratios to
# peers. A stage that cannot run here is skipped and says why. Exit status: 0 when no stage failed.
#
# -e: try the script itself without a GPU: programs run on the emulator, benchmarks on tiny shapes.
# BUILD (default build-gpu) is built where it is not yet; with NO_BUILD=1 it is taken as it is.
# MODEL: a folder in Hugging Face format for the stage model; made (in /dev/shm) when it is not set.
set -u

script=$0
if [ -z "${RUN_STAGE:-}" ]; then
	cd "$(dirname "$0")/../.." || exit 1
	script=tests/gpu/run.sh
	build=build-gpu out='' emulated=''
	while getopts eb:o: option; do
		case $option in
		e) emulated=1 ;;
		b) build=$OPTARG ;;
		o) out=$OPTARG ;;
		*) sed -n '4s/^# //p' "$script" >&2; exit 2 ;;
		esac
	done
	shift $((OPTIND - 1))
	wanted=${*:-environment build ceilings primitives ops pipelines bench peers again sanitizer model}
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
	PATH=$programs:$build:$PATH
	export PATH
fi

# A stage says "skip: why" on its last line and returns 77 where it cannot run.
skip() {
	echo "skip: $*"
	return 77
}

environment() {
	if [ -n "$emulated" ]; then
		echo "emulated"
		return
	fi
	nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.draw,temperature.gpu \
		--format=csv || return 1
	nvidia-smi --query-gpu=clocks_event_reasons.active --format=csv,noheader
	nvcc --version 2>/dev/null | tail -n 2
	uname -srm
	git rev-parse --short HEAD 2>/dev/null
}

build() {
	[ -z "${NO_BUILD:-}" ] || skip "NO_BUILD is set" || return
	if [ -n "$emulated" ]; then
		make -s -j "$(nproc)" O="$build" GPU=0 emulated-tests
	else
		make -s -j "$(nproc)" O="$build" GPU=1 gpu-tests
	fi
}

python() {
	for p in "${PYTHON:-python3}" /usr/bin/python3; do
		if "$p" -c "import torch" 2>/dev/null; then
			"$p" "$@"
			return
		fi
	done
	skip "no PyTorch"
}

ceilings() {
	python tests/gpu/peers.py ${tiny:+"$tiny"} ceilings
}

# Models of instructions against the hardware's
primitives() {
	"$tests/primitives" >"$out/primitives.here" && "$build/emulated/primitives" >"$out/primitives.model" &&
		diff "$out/primitives.model" "$out/primitives.here" && cat "$out/primitives.here"
}

ops() {
	"$ops" -v
}

# Every method on both devices: the same answer, and about the same rows read and kept.
pipelines() {
	bad=0
	for method in examples/methods/*.sh; do
		method=$(basename "$method" .sh)
		[ "$method" != common ] || continue
		case $method in fier | quest | clusterkv | shadowkv) rate='-b 100' ;; full) rate= ;; *) rate='-r 0.2' ;; esac
		for device in cpu cuda; do
			# shellcheck disable=SC2086 # an option and its argument
			KV_DEVICE=$device sh "examples/methods/$method.sh" $rate >"$out/$method.$device" 2>"$out/$method.err" ||
				echo "exit $?: $(tail -n 1 "$out/$method.err")" >>"$out/$method.$device"
		done
		if cmp -s "$out/$method.cpu" "$out/$method.cuda"; then
			echo "$method: the same: $(head -n 1 "$out/$method.cpu")"
		else
			echo "$method: DIFFERENT: $(head -n 1 "$out/$method.cpu") | $(head -n 1 "$out/$method.cuda")"
			bad=1
		fi
		rm -f "$out/$method.cpu" "$out/$method.cuda" "$out/$method.err"
	done
	return $bad
}

bench() {
	"$tests/bench_gpu" ${tiny:+"$tiny"}
}

again() {
	bench
}

peers() {
	python tests/gpu/peers.py ${tiny:+"$tiny"} attend decode top
}

sanitizer() {
	[ -z "$emulated" ] || skip "not on the emulator" || return
	command -v compute-sanitizer >/dev/null || skip "no compute-sanitizer" || return
	compute-sanitizer --tool memcheck --error-exitcode 9 "$ops" rows choose chosen index &&
		compute-sanitizer --tool racecheck --error-exitcode 9 "$ops" choose &&
		compute-sanitizer --tool synccheck --error-exitcode 9 "$ops" attend
}

# A whole model of random weights: ours, and transformers on the same bytes.
model() {
	folder=${MODEL:-}
	if [ -z "$folder" ]; then
		folder=/dev/shm/kvpipe-llama-3.1-8b
		layers=
		[ -z "$emulated" ] || folder=$out/model layers='--layers 2 --hidden 64 --heads 4 --kv-heads 2 --head-dim 16 --ffn 96 --vocab 1536'
		# shellcheck disable=SC2086 # options
		[ -e "$folder/config.json" ] || /usr/bin/python3 tests/bin/mkmodel.py "$folder" --preset llama-3.1-8b $layers \
			--tokenizer examples/demo-model || return
	fi
	for n in $([ -n "$emulated" ] && echo 64 || echo 8192 32768); do
		awk -v n="$n" 'BEGIN { for (i = 0; i < n; i++) print (i * 7919 + 13) % 1400 }' >"$out/ids"
		kv-prefill -v --device cuda -m "$folder" --ids --chunk 4096 -o "$out/full.kv" "$out/ids" || return
		kv-decode -v --device cuda -m "$folder" --tokens 32 --ignore-eos "$out/full.kv" >/dev/null || return
		rm -f "$out/full.kv"
	done
	MODEL=$folder python tests/gpu/peers.py ${tiny:+"$tiny"} generate
}

# Each stage is a run of this script, which timeout can end.
if [ -n "${RUN_STAGE:-}" ]; then
	"$RUN_STAGE"
	exit
fi
export build out emulated programs tests ops tiny

# stage LIMIT NAME
stage() {
	case " $wanted " in *" $2 "*) ;; *) return ;; esac
	start=$(date +%s)
	RUN_STAGE=$2 timeout -k 5 "$1" sh "$script" >"$out/$2.log" 2>&1
	status=$?
	case $status in
	0) verdict=passed ;;
	77) verdict=$(tail -n 1 "$out/$2.log") ;;
	124 | 137) verdict="FAILED: more than $1 s" ;;
	*) verdict="FAILED: exit $status" ;;
	esac
	printf '%-12s %4d s  %s\n' "$2" $(($(date +%s) - start)) "$verdict" | tee -a "$out/stages"
	grep '^{' "$out/$2.log" | sed "s/^{/{\"stage\": \"$2\", /" >>"$out/measured.jsonl"
}

stage 10 environment
stage 150 build
stage 40 ceilings
stage 20 primitives
stage 60 ops
stage 90 pipelines
stage 60 bench
stage 60 peers
stage 60 again
stage 60 sanitizer
stage 150 model

echo
/usr/bin/python3 tests/gpu/table.py "$out/measured.jsonl"
echo
! grep FAILED "$out/stages"

#!/bin/sh
# run.sh - everything that needs a GPU, by order of value, in runs that may be cut off
#
# usage: sh tests/gpu/run.sh [-ekn] [-b BUILD] [-o FOLDER] [-p PACKED] [-t SECONDS] [stage ...]
#
# Without names, runs the stages that FOLDER has no result of, as far as they fit; environment in
# every run, and ceilings in every run that measures, since ratios are to ceilings of the same
# minutes. A stage that is named runs again. Stages: environment build primitives ops ceilings bench
# model fier transformers rest pipelines profile again sanitizer (stages.sh). One that cannot run
# here is skipped and says why; one that would not fit is not begun. Exit status: 0 when no stage
# failed.
#
# FOLDER (default BUILD/gpu-run) gets STAGE.log, measured.jsonl and stages. PACKED (default FOLDER)
# gets two files: gpu-run.txt (aims, stages, all that was measured) and gpu-run.tar.gz (the logs),
# after every stage and every 15 s within one. If FOLDER is empty, gpu-run.tar.gz is unpacked there
# first: a run goes on where one on another machine ended.
#
# -e: try the script itself without a GPU: programs run on the emulator, with small shapes. -k: keep
# the random weights (30 GB, in /dev/shm) for the next run on this machine. -n: only say what would
# be done and what it costs. -t: no longer than this (530). BUILD (default build-gpu in the tree) is
# built where it is not yet; with NO_BUILD=1 it is taken as it is. In a bundle (make gpu-bundle) it
# is the bundle. MODEL, MODEL_MHA: folders in Hugging Face format for the stages model, transformers
# and fier; made when they are not set. METHODS: scripts of examples/methods for the stage
# pipelines; all when it is not set. PYTHON: one with PyTorch, for the stages ceilings, bench and
# transformers.
set -u
export LC_ALL=C CDPATH=

begin=$(date +%s)
from=$PWD
cd "$(dirname "$0")/../.." || exit 1

# absolute PATH
absolute() {
	case $1 in /*) echo "$1" ;; *) echo "$from/$1" ;; esac
}

build=build-gpu out='' packed='' emulated='' keep='' dry='' total=530
[ ! -e commit ] || { build=. NO_BUILD=1; export NO_BUILD; }   # a bundle
while getopts ekb:no:p:t: option; do
	case $option in
	e) emulated=1 ;;
	k) keep=1 ;;
	n) dry=1 ;;
	b) build=$(absolute "$OPTARG") ;;
	o) out=$(absolute "$OPTARG") ;;
	p) packed=$(absolute "$OPTARG") ;;
	t) total=$OPTARG ;;
	*) sed -n '4s/^# //p' tests/gpu/run.sh >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))
mkdir -p "$build" "${out:=$build/gpu-run}" "${packed:=$out}" || exit 1
build=$(cd "$build" && pwd)
out=$(cd "$out" && pwd)
packed=$(cd "$packed" && pwd)
if [ -n "$emulated" ]; then
	programs=$build/emulated tests=$build/emulated
	ops=$build/tests/unit/ops_emulated tiny=--tiny
else
	programs=$build tests=$build/tests/gpu ops=$build/tests/unit/ops tiny=''
fi
PATH=$programs:$build:$PATH:/usr/local/cuda/bin

# ---- the plan ----

# Stage, seconds that it takes about (measured: 16 processors, H200), seconds at most
plan() {
	cat <<-'END'
		environment 5 30
		build 130 240
		primitives 2 20
		ops 25 240
		ceilings 20 130
		bench 45 150
		model 45 200
		fier 10 120
		transformers 70 240
		rest 40 90
		pipelines 30 150
		profile 45 240
		again 50 120
		sanitizer 130 240
	END
}

# cost STAGE: seconds that it took when it passed before, or about
cost() {
	took=$(awk -v s="$1" '$1 == s && $4 == "passed" { t = $2 } END { print t }' "$out/stages")
	[ -n "$took" ] || [ -z "$emulated" ] || took=1
	echo "${took:-$(plan | awk -v s="$1" '$1 == s { print $2 }')}"
}

# is_done STAGE: it has a result, or was cut off twice
is_done() {
	awk -v s="$1" '
		$1 == s { v = $4 $5 $6 }
		END { exit v == "" || v == "skip:notime" || v == "cutoff:the" }' "$out/stages" ||
		[ "$(grep -c "^$1\$" "$out/begun")" -ge 2 ]
}

left() {
	echo $((begin + total - 5 - $(date +%s)))
}

# ---- results ----

# rows STAGE: the measurements of its log
rows() {
	[ ! -e "$out/$1.log" ] ||
		grep '^{.*}$' "$out/$1.log" |
		sed "s/^{/{\"run\": $run, \"stage\": \"$1\", /"
}

# pack [STAGE]: both packed files; the rows of a stage that is still running count. That is done in
# the background, may be ended in the middle, and has temporary files of its own.
pack() {
	new=.new${1:+.part}
	{ cat "$out/measured.jsonl"; [ $# -eq 0 ] || rows "$1"; } >"$out/$new.rows"
	p=$(python_with json) &&
		"$p" tests/gpu/table.py ${tiny:+"$tiny"} "$out/stages" "$out/$new.rows" \
			>"$out/$new.table" &&
		mv "$out/$new.table" "$packed/gpu-run.txt"
	(cd "$out" && tar -czf "$packed/$new.tar" stages begun runs measured.jsonl \
		./*.log ./*.csv ./primitives.* ./logits.* 2>/dev/null)
	mv "$packed/$new.tar" "$packed/gpu-run.tar.gz"
}

# stage NAME LIMIT
stage() {
	start=$(date +%s) limit=$(left) wants=$(cost "$1")
	if [ "$limit" -lt "$wants" ]; then
		limit=$((limit > 0 ? limit : 0))
		verdict="skip: no time left: it takes $wants s, $limit s are left"
	else
		cut=1
		[ "$limit" -lt "$2" ] || { limit=$2 cut=''; }
		[ ! -e "$out/$1.log" ] || mv "$out/$1.log" "$out/$1.before.log"
		echo "$1" >>"$out/begun"
		{
			seconds=0
			while sleep 1; do
				seconds=$((seconds + 1))
				[ $((seconds % 15)) -ne 0 ] || pack "$1"
			done
		} >/dev/null 2>&1 &
		packer=$!
		RUN_STAGE=$1 timeout -k 5 "$limit" sh tests/gpu/stages.sh >"$out/$1.log" 2>&1
		status=$?
		# not TERM: a shell that has a trap for it loses one that comes as it forks
		kill -s KILL "$packer" 2>/dev/null
		wait "$packer" 2>/dev/null
		case $status in
		0) verdict=passed ;;
		77) verdict=$(tail -n 1 "$out/$1.log") ;;
		124 | 137) verdict="FAILED: more than $limit s"
			[ -z "$cut" ] || verdict="cut off: the $limit s that were left" ;;
		*) verdict="FAILED: exit $status" ;;
		esac
		rows "$1" >>"$out/measured.jsonl"
	fi
	printf '%-12s %4d s  %s\n' "$1" $(($(date +%s) - start)) "$verdict" |
		tee -a "$out/stages" "$out/now"
	pack
}

# ---- the run ----

# python_with MODULE: see stages.sh
python_with() {
	RUN_STAGE=python_with sh tests/gpu/stages.sh "$1"
}

# Programs load cuBLAS on demand. If neither the dynamic linker nor the programs' second place has
# it, this finds the one that came with PyTorch or with a toolkit in another folder.
find_cublas() {
	cublas=
	! ldconfig -p 2>/dev/null | grep -q 'libcublas\.so\.13' &&
		[ ! -e /usr/local/cuda/lib64/libcublas.so.13 ] || return
	if p=$(python_with nvidia); then
		cublas=$("$p" -c 'import nvidia, os
print(*(p for n in nvidia.__path__ for p, _, f in os.walk(n) if "libcublas.so.13" in f), sep=":")')
	fi
	for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
		"$(dirname "$(command -v nvcc)")/../lib64"; do
		[ -n "$cublas" ] || [ ! -e "$folder/libcublas.so.13" ] || cublas=$folder
	done
	LD_LIBRARY_PATH=$cublas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH cublas
}

[ -e "$out/stages" ] || [ ! -e "$packed/gpu-run.tar.gz" ] ||
	tar -xzf "$packed/gpu-run.tar.gz" -C "$out" || exit 1
touch "$out/stages" "$out/begun" "$out/runs" "$out/measured.jsonl"
run=$(($(wc -l <"$out/runs") + 1))
wanted=$*
if [ -z "$wanted" ]; then
	for s in $(plan | cut -d ' ' -f 1); do
		is_done "$s" || case $s in environment | ceilings) ;; *) wanted="$wanted $s" ;; esac
	done
	case "$wanted" in
	'') ;;
	*bench* | *model* | *fier* | *transformers* | *rest*)
		wanted="environment ceilings $wanted"
		;;
	*) wanted="environment $wanted" ;;
	esac
fi
for s in $wanted; do
	plan | grep -q "^$s " || { echo "run.sh: there is no stage '$s'" >&2; exit 2; }
done
echo "run $run, $total s at most:"
plan | while read -r s _ most; do
	case " $wanted " in
	*" $s "*) printf '%-12s %4d s about, %d s at most\n' "$s" "$(cost "$s")" "$most" ;;
	esac
done
echo
[ -z "$dry" ] || exit 0
echo "$(date -u +%FT%TZ) $wanted" >>"$out/runs"

export PATH build out emulated programs tests ops tiny
[ -n "$emulated" ] || find_cublas
: >"$out/now"
helpers='' made=''
trap 'kill $helpers 2>/dev/null
	rm -f "$out/now" "$out"/.new* "$out/.weights_end" "$packed"/.new*
	[ -z "$made" ] || [ -n "$keep" ] || RUN_STAGE=remove_weights sh tests/gpu/stages.sh' EXIT
trap 'exit 143' TERM INT HUP
if [ -z "$emulated" ] && [ -r /dev/nvidia0 ]; then
	# The driver may shut down a GPU that no process has open, and start it again for each
	# program.
	# shellcheck disable=SC2217 # it has it open
	sleep "$total" </dev/nvidia0 >/dev/null 2>&1 &
	helpers=$!
	clocks=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active
	nvidia-smi --query-gpu="$clocks" \
		--format=csv,noheader -l 5 >"$out/clocks.$run.csv" 2>/dev/null &
	helpers="$helpers $!"
fi
wanted_weights=''
[ -n "${MODEL:-}" ] || case " $wanted " in
*" model "* | *" transformers "*) wanted_weights=llama-3.1-8b ;;
esac
[ -n "${MODEL_MHA:-}" ] || case " $wanted " in
*" fier "*) wanted_weights="$wanted_weights llama-2-7b" ;;
esac
export wanted_weights
rm -f "$out/.weights_end"
if [ -n "$wanted_weights" ] && [ "$(left)" -gt 0 ]; then
	made=1
	RUN_STAGE=weights nice sh tests/gpu/stages.sh >"$out/weights.log" 2>&1 &
	helpers="$helpers $!"
fi

while read -r s _ most; do
	case " $wanted " in *" $s "*) stage "$s" "$most" </dev/null ;; esac
done <<END
$(plan)
END

echo
[ ! -e "$packed/gpu-run.txt" ] || cat "$packed/gpu-run.txt"
echo
! grep FAILED "$out/now"

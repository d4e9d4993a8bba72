#!/bin/sh
# ptx_tests.sh - runs tests/unit/ops with the kernels from PTX, its parts side by side, and checks
# what the kernels did
#
# usage: tests/ptx/ptx_tests.sh [-s] [-l] FOLDER [PART ...]
#
# FOLDER, which make builds, has ops_ptx and primitives_ptx. PART+hopper: a part of ops with kernels
# that want a GPU of capability 9.0. -s: a sample of the cases. -l: also
# prints the kernels that no test runs; where all parts are run that is a failure, but for those
# excused below. What a part said stays in FOLDER/said/PART, and is shown
# when not all went well. The last line counts the tests; a part with a fault, such as a race, has
# failed.
set -u
export LC_ALL=C CDPATH=

sample='' list=''
while [ $# -gt 0 ]; do
	case $1 in
	-s) sample=-s ;;
	-l) list=1 ;;
	*) break ;;
	esac
	shift
done

# Kernels that no test need run: FILE: NAME, a tab, the reason
excused() {
	cat <<-END
	gpu_device: nothing	it is never launched: the runtime is asked for its attributes
	END
}

# check_run NOT_RUN: prints what is wrong with that list of kernels that no test runs
check_run() {
	excused | cut -f 1 | sort | comm -3 - "$1" | sed \
	    -e 's/^\t\(.*\)/FAILED: no test runs \1/;t' \
	    -e 's/.*/FAILED: & is excused, and is run or gone/'
}

# one NAME COMMAND ...: runs it, and prints: tests that passed, failed, seconds, NAME. It ends with
# the line "N passed, N failed".
one() {
	name=$1 said=$folder/said/$1 start=$(date +%s)
	shift
	export PTX_TOTALS="$said.totals"
	rm -f "$PTX_TOTALS"
	timeout --foreground -k 10 1500 "$@" >"$said" 2>&1 </dev/null
	status=$?
	set -- "$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$said" | tail -n 1)"
	passed=${1%% *} failed=${1##* }
	if [ "${failed:-0}" = 0 ] && [ "$status" -ne 0 ]; then
		failed=1
		echo "ended with $status" >>"$said"
	fi
	echo "${passed:-0} ${failed:-0} $(($(date +%s) - start)) $name"
}

# The instructions of port.h: what they give must be what its models on the emulator give.
compare_primitives() {
	export KV_EMULATED_CAPABILITY=90
	"$folder/../emulated/primitives" >"$folder/said/models" &&
	    "$folder/primitives_ptx" >"$folder/said/from_ptx" || return
	same=$(comm -12 "$folder/said/models" "$folder/said/from_ptx" | wc -l)
	comm -13 "$folder/said/models" "$folder/said/from_ptx"
	echo "$same passed, $(($(wc -l <"$folder/said/models") - same)) failed"
}

# part FOLDER NAME: called by xargs below
if [ "${1:-}" = --part ]; then
	folder=$2
	case $3 in
	primitives)
		one primitives sh "$0" --primitives "$folder"
		rm -f "$folder/said/primitives.totals"  # its kernels are none of gpu/
		;;
	translator) one translator python3 "$(dirname "$0")/ptx_check.py" ;;
	*+hopper)
		export KV_EMULATED_CAPABILITY=90
		# shellcheck disable=SC2086 # an option, or none
		one "$3" "$folder/ops_ptx" ${PTX_SAMPLE-} "${3%+hopper}"
		;;
	planted) one planted sh "$(dirname "$0")/ptx_faults.sh" "$folder" ;;
	*)
		# shellcheck disable=SC2086 # an option, or none
		one "$3" "$folder/ops_ptx" ${PTX_SAMPLE-} "$3"
		;;
	esac
	exit
fi
if [ "${1:-}" = --primitives ]; then
	folder=$2
	compare_primitives
	exit
fi

folder=$1
shift
whole=''
[ $# -gt 0 ] || {
	whole=1
	# what takes longest first
	first='windows attend mass quantised'
	[ "${PTX_FAULTS:-1}" = 0 ] || first="$first planted"
	# shellcheck disable=SC2046,SC2086 # words
	set -- $first $("$folder/ops_ptx" -l | grep -vxE "cpu|$(echo "$first" | tr ' ' '|')") \
	    attend+hopper between+hopper mass+hopper windows+hopper primitives translator
}
rm -rf "$folder/said"
mkdir -p "$folder/said" || exit
start=$(date +%s)
export PTX_SAMPLE="$sample"
printf '%s\n' "$@" |
	xargs -n 1 -P "$(getconf _NPROCESSORS_ONLN)" sh "$0" --part "$folder" | {
	all_passed=0 all_failed=0 parts=0
	while read -r passed failed seconds name; do
		parts=$((parts + 1))
		all_passed=$((all_passed + passed))
		all_failed=$((all_failed + failed))
		[ "$failed" -gt 0 ] && word=FAILED || word=ok
		printf '%-6s  %-12s %6d passed, %d failed, %d s\n' "$word" "$name" "$passed" \
			"$failed" "$seconds"
		[ "$failed" -eq 0 ] || cat "$folder/said/$name"
	done
	if [ "$parts" -ne $# ]; then
		echo "FAILED: $(($# - parts)) of $# parts have not been run"
		all_failed=$((all_failed + $# - parts))
	fi
	cat "$folder"/said/*.totals 2>/dev/null | awk '
		$1 == "kernel" { translated[substr($0, 8)] }
		$1 == "ran" { ran[substr($0, 5)] }
		$1 == "instructions" { instructions += $2 }
		END {
			for (k in translated)
				if (!(k in ran))
					print k
			printf "%d kernels translated, %d run, %.0f instructions executed\n",
				length(translated), length(ran), instructions >totals
		}' totals="$folder/said/totals" | sort >"$folder/said/not_run"
	# which parts run a kernel
	awk '$1 == "ran" {
			part = FILENAME
			gsub(/^.*\/|\.totals$/, "", part)
			parts[substr($0, 5)] = parts[substr($0, 5)] " " part
		}
		END { for (k in parts) print k ":" parts[k] }' \
		"$folder"/said/*.totals 2>/dev/null | sort >"$folder/said/runs"
	if [ -n "$list" ] && [ -n "$whole" ]; then
		check_run "$folder/said/not_run" | tee "$folder/said/not_excused"
		wrong=$(wc -l <"$folder/said/not_excused")
		all_failed=$((all_failed + wrong))
		[ "$wrong" -gt 0 ] || all_passed=$((all_passed + 1))
	elif [ -n "$list" ] && [ -s "$folder/said/not_run" ]; then
		echo 'Kernels that these parts do not run:'
		sed 's/^/  /' "$folder/said/not_run"
	fi
	cat "$folder/said/totals"
	printf '%d passed, %d failed, 0 skipped, in %d s\n' "$all_passed" "$all_failed" \
		"$(($(date +%s) - start))"
	[ "$all_failed" -eq 0 ]
}

#!/bin/sh
# spills.sh - fails if a kernel spills registers: spills.sh FILE.ptxas ... (the output of nvcc
# -Xptxas -v)
#
# Naive kernels, reference_..., may spill. With -v also prints registers and shared memory of every
# kernel.
set -eu
export LC_ALL=C CDPATH=

verbose=0
if [ "${1:-}" = -v ]; then
	verbose=1
	shift
fi
awk -v verbose="$verbose" '
	/Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; arch = part[4] }
	/bytes spill stores/ {
		spilled = 0
		for (i = 2; i <= NF; i++)
			if ($i == "bytes" && $(i + 1) == "spill")
				spilled += $(i - 1)
		kernels++
	}
	/Used [0-9]+ registers/ {
		if (verbose || (spilled > 0 && kernel !~ /reference/))
			printf "%-7s %-90s %s%s\n", arch, kernel, substr($0, index($0, "Used")),
				(spilled > 0 ? ", SPILLS " spilled " bytes" : "")
		if (spilled > 0 && kernel !~ /reference/)
			bad++
	}
	END {
		printf "%d kernels, %d spill\n", kernels, bad
		exit bad > 0 || kernels == 0
	}' "$@"

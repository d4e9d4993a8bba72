#!/bin/sh
# compare.sh - accuracy, kept rows, KV footprint and time of the methods in examples/methods, on documents made for the demo model
#
# usage: examples/compare.sh [-b BUDGETS | -r RATES] [-M METHODS] [-n DOCUMENTS] [-p PLOT] [-s SEED] [-t TOKENS] [-T TABLE]
#
#   -b BUDGETS    rows of each KV head to keep, or to read at each step, with blanks between them, instead of rates
#   -M METHODS    names of scripts in examples/methods, with blanks between them (all of them)
#   -n DOCUMENTS  documents with six facts and a question each (10)
#   -p PLOT       draw accuracy against footprint, and against kept rows, with gnuplot, to a file that ends in .svg or .png
#   -r RATES      shares of the rows to keep, with blanks between them ("0.05 0.1 0.2")
#   -s SEED       other documents (1)
#   -t TOKENS     their length, about (1000)
#   -T TABLE      write the results, one line for each run, with tabs: method, rate, document, right (1 or 0), kept, footprint,
#                 peak (in %), seconds, read (in %)
#
# Prints a line for each method and rate, means over the documents: answers exactly right, rows kept when the answer begins, footprint and
# peak of the whole run, bytes of the cache that are read for each token of the answer (what an index needs included), all in %; seconds of
# a run. Then the critical footprints: the least with nine tenths of the full cache's accuracy.
# A run that fails is counted and named, and the exit status is 1. Needs Python 3, and the programs from the PATH or build/.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
documents=10
tokens=1000
seed=1
rates='0.05 0.1 0.2'
by=rate
methods=
plot=
table=

say() {
	echo "compare.sh: $*" >&2
}

usage() {
	sed -n 's/^# usage: /usage: /p' "$0" >&2
	exit 2
}

while getopts b:M:n:p:r:s:t:T: option; do
	case $option in
	b) rates=$OPTARG by=budget ;;
	M) methods=$OPTARG ;;
	n) documents=$OPTARG ;;
	p) plot=$OPTARG ;;
	r) rates=$OPTARG by=rate ;;
	s) seed=$OPTARG ;;
	t) tokens=$OPTARG ;;
	T) table=$OPTARG ;;
	*) usage ;;
	esac
done
[ $# -lt "$OPTIND" ] || usage
case $plot in
'' | *.svg | *.png) ;;
*) say "-p $plot: the name must end in .svg or .png"; exit 2 ;;
esac

[ -n "$methods" ] || methods="full $(basename -a -s .sh "$here"/methods/*.sh | grep -vx -e common -e full)"
for method in $methods; do
	[ -e "$here/methods/$method.sh" ] || { say "there is no $here/methods/$method.sh"; exit 2; }
done
command -v kv-prefill >/dev/null || PATH=$(cd "$here/.." && cd "${O:-build}" && pwd):$PATH
export PATH
command -v python3 >/dev/null || { say "python3 is needed to make the documents"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
runs=$work/runs
failures=$work/failures
: >"$runs"
: >"$failures"

# ---- running ----

# The full cache has none.
rates_of() {
	if [ "$1" = full ]; then
		echo all
	else
		echo "$rates"
	fi
}

# What the program said that failed first; those before it in the pipe complain about the pipe.
reason() {
	grep -v 'Broken pipe' "$work/messages" | head -n 1
}

# one METHOD RATE DOCUMENT: a run; adds a line to $runs, or to $failures
one() {
	case $by-$2 in
	*-all)    share='-r 1' ;;
	budget-*) share="-b $2" ;;
	*)        share="-r $2" ;;
	esac
	started=$(date +%s.%N)
	# shellcheck disable=SC2086 # two words
	if ! sh "$here/methods/$1.sh" $share "$3" >"$work/line" 2>"$work/messages"; then
		printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$(basename "$3" .txt)" "$(reason)" >>"$failures"
		return
	fi
	awk -v rate="$2" -v document="$(basename "$3" .txt)" -v expected="$(cat "${3%.txt}.answer")" \
	    -v started="$started" -v ended="$(date +%s.%N)" -v OFS='\t' '{
		answer = $6
		for (i = 7; i <= NF; i++)
			answer = answer $i
		print $1, rate, document, answer == expected, $2, $3, $4, ended - started, $5
		exit
	}' "$work/line" >>"$runs"
}

# Once a second or less often: what is being done, and about how much is left.
progress() {
	now=$(date +%s)
	if [ "$now" -eq "$reported" ] || { [ ! -t 2 ] && [ "$now" -lt $((reported + 10)) ]; }; then
		return
	fi
	reported=$now
	left=
	[ "$done_runs" -eq 0 ] || left=", about $(((now - began) * (all_runs - done_runs) / done_runs)) s left"
	if [ -t 2 ]; then
		printf '\r%s of %s runs%s \033[K' "$done_runs" "$all_runs" "$left" >&2
	else
		say "$done_runs of $all_runs runs$left"
	fi
}

run_all() {
	all_runs=0
	for method in $methods; do
		for rate in $(rates_of "$method"); do
			all_runs=$((all_runs + documents))
		done
	done
	done_runs=0
	began=$(date +%s)
	reported=$began
	for document in "$work"/documents/*.txt; do
		for method in $methods; do
			for rate in $(rates_of "$method"); do
				progress
				one "$method" "$rate" "$document"
				done_runs=$((done_runs + 1))
			done
		done
	done
	[ ! -t 2 ] || printf '\r\033[K' >&2
}

# ---- reporting ----

# Means over the documents, in the order in which methods and rates were given: method, rate, runs, accuracy, kept, footprint, peak,
# seconds, read, with tabs.
means() {
	awk -F '\t' -v OFS='\t' '
		!(($1, $2) in n) { key[++keys] = $1 FS $2 }
		{
			n[$1, $2]++
			for (i = 4; i <= 9; i++)
				sum[$1, $2, i] += $i
		}
		END {
			for (k = 1; k <= keys; k++) {
				split(key[k], name, FS)
				count = n[name[1], name[2]]
				line = name[1] OFS name[2] OFS count
				for (i = 4; i <= 9; i++)
					line = line OFS sum[name[1], name[2], i] / count * (i == 4 ? 100 : 1)
				print line
			}
		}' "$runs"
}

print_table() {
	echo "$documents documents of about $tokens tokens with 6 facts each"
	echo
	echo "| method | $by | accuracy % | kept % | footprint % | peak % | read % | seconds |"
	echo "|---|---|---|---|---|---|---|---|"
	awk -F '\t' '{ printf "| %s | %s | %.0f | %.1f | %.1f | %.1f | %.1f | %.2f |\n", $1, $2, $4, $5, $6, $7, $9, $8 }' "$work/means"
}

# Where the full cache is there to compare with. Of two rates with one footprint the better counts.
print_critical() {
	awk -F '\t' -v OFS='\t' '
		!(($1, $6) in best) { key[++keys] = $1 FS $6; best[$1, $6] = $4 }
		$4 > best[$1, $6] { best[$1, $6] = $4 }
		END {
			for (k = 1; k <= keys; k++) {
				split(key[k], name, FS)
				print name[1], name[2] / 100, best[name[1], name[2]] / 100
			}
		}' "$work/means" >"$work/critical"
	if grep -q '^full' "$work/critical"; then
		echo
		kv-footprint --critical "$work/critical"
	fi
}

# Which runs failed, a line for each method and rate.
print_failures() {
	[ -s "$failures" ] || return 0
	say "$(wc -l <"$failures") of $all_runs runs failed; they are in no mean:"
	awk -F '\t' '
		!(($1, $2) in n) { key[++keys] = $1 FS $2; why[$1, $2] = $4 }
		{ n[$1, $2]++ }
		END {
			for (k = 1; k <= keys; k++) {
				split(key[k], name, FS)
				printf "    %s at %s, %d times: %s\n", name[1], name[2], n[name[1], name[2]], why[name[1], name[2]]
			}
		}' "$failures" >&2
}

# Accuracy against footprint, and against the rows that are kept when the answer begins. A line through the rates of each method.
draw() {
	case $plot in
	*.svg) terminal='svg size 1200,560 background "white"' ;;
	*)     terminal='png size 1200,560' ;;
	esac
	: >"$work/blocks"
	for method in $methods; do
		awk -F '\t' -v method="$method" '$1 == method { print $2, $6, $5, $4 }' "$work/means" | sort -g >"$work/block"
		[ -s "$work/block" ] || continue
		{ echo "rate $method $method accuracy"; cat "$work/block"; printf '\n\n'; } >>"$work/blocks"
	done
	gnuplot <<-END
		set terminal $terminal
		set output "$work/plot"
		set xrange [0:105]
		set yrange [-5:105]
		set grid
		set ylabel "answers exactly right, %"
		stats "$work/blocks" using 1 nooutput
		blocks = STATS_blocks - 2
		set multiplot layout 1,2 margins 0.06,0.80,0.12,0.9 spacing 0.07 title "$documents documents of about $tokens tokens"
		set xlabel "KV footprint of the whole run, %"
		set key off
		plot for [i=0:blocks] "$work/blocks" index i using 2:4 with linespoints
		set xlabel "rows kept when the answer begins, %"
		set key outside right top
		plot for [i=0:blocks] "$work/blocks" index i using 3:4 with linespoints title columnheader(2)
	END
	mv "$work/plot" "$plot"
}

python3 "$here/demo-model/documents.py" --n "$documents" --tokens "$tokens" --seed "$seed" --out "$work/documents"
run_all
[ -z "$table" ] || cp "$runs" "$table"
means >"$work/means"
print_table
print_critical
status=0
if [ -n "$plot" ] && ! command -v gnuplot >/dev/null; then
	say "no plot: there is no gnuplot (on Debian: apt-get install gnuplot-nox)"
	status=1
elif [ -n "$plot" ]; then
	draw || status=1
fi
print_failures
[ ! -s "$failures" ] || status=1
exit $status

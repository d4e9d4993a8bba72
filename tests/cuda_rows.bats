#!/usr/bin/env bats
# bats file_tags=slow
# --device cuda: rows that run again, and numbers of rows that are made while tokens run, on the emulated GPU (tests/cuda) beside the CPU

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

@test "rows of a merged snapshot that run again are on the GPU what they are on the CPU" {
	local device type
	seq 5 44 >a.ids
	seq 100 151 >b.ids
	for type in f32 int8; do
		for x in a b; do
			kv-prefill -m "$DEMO" --ids --dtype f32 --keys $type --values $type -o $x.kv $x.ids
		done
		kv-merge -q a.kv b.kv -o m.kv
		for device in cpu cuda; do
			kv-recompute -m "$DEMO" --device $device --products f32 --rate 0.3 --first 3 -o $device.kv m.kv
		done
		[ "$(kv-diff --json --device cpu cpu.kv cuda.kv | json - 'o["only_a"] == o["only_b"] == 0 and o["key_difference"] < (0.05 if "'$type'" == "f32" else 0.3)')" = True ]
		assert_not_equal "$(logical m.kv)" "$(logical cuda.kv)"
	done
	# all of them: the text as a whole
	cat a.ids b.ids | kv-prefill -m "$DEMO" --device cuda --ids --dtype f32 -o whole.kv -
	for x in a b; do kv-prefill -m "$DEMO" --device cuda --ids --dtype f32 -o $x.kv $x.ids; done
	kv-merge -q a.kv b.kv | kv-recompute -m "$DEMO" --device cuda --rate 1 -o again.kv
	[ "$(kv-diff --json --device cpu whole.kv again.kv | json - 'o["key_difference"] < 1e-3')" = True ]
}

@test "blocks that chunked eviction has left in a store are found again on the GPU" {
	seq 5 700 >ids
	set -- -c 128 --once --score 'snapkv window=16' --evict budget=40
	kv-prefill -q -m "$DEMO" --device cuda --ids "$@" -o cold.kv ids
	for run in first second; do
		kv-prefill -q -m "$DEMO" --device cuda --ids --store S "$@" -o $run.kv ids
		same_values $run.kv cold.kv s.logical_digest s.events
	done
	assert_equal "$(see second.kv 's.provenance[-1]["options"]["reused"]')" 512
}

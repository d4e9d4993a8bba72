#!/usr/bin/env bats
# kv-plan: equation 7 of SpeContext, the figures of PruLong's script

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

oracle() {
	"$PYTHON" "$ORACLE/footprint.py" "$@"
}

# prulong WANT PEAK P R C S W SPARSITY HEADS: the published figures, and the formulas derived anew
prulong() {
	local want=$1 peak=$2 words
	shift 2
	words="prompt=$1 generate=$2 chunk=$3 sink=$4 recent=$5 sparsity=$6 head-sparsity=$7"
	run -0 kv-plan --prulong "$words"
	assert_equal "$(tr -s ' ' <<<"${lines[1]}")" " $want% $peak%"
	kv-plan --prulong "$words" --json >got
	oracle prulong "$@" >want
	"$PYTHON" -c '
import json
got, want = json.load(open("got")), json.load(open("want"))
assert got.keys() == want.keys()
assert all(abs(got[k] - want[k]) <= 1e-12 * abs(want[k]) for k in want), (got, want)'
}

@test "PruLong's own counting gives the figures of methods and paper" {
	prulong 72.22 50.00 5 3 1 0 3 0 1
	prulong 72.22 50.00 5 3 1 1 2 0 1
	prulong 72.22 50.00 4 4 4 1 2 0 1
	prulong 60.29 50.00 12 4 4 1 3 0 1
	prulong 80.15 65.62 12 4 4 1 3 0 0.5
	prulong 50.42 48.35 110000 100 32768 128 1024 0 0.7
	prulong 36.47 34.96 110000 100 8192 128 1024 0 0.7
	prulong 49.53 47.73 110000 100 32768 0 0 0.7 0
	prulong 35.84 34.93 110000 100 8192 0 0 0.7 0
	prulong 99.87 99.91 110000 100 0 0 0 0.7 0
	# round() is to even: half of 129 and of 131 rows; and more kept than there are
	prulong 83.84 81.45 393 6 129 7 9 0.5 0.25
	prulong 84.08 82.71 393 6 131 7 9 0.5 0.25
	prulong 100.00 100.00 1 0 0 0 0 1 0
}

@test "--offload prints the longest texts of equation 7, for the shape of the snapshot's model" {
	kv-prefill -m "$DEMO" -o demo.kv "$ROOT/examples/prompts/harbour.txt"
	for how in "3m 2000000 0 64 1" "40m 2000000 150000 512 3" "2800k 2000000 60000 1000 1"; do
		read -r limit weights head budget batch <<<"$how"
		kv-plan --json --offload "memory=$limit weights=$weights head-weights=$head budget=$budget batch=$batch" demo.kv >got.json
		"$PYTHON" - "$limit" "$weights" "$head" "$budget" "$batch" got.json <<-'END'
			import json, sys
			from fractions import Fraction
			limit, (weights, head, budget, batch) = sys.argv[1], map(int, sys.argv[2:6])
			limit = int(limit[:-1]) * (1 << 10 if limit[-1] == "k" else 1 << 20)
			L, H, D, alpha = 4, 2, 32, 2
			def takes(i, S):
			    return Fraction(13, 10) * (weights + head) + 4 * batch * H * D * ((L - i + 1 + alpha) * S + i * budget)
			for i, t in enumerate(json.load(open(sys.argv[6]))["thresholds"]):
			    assert t["layers"] == i
			    S = t["tokens"]
			    assert takes(i, 0) > limit if S is None else takes(i, S) <= limit < takes(i, S + 1), t
		END
	done
	# quantised rows: 34 and 18 of 64 bytes, in the layers but the first
	kv-quantize --keys q8_0 --values q4_0 --skip-layers 0 -o small.kv demo.kv
	kv-plan --json --offload "memory=3m weights=2000000 budget=64" small.kv >got.json
	"$PYTHON" - got.json <<-'END'
		import json, sys
		limit = 3 << 20
		def takes(i, S):
		    rows = [128, 52, 52, 52]
		    here, there = rows[:4 - i], rows[4 - i:]
		    return 10 * 2 * (sum(here) * S + sum(there) * 64 + 128 * (1 + 2) * S) + 13 * 2000000
		for i, t in enumerate(json.load(open(sys.argv[1]))["thresholds"]):
		    S = t["tokens"]
		    assert takes(i, S) <= 10 * limit < takes(i, S + 1), t
	END
	run -0 kv-plan --offload 'memory=2800k weights=2000000 head-weights=60000 budget=100' demo.kv
	assert_line --index 0 'layers        tokens'
	assert_equal "${#lines[@]}" 6
	run -1 kv-plan --offload 'memory=2m weights=2000000 budget=64' demo.kv
	assert_output --partial 'not a token fits'
}

@test "words that are missing, out of range or of the other plan are refused" {
	refused() {
		run -2 --separate-stderr kv-plan "${@:2}"
		assert_regex "$stderr" "$1"
	}
	refused 'give --offload or --prulong'
	refused 'give --offload or --prulong' --offload 'memory=3m weights=2m budget=4' --prulong prompt=5
	refused 'give memory=LIMIT, weights=N .* and budget=N' --offload 'memory=3m budget=4' x.kv
	refused 'give memory=LIMIT, weights=N .* and budget=N' --offload 'memory=3m weights=2m' x.kv
	refused "'3x' is not a whole number" --offload 'memory=3x weights=2m budget=4' x.kv
	refused "budget: '0' is not a whole number from 1" --offload 'memory=3m weights=2m budget=0' x.kv
	refused "there is no option 'prompt'" --offload 'memory=3m weights=2m budget=4 prompt=5' x.kv
	refused 'too many operands' --offload 'memory=3m weights=2m budget=4' a b
	refused '--prulong: give prompt=N' --prulong chunk=4
	refused '--prulong reads no snapshot' --prulong prompt=5 x.kv
	refused 'sparsity=1.1: want 0 to 1' --prulong 'prompt=5 sparsity=1.1'
	refused 'head-sparsity=-1: want 0 to 1' --prulong 'prompt=5 head-sparsity=-1'
	refused 'want 1 to 2.32 - 1 tokens' --prulong 'prompt=4294967294 generate=9'
	refused 'want 1 to 2.32 - 1 tokens' --prulong prompt=0
}

@test "a full disk is an error" {
	run -1 bash -c 'kv-plan --prulong prompt=5 >/dev/full'
}

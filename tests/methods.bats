#!/usr/bin/env bats
# What single scoring methods keep; what holds for all of them stands in contract.bats

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mksnapshot -L 3 -H 8 -G 4 -E 16 -N 200 -w 8 --mass --paid -d bf16 -o even.kv
	kv-score --list | cut -d ' ' -f 1 >methods
	[ "$(wc -l <methods)" -ge 4 ]
}

@test "random does not depend on which other rows there are" {
	kv-score --method random even.kv | kv-evict --budget 30 -o direct.kv
	kv-score --method random even.kv | kv-evict --budget 100 | kv-score --method random | kv-evict --budget 30 -o steps.kv
	assert_equal "$(logical direct.kv)" "$(logical steps.kv)"
	kv-score --method random --seed 1 even.kv | kv-evict --budget 30 -o other.kv
	assert_not_equal "$(logical direct.kv)" "$(logical other.kv)"
}

@test "recent keeps sinks and the latest rows" {
	kv-score --method recent --sink 2 even.kv | kv-evict --budget 6 -o out.kv
	assert_equal "$(positions out.kv 2 3)" "0 1 196 197 198 199"
}

@test "snapkv keeps its window" {
	kv-score --method snapkv even.kv | kv-evict --budget 8 -o out.kv
	assert_equal "$(positions out.kv 0 0)" "$(seq -s ' ' 192 199)"
	run -2 --separate-stderr bash -c 'kv-score --method snapkv even.kv | kv-evict --budget 7 --small refuse'
	assert_regex "$stderr" '8 are always kept \(0 sink, 0 recent, 8 scored \+inf\)'
}

@test "h2o with half the budget recent keeps heavy hitters and the latest rows, in equal parts" {
	kv-score --method h2o even.kv | kv-evict --budget 20 --recent 10 -o out.kv
	cat >halves.py <<-'E'
		import sys
		sys.path.insert(0, sys.argv[1])
		import numpy, kvread
		old, new = (kvread.read(open(n, 'rb')) for n in ('even.kv', 'out.kv'))
		for a, b in zip(old.layers, new.layers):
		    for g, kept in enumerate(b.positions):
		        heavy = numpy.sum(a.mass[g], axis=0, dtype=numpy.float64)[:190].argsort()[-10:]
		        assert kept == sorted(heavy) + list(range(190, 200)), (g, kept)
	E
	"$PYTHON" halves.py "$FORMAT"
}

@test "every method in the list is named in kv-score's manual page" {
	[ -e "$ROOT/man/kv-score.1" ] || skip "no page yet"
	while read -r method; do
		grep -qw "$method" "$ROOT/man/kv-score.1"
	done <methods
}

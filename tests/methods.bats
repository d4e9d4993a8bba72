#!/usr/bin/env bats
# The contract that every method of `kv-score --list` keeps, under kv-evict's budgets

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mksnapshot -L 3 -H 8 -G 4 -E 16 -N 200 -w 8 --mass -d bf16 -o even.kv
	mksnapshot -L 3 -H 8 -G 4 -E 16 -N 200 --ragged -w 8 --mass -d bf16 -o ragged.kv
	kv-score --list | cut -d ' ' -f 1 >methods
	[ "$(wc -l <methods)" -ge 4 ]
}

rows() {
	see "$1" '[l.rows for l in s.layers]'
}

@test "a budget is met exactly in every head, or the head keeps all its rows" {
	for file in even ragged; do
		for budget in 9 120 200; do
			see $file.kv "[[min(n, $budget) for n in l.rows] for l in s.layers]" >want.$budget
		done
		for rate in 0.25 0.77 1; do
			see $file.kv "[[int(n * $rate + 1e-9) for n in l.rows] for l in s.layers]" >want.$rate
		done
		while read -r method; do
			kv-score --method "$method" $file.kv -o scored.kv
			for n in 9 120 200 0.25 0.77 1; do
				[[ $n == *.* || $n == 1 ]] && option=--rate || option=--budget
				kv-evict -q $option $n scored.kv -o out.kv
				rows out.kv | diff want.$n -
			done
		done <methods
	done
}

@test "sinks and recent positions stay under every method, rows come out ascending and with their own content" {
	cat >holds.py <<-'E'
		import sys
		sys.path.insert(0, sys.argv[1])
		import kvread
		old, new = (kvread.read(open(n, 'rb')) for n in sys.argv[2:4])
		end = old.head['next_position']
		for l, (a, b) in enumerate(zip(old.layers, new.layers)):
		    for g, (p, q) in enumerate(zip(a.positions, b.positions)):
		        assert q == sorted(set(q)) and set(q) <= set(p), (l, g)
		        assert all(x in q for x in p if x < 4 or x >= end - 10), (l, g)
		        at = [p.index(x) for x in q]
		        for what in 'keys', 'values':
		            assert (old.array(l, what, g)[at] == new.array(l, what, g)).all(), (l, g, what)
	E
	for file in even ragged; do
		while read -r method; do
			kv-score --method "$method" $file.kv | kv-evict --budget 40 --sink 4 --recent 10 -o out.kv
			"$PYTHON" holds.py "$FORMAT" $file.kv out.kv
		done <methods
	done
}

@test "a larger budget keeps all that a smaller one keeps" {
	while read -r method; do
		kv-score --method "$method" ragged.kv -o scored.kv
		kv-evict --budget 16 scored.kv -o last.kv
		for budget in 17 60 150; do
			kv-evict --budget $budget scored.kv -o out.kv
			see last.kv '[[set(p) for p in l.positions] for l in s.layers]' >small
			see out.kv '[[set(p) for p in l.positions] for l in s.layers]' >large
			"$PYTHON" - <<-'E'
				small, large = (eval('[' + open(n).read().strip().replace('] [', '], [') + ']') for n in ('small', 'large'))
				assert all(a <= b for x, y in zip(small, large) for a, b in zip(x, y))
			E
			mv out.kv last.kv
		done
	done <methods
}

@test "the same input gives the same bytes" {
	while read -r method; do
		kv-score --method "$method" ragged.kv | kv-evict --rate 0.3 -o a.kv
		kv-score --method "$method" -j 1 <ragged.kv | kv-evict --rate 0.3 - >b.kv
		cmp a.kv b.kv
	done <methods
}

@test "a rate of 1 is the identity, and evicting twice with one budget is evicting once" {
	while read -r method; do
		kv-score --method "$method" ragged.kv -o scored.kv
		kv-evict --rate 1 scored.kv -o out.kv
		assert_equal "$(logical out.kv)" "$(logical ragged.kv)"
		kv-evict --budget 20 --keep-queries scored.kv -o once.kv
		kv-score --method "$method" once.kv | kv-evict -q --budget 20 -o twice.kv
		assert_equal "$(logical twice.kv)" "$(logical once.kv)"
	done <methods
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
	run -2 --separate-stderr bash -c 'kv-score --method snapkv even.kv | kv-evict --budget 7'
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

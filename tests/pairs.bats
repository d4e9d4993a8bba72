#!/usr/bin/env bats
# bats file_tags=slow
# Each family of models with all that the programs do with a cache: it keeps its rule, or is refused by a reason that kvpipe(7) has

load helper

# pairs SUBJECT ...: of tests/bin/pairs.py; prints the faults. Even with ALL=cases a run takes a sample of the families of each
# pair, a smaller one under AddressSanitizer: all 9,906 pairs are for a change of what goes with what, `pairs.py --every 1`.
pairs() {
	local every=8
	! nm "$O/kv-check" | grep -q __asan_init || every=24
	! all_cases || every=4
	run "$PYTHON" "$ROOT/tests/bin/pairs.py" --every $every "$@"
	assert_success
	assert_output --regexp '^[1-9][0-9]* pairs, [0-9]+ refused$'
}

# Tests go on with the models and snapshots of those before.
setup() {
	mkdir -p "$BATS_FILE_TMPDIR/pairs"
	cd "$BATS_FILE_TMPDIR/pairs" || exit 1
}

@test "every method scores as its formula says, from full, evicted and quantised rows and those of query heads" {
	pairs methods
}

@test "every method in kv-prefill keeps what a pipe keeps, in a chunk its budget, and with a patch fewer rows" {
	pairs fused
}

@test "every method while decoding is a loop of one token, kv-score and kv-evict" {
	pairs decoding
}

@test "every policy, and every other word that chooses rows, leaves those of the formulas" {
	pairs policies choices
}

@test "every way to retrieve gives with all rows the text of plain decoding, and few rows from a file as from memory" {
	pairs retrieval
}

@test "rows of every type are near the full ones, and are read as the numbers that they stand for" {
	pairs types
}

@test "parts, threads, several texts, drafts, files of rows, stores, documents and probes give what one text alone gives" {
	pairs single
}

# of KIND: the names in its pairs
of() {
	tr ' ' '\n' <list | sed -n "s/^$1://p"
}

@test "each method, policy, way to retrieve and type that a program lists is in pairs" {
	"$PYTHON" "$ROOT/tests/bin/pairs.py" --list >list
	for pair in score prefill decode; do
		diff <(kv-score --list | cut -d ' ' -f 1) <(of $pair)
	done
	for pair in policy prefill-policy decode-policy; do
		diff <(kv-evict --list | cut -d ' ' -f 1) <(of $pair)
	done
	for name in fier quest cluster shadow specontext; do of retrieve | grep -qx $name; done
	for name in q8_0 q4_0 int8 fp8-hadamard kivi2; do of rows | grep -qx $name; done
}

@test "kvpipe(7) has each refusal" {
	groff -mdoc -Tascii -P-cbou -rLL=400n "$ROOT/man/kvpipe.7" | tr -s ' \n' ' ' >page
	"$PYTHON" "$ROOT/tests/bin/pairs.py" --pages >words
	[ "$(wc -l <words)" -ge 15 ]
	while read -r line; do
		grep -qF -- "$line" page || fail "kvpipe(7), What goes with what: $line"
	done <words
}

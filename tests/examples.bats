#!/usr/bin/env bats
# The scripts in examples/, as a newcomer runs them, and the demo model's own files

load helper

@test "the quick start shows the same answer with all rows and with a tenth of them" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	run sh "$ROOT/examples/quickstart.sh"
	assert_success
	answer=$(cat "$ROOT/examples/prompts/harbour.answer")
	[ "$(grep -c "^     $answer\$" <<<"$output")" -eq 2 ]
	assert_line --regexp 'rows +7856, 100\.0 %'
	assert_line --regexp 'rows +784, 10\.0 %'
	assert_line --regexp 'keys \+ values +100352 bytes'
}

@test "the quick start stops where the build fails" {
	cp -r "$ROOT/examples" "$ROOT/tests/deps.sh" "$BATS_TEST_TMPDIR"
	mkdir "$BATS_TEST_TMPDIR/tests"
	mv "$BATS_TEST_TMPDIR/deps.sh" "$BATS_TEST_TMPDIR/tests"
	printf 'all:\n\t@echo the build is broken && false\n' >"$BATS_TEST_TMPDIR/Makefile"
	O=build run sh "$BATS_TEST_TMPDIR/examples/quickstart.sh"
	assert_failure
	assert_output --partial 'the build is broken'
	refute_output --partial 'With the whole cache'
}

@test "accuracy.sh finds the answers with the full cache and SnapKV, and not by recency" {
	run --separate-stderr sh "$ROOT/examples/accuracy.sh" --documents 3 --tokens 500
	assert_success
	assert_line 'full cache: 100'
	assert_line '| snapkv | 100 | 100 |'
	assert_line --regexp '^\| recent \| (0|33) \| (0|33|67) \|$'
}

@test "accuracy.sh fails when a program of its pipelines fails" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	cp "$O"/kv-* "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/kv-score"
	O=$BATS_TEST_TMPDIR/bin run sh "$ROOT/examples/accuracy.sh" --documents 1 --tokens 200
	assert_failure
	refute_output --partial 'full cache'
}

@test "documents.py writes the same documents for the same seed, and the answer stands in each" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	for folder in a b; do
		"$PYTHON" "$DEMO/documents.py" --n 5 --tokens 300 --seed 9 --digits 0 --out $folder
	done
	diff -r a b
	for answer in a/*.answer; do
		text=${answer%.answer}.txt
		name=$(sed -n 's/^Question: what is the access code of \(.*\)?/\1/p' "$text")
		grep -q "The access code of $name is $(cat "$answer")\." "$text"
		[ "$(kv-tokenize -m "$DEMO" --count "$text")" -le 304 ]
	done
	run -2 "$PYTHON" "$DEMO/documents.py" --tokens 50 --needles 9 --out c
}

@test "the prompt of the quick start comes from documents.py" {
	"$PYTHON" "$DEMO/documents.py" --n 1 --tokens 1000 --seed 6 --out "$BATS_TEST_TMPDIR"
	cmp "$BATS_TEST_TMPDIR/0001.txt" "$ROOT/examples/prompts/harbour.txt"
	cmp "$BATS_TEST_TMPDIR/0001.answer" "$ROOT/examples/prompts/harbour.answer"
}

@test "bpe.py makes tokenizer.json, byte for byte" {
	"$PYTHON" "$DEMO/bpe.py" 1277 -o "$BATS_TEST_TMPDIR/tokenizer.json"
	cmp "$BATS_TEST_TMPDIR/tokenizer.json" "$DEMO/tokenizer.json"
}

@test "NumPy computes the logits in golden.json" {
	run "$PYTHON" "$DEMO/check_golden.py"
	assert_success
	[ "${#lines[@]}" -eq 3 ]
}

@test "the pipeline in README.md prints what stands there" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$ROOT/examples" examples
	sed -n '/^\$ M=/,/^```/ { /^```/d; p; }' "$ROOT/README.md" >block
	sed -n 's/^\$ //p' block >commands
	grep -v '^\$ ' block >shown
	[ "$(wc -l <commands)" -eq 5 ]
	bash commands >printed
	# kv-decode ends without a newline where it does not write to a terminal
	sed -i 's/^ L047rows/ L047\nrows/' printed
	diff shown printed
}

#!/usr/bin/env bats
# A text that is run, asked, forced and generated in parts is the text at once: words, characters of several tokens, stop texts

load helper

# sp: a tokenizer that puts a space before a text (Llama 2's kind); book and question are one text, cut where a line ends.
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	"$PYTHON" "$ROOT/tests/bin/mkmodel.py" sp --vocab 512 --tokenizer "$ROOT/tests/fixtures/tokenizers/llama2/tokenizer.json"
	printf 'The harbour is open.' >book
	printf '\non it? Yes, it is.' >question
	cat book question >whole
	kv-prefill -m sp -o book.kv book
	kv-prefill -m sp -o whole.kv whole
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# tail_ids: those that the whole text has behind the book
tail_ids() {
	kv-tokenize -m sp whole | tail -n +$(($(kv-tokenize -m sp --count book) + 1))
}

@test "what continues a snapshot has the ids of the whole text, in a file and in a pipe" {
	kv-prefill -m sp -r book.kv -o parts.kv question
	assert_equal "$(see parts.kv s.tokens)" "$(see whole.kv s.tokens)"
	kv-prefill -m sp -r - -o parts.kv question <book.kv
	assert_equal "$(see parts.kv s.tokens)" "$(see whole.kv s.tokens)"
	tail_ids | cmp - <(kv-tokenize -m sp --continue question)
	assert_equal "$(tail_ids | kv-tokenize -m sp -d --continue)" "$(cat question)"
}

@test "questions and forced texts continue a snapshot like any other text" {
	tail_ids >tail.ids
	"$PYTHON" -c 'import json, sys; print(json.dumps({"question": open("question").read()}))' >asked
	"$PYTHON" -c 'import json, sys; print(json.dumps({"question": "", "ids": [int(w) for w in open("tail.ids")]}))' >asked.ids
	cmp <(kv-decode -m sp -n 8 --questions asked book.kv) <(kv-decode -m sp -n 8 --questions asked.ids book.kv)
	cmp <(kv-decode -m sp --force question book.kv) <(kv-decode -m sp --ids --force tail.ids book.kv)
	cmp <(kv-decode -m sp --force question <book.kv) <(kv-decode -m sp --ids --force tail.ids <book.kv)
}

@test "what asks for a repetition continues a snapshot, too" {
	local text
	text=$(cat question; echo .)
	kv-observe -m sp --repeat-context --sink 0 --instruction "${text%.}" -o seen.kv book.kv
	assert_equal "$(see seen.kv 's.provenance[-1]["options"]["tokens"]')" \
	    "$(($(tail_ids | wc -l) + $(see book.kv 'len(s.tokens)')))"
}

@test "behind an added token a word begins anew, behind BOS alone a text does" {
	printf 'is open' >rest
	printf '1\n' | kv-prefill -m sp --ids -o bos.kv
	kv-prefill -m sp -r bos.kv -o parts.kv rest
	assert_equal "$(see parts.kv s.tokens)" "$(kv-tokenize -m sp rest | xargs)"
	printf 'It.</s>' | kv-prefill -m sp -o end.kv
	kv-prefill -m sp -r end.kv -o parts.kv rest
	assert_equal "$(see parts.kv s.tokens)" "$(printf 'It.</s>is open' | kv-tokenize -m sp | xargs)"
}

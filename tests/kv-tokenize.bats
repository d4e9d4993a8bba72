#!/usr/bin/env bats
# kv-tokenize: ids of the golden file, there and back, and what is refused

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

tokenize() {
	kv-tokenize -m "$DEMO" "$@"
}

@test "the ids are those of the golden file" {
	"$PYTHON" - "$DEMO/tok_golden.json" <<-'E'
		import json, subprocess, sys
		golden = json.load(open(sys.argv[1]))
		assert golden
		for i, case in enumerate(golden):
		    text, ids = case['text'], case['ids']
		    p = subprocess.run(['kv-tokenize', '-m', sys.argv[1].rsplit('/', 1)[0], '--no-template'],
		                       input=text.encode(), capture_output=True, check=True)
		    assert [int(w) for w in p.stdout.split()] == ids, (i, text)
	E
}

@test "ids are printed one a line, and --count prints how many" {
	printf 'The code is 7.' >t
	tokenize t >ids
	run ! grep -vqE '^[0-9]+$' ids
	assert_equal "$(tokenize --count t)" "$(wc -l <ids)"
	assert_equal "$(tokenize --count --decode ids)" "$(wc -l <ids)"
	tokenize <t | cmp - ids
	tokenize - <t | cmp - ids
}

@test "the count of an empty text is a number: 0 where no token is put before it" {
	: >empty
	for options in --no-template "--no-template --plain" --continue --decode; do
		# shellcheck disable=SC2086 # words
		run -0 --separate-stderr kv-tokenize -m "$DEMO" $options --count empty
		assert_equal "$output $stderr" "0 "
	done
	assert_equal "$(tokenize --count empty)" 1
	# the ids are refused as before: kv-prefill would have none to run
	run -3 --separate-stderr kv-tokenize -m "$DEMO" --no-template empty
	assert_equal "$output $stderr" " kv-tokenize: empty: there is no token"
}

@test "the template is put before the text unless --no-template" {
	printf 'word' >t
	tokenize t >with
	tokenize --no-template t >without
	assert_equal "$(tail -n +2 with)" "$(cat without)"
	assert_equal "$(wc -l <with)" "$(($(wc -l <without) + 1))"
}

@test "a text that begins with BOS gets a second one with a warning only, and none with --no-template" {
	printf '<|begin_of_text|>word' >t
	run -0 --separate-stderr tokenize t
	assert_equal "$stderr" 'kv-tokenize: t: it begins with <|begin_of_text|>, and the tokenizer puts another one before it (not with --no-template)'
	assert_equal "${lines[0]} ${lines[1]}" '1533 1533'
	for option in --no-template --plain; do
		run -0 --separate-stderr tokenize $option t
		assert_equal "$stderr" ''
	done
	run -0 --separate-stderr kv-prefill -m "$DEMO" -o t.kv t
	assert_regex "$stderr" '^kv-prefill: t: it begins with <|begin_of_text|>, '
	printf 'word<|begin_of_text|>' >t
	run -0 --separate-stderr tokenize t
	assert_equal "$stderr" ''
}

@test "text goes to ids and back, also when characters are cut into several tokens" {
	printf 'plain text,\n\n  spaces \t and tabs\r\n123456 Straße, 漢字, 🙂👩‍🚀 e\xcc\x81 end' >t
	tokenize --no-template t | tokenize -d | cmp - t
	: >empty
	tokenize --no-template empty | cmp - empty
	tokenize -d empty | cmp - empty
}

@test "--decode prints special tokens, --decode --plain leaves them out" {
	printf 'word' >t
	run -0 bash -c "kv-tokenize -m '$DEMO' t | kv-tokenize -m '$DEMO' -d"
	assert_output --regexp '^<.+>word$'
	run -0 bash -c "kv-tokenize -m '$DEMO' t | kv-tokenize -m '$DEMO' -d --plain"
	assert_output word
}

@test "special tokens in the text are recognised, with --plain they are spelled out" {
	printf 'word' | tokenize | tokenize -d >t
	assert_equal "$(tokenize --no-template --count t)" "$(printf word | tokenize --count)"
	[ "$(tokenize --no-template --plain --count t)" -gt "$(tokenize --no-template --count t)" ]
	tokenize --no-template --plain t | tokenize -d --plain | cmp - t
}

@test "a part of a character that ends the ids becomes U+FFFD" {
	printf '🙂' | tokenize --no-template | head -n 1 | tokenize -d >t
	assert_equal "$(cat t)" $'\ufffd'
}

@test "what is no id is refused with its line" {
	printf '1\n2\n\nx3\n' >ids
	run -3 --separate-stderr tokenize -d ids
	assert_regex "$stderr" '^kv-tokenize: ids: line 4: "x3" is not a token id'
	for wrong in 4294967296 99999999999999999999 -1 1.5 0x10 "$(tokenize --count /dev/null)9999999"; do
		echo $wrong >ids
		run -3 --separate-stderr tokenize -d ids
		assert_regex "$stderr" "line 1: \"$wrong\" is not a token id"
	done
}

@test "text that is not UTF-8 is refused with the byte" {
	printf 'abc\xff' >t
	run -3 --separate-stderr tokenize t
	assert_regex "$stderr" '^kv-tokenize: t: .*offset 3'
}

@test "a folder without a tokenizer is refused" {
	run -1 --separate-stderr kv-tokenize -m . /dev/null
	assert_regex "$stderr" 'tokenizer.json: .*No such file'
	mkdir m && echo '{' >m/tokenizer.json
	run -3 kv-tokenize -m m /dev/null
	run -2 kv-tokenize /dev/null
}

@test "a folder with another kind of tokenizer is told what makes tokenizer.json of it" {
	mkdir m && : >m/tokenizer.model
	run -5 --separate-stderr kv-tokenize -m m /dev/null
	assert_regex "$stderr" 'tokenizer.model is there, .*from_pretrained\("m"\).save_pretrained\("m"\)'
	mv m/tokenizer.model m/tiktoken.model
	run -5 --separate-stderr kv-tokenize -m m /dev/null
	assert_regex "$stderr" 'tiktoken.model is there, which is not read: with --ids programs take token ids'
}

@test "characters without a token are left out with a warning" {
	cp -r "$DEMO" m
	"$PYTHON" - m/tokenizer.json <<-'E'
		import json, sys
		doc = json.load(open(sys.argv[1]))
		model = doc['model']
		model['vocab'] = {k: v for k, v in model['vocab'].items() if 'q' not in k}
		model['merges'] = [m for m in model['merges'] if 'q' not in ''.join(m)]
		json.dump(doc, open(sys.argv[1], 'w'))
	E
	run -0 --separate-stderr kv-tokenize -m m --no-template - <<<'quick'
	assert_regex "$stderr" 'stdin: 1 characters have no token and are left out'
	assert_equal "$output" "$(kv-tokenize -m m --no-template - <<<'uick')"
	run -0 --separate-stderr kv-tokenize -q -m m - <<<'quick'
	assert_equal "$stderr" ""
}

@test "tokenizer_config.json says how added tokens are found, and adds some, as transformers has it" {
	mkdir m
	cp "$ROOT/tests/fixtures/tokenizers/smollm/tokenizer.json" m
	# the ids below are those of transformers 5.2.0, PreTrainedTokenizerFast
	cat >m/tokenizer_config.json <<-'E'
		{"add_bos_token": true, "add_eos_token": true, "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>",
		 "added_tokens_decoder": {
		  "657": {"content": "<|im_start|>", "lstrip": true, "normalized": false, "special": true},
		  "658": {"content": "<|im_end|>", "rstrip": true, "normalized": false, "special": false},
		  "659": {"content": "<new>", "rstrip": true, "normalized": false, "special": true},
		  "660": {"content": "word", "single_word": true}}}
	E
	ids() {
		printf %s "$1" | kv-tokenize -m m | tr '\n' ' '
	}
	assert_equal "$(ids 'a <|im_start|> b <|im_end|> c')" '64 657 379 220 658 66 '
	assert_equal "$(ids 'x<new>  y word wordy word')" '87 659 88 220 660 413 67 88 220 660 '
	assert_equal "$(ids '<|endoftext|> z')" '656 220 89 '
	assert_equal "$(ids 'a <|im_end|>  <|im_start|>')" '64 220 658 657 '
	sed -i 's/"659"/"657x"/' m/tokenizer_config.json
	run -3 kv-tokenize -m m /dev/null
	assert_output --partial 'tokenizer_config.json: added_tokens_decoder: "657x" is not an id'
	echo '{' >m/tokenizer_config.json
	run -3 kv-tokenize -m m /dev/null
	assert_output --partial 'm/tokenizer_config.json: line 2'
}

@test "another model than byte pair encoding is refused by its name, whatever else it has" {
	mkdir m
	echo '{"version": "1.0", "normalizer": {"type": "Precompiled"}, "model": {"type": "Unigram"}}' >m/tokenizer.json
	run -5 kv-tokenize -m m /dev/null
	assert_output --partial 'model.type is Unigram, only BPE is supported'
}

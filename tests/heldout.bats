#!/usr/bin/env bats
# bats file_tags=nosan
# train/heldout.py: documents that methods are judged on

load helper

HELDOUT=$ROOT/train/heldout.py

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf 'begin\n{}\nend\n' >template
	for i in $(seq 60); do
		printf 'Paragraph %d speaks of copies, and of nothing\nelse that anybody would ask for.\n\n' "$i"
	done >text
}

# heldout FOLDER OPTION ...: for the demo model, from the file text
heldout() {
	run -0 "$PYTHON" "$HELDOUT" -m "$DEMO" --template template --texts text -o "$@"
}

@test "the same seed gives the same documents, another seed others, and more documents begin with the same ones" {
	heldout a -n 14 --tokens 300
	heldout b -n 14 --tokens 300
	diff -r a b
	heldout other -n 14 --tokens 300 --seed 2
	run ! cmp a/0001-needle.txt other/0001-needle.txt
	heldout fewer -n 8 --tokens 300
	for file in fewer/*.txt fewer/*.answer; do
		cmp "$file" "a/$(basename "$file")"
	done
}

@test "a document has the template around it, its length is about what was asked for, and the manifest says what it is" {
	local name kind lead depth tokens source seed place
	heldout a -n 14 --tokens 400
	assert_equal "$(head -n 1 a/manifest.tsv)" "$(printf 'name\tkind\tlead\tdepth\ttokens\tsource\tseed')"
	assert_equal "$(sed 1d a/manifest.tsv | cut -f 1)" "$(basename -a -s .txt a/*.txt)"
	while IFS=$'\t' read -r name kind lead depth tokens source seed; do
		assert_equal "$name" "${name%%-*}-$kind"
		assert_equal "$source $seed" 'text 1'
		assert_equal "$(kv-tokenize -m "$DEMO" --count "a/$name.txt")" "$tokens"
		[ "$tokens" -ge 340 ] && [ "$tokens" -le 460 ] || fail "$name has $tokens tokens"
		assert_equal "$(head -n 1 "a/$name.txt")" begin
		if [ "$lead" = 0 ]; then
			assert_equal "$(tail -n 1 "a/$name.txt")" end
		else
			assert_equal "$(grep -c . <(sed '1,/^end$/d' "a/$name.txt"; echo))" "$([ "$kind" = directory ] && echo 2 || echo 1)"
		fi
		# every line of the answer stands in the text, at about the depth; what is asked for, not behind the question
		while read -r line; do
			grep -q "$line" <(sed '/^end$/,$d' "a/$name.txt")
			run ! grep "$line" <(sed '1,/^end$/d' "a/$name.txt")
		done <"a/$name.answer"
		place=$(awk -v answer="$(head -n 1 "a/$name.answer")" 'index($0, answer) { at = NR } END { print at / NR }' "a/$name.txt")
		awk -v place="$place" -v depth="$depth" 'BEGIN { exit !(place - depth < 0.2 && depth - place < 0.2) }' || fail "$name: $place, $depth"
	done < <(sed 1d a/manifest.tsv)
}

@test "the kinds take turns, and --kinds and --lead choose" {
	heldout a -n 9 --tokens 200
	assert_equal "$(sed 1d a/manifest.tsv | cut -f 2,3 | tr '\t\n' '= ')" \
	    'needle=0 multikey=1 multivalue=0 passkey=0 table=1 directory=1 clause=1 needle=1 multikey=1 '
	assert_equal "$(wc -l <a/0003-multivalue.answer)" 2
	# the needle that is asked for stands behind the other one
	for file in a/*-multikey.txt; do
		assert_equal "$(grep -c 'One of the special magic numbers for .* is: ' "$file")" 2
		grep 'One of the special magic numbers' "$file" | sed -n 2p | grep -q "$(cat "${file%.txt}.answer")"
	done
	heldout b -n 4 --tokens 200 --kinds clause passkey --lead none
	assert_equal "$(sed 1d b/manifest.tsv | cut -f 2,3 | tr '\t\n' '= ')" 'clause=0 passkey=0 clause=0 passkey=0 '
	heldout c -n 3 --tokens 200 --kinds needle --lead all
	assert_equal "$(sed 1d c/manifest.tsv | cut -f 3 | tr '\n' ' ')" '1 1 1 '
}

@test "the documents run in compare.sh, by kind" {
	heldout a -n 2 --tokens 200 --kinds needle clause
	run -0 sh "$ROOT/examples/compare.sh" -k -d a -M full
	assert_line '| method | rate | needle | clause |'
}

@test "a model without the template of SmolLM2, a template without a place, no texts and a folder that is in use are refused" {
	run -2 "$PYTHON" "$HELDOUT" -m "$DEMO" -o a
	assert_output --partial 'has not the chat template of SmolLM2: name one with --template'
	echo none >none
	run -2 "$PYTHON" "$HELDOUT" -m "$DEMO" -o a --template none
	assert_output --partial 'there must be one {}'
	mkdir empty
	run -2 "$PYTHON" "$HELDOUT" -m "$DEMO" -o a --template template --texts empty
	assert_output --partial 'there is no text in empty'
	heldout a -n 1 --tokens 200
	run -2 "$PYTHON" "$HELDOUT" -m "$DEMO" -o a --template template --texts text
	assert_output --partial 'a is not empty'
	run -2 "$PYTHON" "$HELDOUT" -m "$DEMO" -o b --template template --texts text --kinds nothing
}

@test "the template of SmolLM2 is used for a model that has it" {
	cp -r "$DEMO" model
	echo '{ "chat_template": "... You are a helpful AI assistant named SmolLM, ..." }' >model/tokenizer_config.json
	run -0 "$PYTHON" "$HELDOUT" -m model --texts text -n 1 --tokens 200 -o a
	assert_equal "$(head -n 1 a/0001-needle.txt)" '<|im_start|>system'
	assert_equal "$(tail -n 1 a/0001-needle.txt)" '<|im_start|>assistant'
}

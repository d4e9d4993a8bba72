#!/usr/bin/env bats
# kv-decode --questions: many questions behind one snapshot that is loaded once, beside a program for each of them

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	small_talk 25 | head -n -2 >doc.txt
	kv-prefill -m "$DEMO" --observe 16 -o doc.kv doc.txt
	kv-score --method snapkv doc.kv | kv-evict --rate 0.4 --policy ada -o ragged.kv
	cat >asked <<-'END'
		{"question": "Question: what is the access code of Marlow?\nAnswer:", "id": 7}
		Who came by the harbour in the evening?
		{"question": "Question: what is the secret word of Calton?\nAnswer:"}
		{"question": "Nobody waited. <|pad|> Yes.", "more": {"x": [1, null]}}
		Who came by the harbour in the evening?
	END
	"$PYTHON" -c 'import json
for i, line in enumerate(open("asked")):
    line = line.rstrip("\n")
    open(f"q.{i}", "w").write(json.loads(line)["question"] if line.startswith("{") else line)'
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# one_by_one SNAPSHOT OPTION ...: each question by programs of its own, its answer in a line
one_by_one() {
	local i
	for i in 0 1 2 3 4; do
		kv-prefill -m "$DEMO" -r "$1" q.$i | kv-decode -m "$DEMO" -n 12 "${@:2}" | as_line "${@:2}" || return
	done
}

@test "each answer is that of a program of its own, to the byte, whatever the options of sampling and the rows of the snapshot" {
	local snapshot options
	for snapshot in doc.kv ragged.kv; do
		while read -r options; do
			# shellcheck disable=SC2086 # words
			one_by_one $snapshot $options >want
			# shellcheck disable=SC2086
			kv-decode -m "$DEMO" -n 12 --questions asked $options $snapshot >got
			cmp want got
		done <<-'END'
			--stop .
			--ids --ignore-eos
			--temperature 1.5 --seed 5 --top-p 0.9
		END
	done
	grep -q K742 <(kv-decode -m "$DEMO" -n 12 --stop . --questions asked doc.kv)
}

@test "questions come from a pipe, or the snapshot does; a snapshot without logits will do, and a question may be long" {
	kv-decode -m "$DEMO" -n 12 --questions asked doc.kv >want
	kv-decode -m "$DEMO" -n 12 --questions - doc.kv <asked | cmp want -
	kv-decode -m "$DEMO" -n 12 --questions asked <doc.kv | cmp want -
	strip LGTS doc.kv silent.kv
	kv-decode -m "$DEMO" -n 12 --questions asked silent.kv | cmp want -
	kv-decode -m "$DEMO" -n 12 -j 1 --questions asked doc.kv | cmp want -
	{ tr '\n' ' ' <doc.txt; tr '\n' ' ' <doc.txt; } >long
	[ "$(kv-tokenize -m "$DEMO" --count long)" -gt 600 ]
	{ cat q.1; echo; cat long; echo; cat q.1; } >asked.long
	kv-decode -m "$DEMO" -n 5 --ids --questions asked.long doc.kv >got
	for q in q.1 long q.1; do
		kv-prefill -m "$DEMO" -r doc.kv $q | kv-decode -m "$DEMO" -n 5 --ids | as_line --ids
	done | cmp got -
}

@test "a question that comes as ids is asked with them, and ids that are none are refused with line and element" {
	kv-decode -m "$DEMO" -n 6 --questions asked doc.kv >want
	for i in 0 1 2 3 4; do
		printf '{"question": "not asked", "ids": [%s]}\n' "$(kv-tokenize -m "$DEMO" --no-template q.$i | paste -sd ,)"
	done >as.ids
	kv-decode -m "$DEMO" -n 6 --questions as.ids doc.kv | cmp want -
	for wrong in '"x"' -1 1536 1.5 null; do
		printf 'fine\n{"question": "q", "ids": [1, %s]}\n' "$wrong" >wrong
		run -3 kv-decode -m "$DEMO" --questions wrong doc.kv
		assert_output 'kv-decode: wrong: line 2: "ids": element 2 is not a token id below 1536'
	done
	echo '{"question": "q", "ids": 7}' >wrong
	run -3 kv-decode -m "$DEMO" --questions wrong doc.kv
	assert_output 'kv-decode: wrong: line 1: "ids" is not a list'
	echo '{"question": "q", "ids": []}' >wrong
	run -3 kv-decode -m "$DEMO" --questions wrong doc.kv
	assert_output 'kv-decode: wrong: line 1: the question is empty'
}

@test "--json has a line for each question, with what was asked" {
	kv-decode -m "$DEMO" -n 12 --json --questions asked doc.kv >answers
	assert_equal "$(wc -l <answers)" "5"
	for i in 0 1 2 3 4; do
		sed -n "$((i + 1))p" answers >line
		kv-prefill -m "$DEMO" -r doc.kv q.$i | kv-decode -m "$DEMO" -n 12 --json >alone
		for key in text ids tokens stop; do
			assert_equal "$(json line "o['$key']")" "$(json alone "o['$key']")"
		done
		assert_equal "$(json line "o['asked']['question']")" "$(cat q.$i)"
	done
	assert_equal "$(sed -n 1p answers | json - 'o["asked"]["id"], o["snapshot"]')" "(7, 'doc.kv')"
	assert_equal "$(sed -n 4p answers | json - 'o["asked"]["more"]')" "{'x': [1, None]}"
}

@test "ten answers are ten lines, and printf %b gives back newlines and backslashes, of several snapshots, too" {
	local answer
	for i in 0 1 2 3 4 5 6 7 8 9; do echo "{\"question\": \"Question: what is $i?\\nAnswer:\"}"; done >ten
	kv-decode -m "$DEMO" -n 40 --ignore-eos --questions ten doc.kv >answers
	assert_equal "$(wc -l <answers)" 10
	kv-decode -m "$DEMO" -n 40 --ignore-eos --json --questions ten doc.kv >objects
	while IFS= read -r answer; do
		printf '%b' "$answer"
	done <answers >got
	"$PYTHON" -c 'import json
for line in open("objects"): print(json.loads(line)["text"], end="")' >want
	grep -q . want
	[ "$(wc -l <want)" -gt 0 ]
	cmp want got
	kv-decode -m "$DEMO" -n 40 --ignore-eos doc.kv | as_line >one
	kv-decode -m "$DEMO" -n 40 --ignore-eos doc.kv doc.kv | cmp - <(cat one one)
	grep -q '\\n' one
}

@test "a file of another editor is the same questions: with a mark, CR LF, blanks in front, joined, or a list of JSON" {
	printf '%s\n' '{"question": "Who came?\nAnswer:", "id": 1}' 'And then?' >lines
	kv-decode -m "$DEMO" -n 6 --json --questions lines doc.kv | sed 's/"seconds".*"asked"/"asked"/' >want
	grep -q '"id": 1' want
	asks() { # FILE
		kv-decode -m "$DEMO" -n 6 --json --questions "$1" doc.kv | sed 's/"seconds".*"asked"/"asked"/' | cmp want -
	}
	{ printf '\xef\xbb\xbf'; cat lines; } >other
	asks other
	sed 's/$/\r/' lines >other
	asks other
	{ printf ' \t'; sed -n 1p lines; printf '\xef\xbb\xbf'; sed -n 2p lines; } >other
	asks other
	printf '[%s,\n"And then?"]' "$(sed -n 1p lines)" >other
	asks other
	"$PYTHON" -c 'import json, sys
print("\ufeff" + json.dumps([json.loads(open("lines").readline()), "And then?"], indent=2).replace("\n", "\r\n"))' >other
	asks other
	printf '[INST] Who? [/INST]\n' >other
	kv-decode -m "$DEMO" -n 1 --json --questions other doc.kv | json - 'o["asked"]["question"]' | grep -Fx '[INST] Who? [/INST]'
}

@test "a file that is no text, and a list that is damaged, are refused with the place" {
	local text want
	while IFS=/ read -r text want; do
		printf '%b' "$text" >bad
		run -3 --separate-stderr kv-decode -m "$DEMO" --questions bad doc.kv
		[[ "$stderr" == "kv-decode: bad: $want"* ]] || { echo "$stderr"; return 1; }
		assert_equal "$output" ""
	done <<-'END'
		\xff\xfeW\0h\0o\0?\0/UTF-16 or UTF-32, want UTF-8
		\xfe\xff\0W\0h\0o/UTF-16 or UTF-32, want UTF-8
		W\0h\0o\0?\0/UTF-16 or UTF-32, want UTF-8
		\0W\0h\0o/UTF-16 or UTF-32, want UTF-8
		Who?\nWh\0/line 2: a NUL byte
		Who?\rAnd then?\r/line 1: a CR within the line
		["Who?", {"question": "x"/line 1, column
		[{"question": "x"},\n {"ask": "x"}]/element 2: want a text "question"
		["Who?", 3]/element 2: want a text "question"
		["Who?", {"question": "x", "ids": [1, "y"]}]/element 2: "ids": element 2 is not a token id
		["Who?", ""]/element 2: the question is empty
		[]/there is no question
		{\n"question": "x"\n}/line 1: byte
	END
}

@test "--plain takes the text of special tokens in questions and in a given text literally" {
	printf 'Yes. <|pad|> No.' >text
	ids() { kv-tokenize -m "$DEMO" --no-template "$@" text; }
	[ "$(ids --count)" -lt "$(ids --count --plain)" ]
	ids | paste -sd , >special
	ids --plain | paste -sd , >plain
	for how in special plain; do
		printf '{"question": "x", "ids": [%s]}' "$(cat $how)" >as.ids
		kv-decode -m "$DEMO" -n 5 --ids --ignore-eos --questions as.ids doc.kv >want.$how
	done
	kv-decode -m "$DEMO" -n 5 --ids --ignore-eos --questions text doc.kv | cmp - want.special
	kv-decode -m "$DEMO" -n 5 --ids --ignore-eos --plain --questions text doc.kv | cmp - want.plain
	ids --plain | kv-decode -m "$DEMO" --ids --json --force - doc.kv >want
	kv-decode -m "$DEMO" --plain --json --force text doc.kv | cmp - want
	run ! cmp want <(kv-decode -m "$DEMO" --json --force text doc.kv)
	run -0 kv-decode -v -m "$DEMO" -n 1 --questions text --plain doc.kv
	assert_line --partial "question 1: $(ids --count --plain) tokens"
	for options in "" "--ids --force text"; do
		# shellcheck disable=SC2086 # words
		run -2 kv-decode -m "$DEMO" --plain $options doc.kv
		assert_line --partial '--plain: which text? Give --questions, or --force without --ids'
	done
}

@test "what would stay behind from one question to the next is refused, and so is a file that asks nothing" {
	local options text
	while IFS=/ read -r options text; do
		# shellcheck disable=SC2086 # words
		run -2 --separate-stderr kv-decode -m "$DEMO" --questions asked $options doc.kv
		[[ "$stderr" == *"$text"* ]] || { echo "$stderr"; return 1; }
	done <<-'END'
		--score knorm --evict budget=50/--evict does not go with --questions
		-o x.kv/--output does not go with --questions
		-o x.kv --mass/--output does not go with --questions
		-o x.kv --observe 3/--output does not go with --questions
		--mass/--mass: no snapshot is kept
	END
	run -2 --separate-stderr kv-decode -m "$DEMO" --questions asked --retrieve 'fier budget=9' doc.kv
	assert_regex "$stderr" '--retrieve does not go with --questions'
	run -2 --separate-stderr kv-decode -m "$DEMO" --questions - - <doc.kv
	assert_regex "$stderr" "cannot both come from standard input"
	while IFS=/ read -r line text; do
		{ echo "Who?"; printf '%b\n' "$line"; } >bad
		run -3 --separate-stderr kv-decode -m "$DEMO" --questions bad doc.kv
		[[ "$stderr" == "kv-decode: bad: line 2: $text"* ]] || { echo "$stderr"; return 1; }
		assert_equal "$output" ""
	done <<-'END'
		/the question is empty
		{"question": 5}/want a text "question"
		{"ask": "x"}/want a text "question"
		{"question": "x"/byte
		{"question": "x", "question": "y"}/byte
		\xff no/it is not UTF-8
	END
	: >bad
	run -3 --separate-stderr kv-decode -m "$DEMO" --questions bad doc.kv
	assert_equal "$stderr" "kv-decode: bad: there is no question"
	run -1 --separate-stderr kv-decode -m "$DEMO" --questions nowhere doc.kv
	run -1 --separate-stderr bash -c 'kv-decode -m "$0" -n 3 --questions asked doc.kv >/dev/full' "$DEMO"
	assert_regex "$stderr" "stdout: No space left on device"
}

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

# one_by_one SNAPSHOT OPTION ...: each question by programs of its own, an empty byte behind each
one_by_one() {
	local i
	for i in 0 1 2 3 4; do
		kv-prefill -m "$DEMO" -r "$1" q.$i | kv-decode -m "$DEMO" -n 12 "${@:2}" || return
		echo
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
		kv-prefill -m "$DEMO" -r doc.kv $q | kv-decode -m "$DEMO" -n 5 --ids
		echo
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

@test "what would stay behind from one question to the next is refused, and so is a file that asks nothing" {
	local options text
	while IFS=/ read -r options text; do
		# shellcheck disable=SC2086 # words
		run -2 --separate-stderr kv-decode -m "$DEMO" --questions asked $options doc.kv
		[[ "$stderr" == *"$text"* ]] || { echo "$stderr"; return 1; }
	done <<-'END'
		--score knorm --evict budget=50/--evict does not go with it
		--retrieve fier --budget 9/--retrieve does not go with it
		-o x.kv/--output does not go with it
		-o x.kv --mass/--output does not go with it
		-o x.kv --observe 3/--output does not go with it
		--mass/--mass: no snapshot is kept
	END
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

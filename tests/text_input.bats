#!/usr/bin/env bats
# Files of text, whoever has written them: byte order marks, CR LF, UTF-16, NUL bytes, in all inputs that are text

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	small_talk 3 >text
	ln -s "$DEMO" demo
	kv-prefill -m "$DEMO" -w 8 -o full.kv text
	kv-score --method snapkv -o scored.kv full.kv
	kv-tokenize -m "$DEMO" text >ids
	kv-evict --rate 0.3 scored.kv | kv-info --positions >rows
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
for l, layer in enumerate(kvread.read(open("scored.kv", "rb")).layers):
    for g, head in enumerate(layer.positions):
        for p, v in zip(head, layer.scores.values[g]): print(l, g, p, repr(float(v)))' "$FORMAT" >scores
	"$PYTHON" -c 'import sys
for l in range(int(sys.argv[1])): print(" ".join(str((l + g) % 2) for g in range(int(sys.argv[2]))))' \
	    "$(kv-info --json full.kv | json - 'o["model"]["layers"]')" "$(kv-info --json full.kv | json - 'o["model"]["kv_heads"]')" >mask
	printf 'full 1 10\nsnapkv 0.5 9.5\nsnapkv 0.2 7\n' >table
	printf '[{"role": "user",\n"content": "Who?"}]\n' >messages
	printf '{"role": "user", "content": "Who?"}\n{"role": "assistant", "content": "He."}\n' >lines
	echo '{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}' >bare.jinja
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# Each input that is a list, a table or JSON: its file and what reads it, with FILE where it stands
readers() {
	cat <<-'END'
		ids/kv-prefill -m demo --ids FILE
		ids/kv-tokenize -m demo -d FILE
		ids/kv-observe -m demo --ids-from FILE full.kv
		ids/kv-decode -m demo --ids --force FILE full.kv
		rows/kv-evict --rows FILE full.kv
		mask/kv-evict --head-mask FILE --sink 2 --recent 3 scored.kv
		scores/kv-score --from FILE full.kv
		table/kv-critical FILE
		messages/kv-chat -m demo --template ./bare.jinja FILE
		lines/kv-chat -m demo --template ./bare.jinja FILE
		lines/kv-chat -m demo --template ./bare.jinja --text FILE
	END
}

# run_reader COMMAND FILE
run_reader() {
	# shellcheck disable=SC2086 # words
	${1//FILE/$2} >out
}

# said FILE: what is in the output, without the names and hashes of lists
said() {
	if head -c 8 out | grep -aq KVS; then
		logical out
	else
		sed "s/same/$1/" out
	fi
}

@test "a list with a byte order mark, and with lines that end in CR LF, is the same list, from a pipe, too" {
	local file command
	while IFS=/ read -r file command; do
		run_reader "$command" $file
		said $file >want
		[ -s want ]
		{ printf '\xef\xbb\xbf'; sed 's/$/\r/' $file; } >same
		run_reader "$command" same || { echo "$command"; return 1; }
		said $file | cmp - want || { echo "$command"; return 1; }
		[ $file != rows ] || continue
		run_reader "$command" - <same || { echo "$command"; return 1; }
		said $file | sed "s/stdin/$file/" | cmp - want || { echo "$command"; return 1; }
	done < <(readers)
}

@test "a NUL byte in a list, and a list in UTF-16, are refused with the file and the line" {
	local file command
	while IFS=/ read -r file command; do
		{ head -c -1 $file; printf '\0'; } >bad
		run -3 --separate-stderr run_reader "$command" bad
		assert_regex "$stderr" ": bad: line $(wc -l <$file): a NUL byte"
		iconv -f UTF-8 -t UTF-16 $file >bad
		run -3 --separate-stderr run_reader "$command" bad
		[ $file = scores ] || assert_regex "$stderr" ": bad: UTF-16 or UTF-32, want UTF-8: iconv"
		iconv -f UTF-8 -t UTF-16LE $file >bad
		run -3 run_reader "$command" bad
	done < <(readers)
	# a comment that a NUL cuts short hides no line
	{ printf '# a\0b\n'; cat scores; } >bad
	run -3 --separate-stderr kv-score --from bad -o none.kv full.kv
	assert_equal "$stderr" "kv-score: bad: line 1: a NUL byte, which no text has"
}

@test "a text with a byte order mark is the text, and a warning says so; CR and NUL are read and warned of" {
	local program
	{ printf '\xef\xbb\xbf'; cat text; } >marked
	sed 's/$/\r/' text >windows
	{ cat text; printf '\0'; } >binary
	iconv -f UTF-8 -t UTF-16 text >wide
	reads() { # FILE
		case $program in
		kv-tokenize) kv-tokenize -m "$DEMO" "$1" ;;
		kv-prefill) kv-prefill -m "$DEMO" "$1" | see - 's.tokens' ;;
		kv-decode) kv-decode -m "$DEMO" --json --force "$1" full.kv ;;
		kv-chat) kv-chat -m "$DEMO" --template ./bare.jinja --user-file "$1" ;;
		esac
	}
	see() { "$PYTHON" -c 'import sys
sys.path.insert(0, sys.argv[1])
import kvread
print(kvread.read(sys.stdin.buffer).tokens)' "$FORMAT"; }
	for program in kv-tokenize kv-prefill kv-decode kv-chat; do
		reads text >want 2>said
		assert_equal "$(cat said)" ""
		reads marked >got 2>said
		cmp want got
		assert_equal "$(cat said)" "$program: marked: ignored the byte order mark at its beginning"
		reads windows >got 2>said
		run ! cmp want got
		assert_equal "$(cat said)" "$program: windows: line 1 ends in CR LF: the model reads the CR, too; tr -d '\r' removes it"
		reads binary >got 2>said
		run ! cmp want got
		assert_equal "$(cat said)" "$program: binary: line 6: a NUL byte: is it a text? The model reads it, too"
		reads wide >got 2>said || true
		assert_regex "$(cat said)" "$program: wide: UTF-16 or UTF-32, want UTF-8: iconv"
	done
}

@test "a text where the name of a file is wanted: the message says where texts come from" {
	for command in 'kv-prefill -m demo' 'kv-tokenize -m demo' 'kv-chat -m demo --template ./bare.jinja' 'kv-decode -m demo full.kv --force' \
	    'kv-decode -m demo full.kv --questions'; do
		# shellcheck disable=SC2086 # words
		run -1 --separate-stderr $command "Hello, who came?"
		assert_equal "$stderr" "${command%% *}: Hello, who came?: No such file or directory: want the name of a file, or - for standard input"
		# shellcheck disable=SC2086
		run -1 --separate-stderr $command "$(printf '%0300d' 0)"
		assert_regex "$stderr" "File name too long: want the name of a file, or - for standard input"
	done
}

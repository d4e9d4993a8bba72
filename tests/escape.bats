#!/usr/bin/env bats
# Control characters: texts of a snapshot, names of files and of methods reach no terminal as they are

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mksnapshot -L 2 -H 4 -G 2 -E 8 -N 60 -w 3 --paid --scores random -o plain.kv
	TEXTS=($'\e[31m' $'\xc2\x9b31m' $'a\nb' $'\x7f' $'\ra\b\tc')
}

# quiet COMMAND ...: neither of its outputs has a control character, but for newlines
quiet() {
	"$@" >out 2>err || fail "$* ended with $?"
	[ -s out ] || [ -s err ] || fail "$* says nothing"
	"$PYTHON" -c '
import re, sys
for name in "out", "err":
    bad = re.search("[\0-\x09\x0b-\x1f\x7f-\x9f]", open(name, encoding="utf-8", newline="").read())
    assert bad is None, (sys.argv[1:], name, bad)' "$@"
}

# as_many_lines A B: a newline in a text begins no line
as_many_lines() {
	assert_equal "$("${@:3}" "$1" | wc -l)" "$("${@:3}" "$2" | wc -l)"
}

@test "control characters of a snapshot's texts and name reach no listing" {
	"$PYTHON" "$ROOT/tests/bin/relabel.py" text plain.kv text.kv
	for text in "${TEXTS[@]}"; do
		name="a$text.kv"
		"$PYTHON" "$ROOT/tests/bin/relabel.py" "$text" plain.kv "$name"
		kv-quantize1b -o "bits$text" "$name"
		"$PYTHON" "$ORACLE/footprint.py" write "log$text" '[[[0,1,2]],[[0,1,2]]]' 3 '[[1,3,3,0,2]]'
		printf 'm%s 10 1\n' "${text//$'\n'/}" >table
		for json in '' --json; do
			quiet kv-info $json "$name"
			quiet kv-info $json --all "$name"
			quiet kv-diff $json "$name" "bits$text"
			quiet kv-diff $json --retrieve 'fier budget=5 dense=1' "bits$text"
			quiet kv-footprint $json --by head "log$text"
			quiet kv-critical $json --full 2 table
		done
		quiet kv-check -v "$name"
		quiet kv-check --progress always "$name"
		as_many_lines text.kv "$name" kv-info
		as_many_lines text.kv "$name" kv-diff plain.kv
		as_many_lines text.kv "$name" kv-check -v
	done
}

@test "they are shown by their numbers, and what is no control character as it is" {
	"$PYTHON" "$ROOT/tests/bin/relabel.py" $'\e[31m' plain.kv $'a\e[31m.kv'
	run -0 kv-info $'a\e[31m.kv'
	assert_line 'snapshot       a\x1b[31m.kv'
	assert_line --partial 'model          \x1b[31m, 2 layers'
	assert_line 'scores         \x1b[31m'
	assert_line 'probe mass     \x1b[31m'
	assert_line --partial 'made by        \x1b[31m \x1b[31m {'
	"$PYTHON" "$ROOT/tests/bin/relabel.py" 'schön 日本' plain.kv 日本.kv
	run -0 kv-info 日本.kv
	assert_line 'snapshot       日本.kv'
	assert_line 'scores         schön 日本'
	assert_line 'made by        schön 日本 schön 日本 {"schön 日本":"schön 日本"}'
}

@test "JSON is valid with them, and keeps them" {
	for text in "${TEXTS[@]}"; do
		"$PYTHON" "$ROOT/tests/bin/relabel.py" "$text" plain.kv "a$text.kv"
		kv-info --json "a$text.kv" >got.json
		TEXT=$text "$PYTHON" -c '
import json, os
o, text = json.load(open("got.json")), os.environ["TEXT"]
p = o["provenance"][0]
assert [o["model"]["architecture"], o["scores"], p["tool"], p["version"], p["options"]] == [text, text, text, text, {text: text}]
assert o["snapshot"] == "a" + text + ".kv"'
	done
}

@test "a byte that an 8-bit terminal takes as CSI is shown as hex, letters in UTF-8 as they are" {
	run -1 --separate-stderr kv-info $'no\x9b31m\xc3\x9bM\xe2\x82\xac.kv'
	assert_equal "$stderr" $'kv-info: no\\x9b31m\xc3\x9bM\xe2\x82\xac.kv: open: No such file or directory'
}

# on_terminal COMMAND ...: its standard output as a terminal gets it, without the carriage returns that this puts before newlines
on_terminal() {
	"$PYTHON" -c '
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
out = b""
while True:
    try:
        part = os.read(fd, 4096)
    except OSError:
        break
    if not part:
        break
    out += part
os.waitpid(pid, 0)
sys.stdout.buffer.write(out.replace(b"\r\n", b"\n"))' "$@"
}

@test "generated text, decoded ids and conversations are escaped on a terminal, and are as they are in a pipe" {
	local said=$'A\e[31m\x07\tB\n\x7f\xc2\x9b7日\rC' shown=$'A\\x1b[31m\\x07\tB\n\\x7f\\xc2\\x9b7日\\x0dC'
	printf %s "$said" >said
	kv-tokenize -m "$DEMO" --no-template said >ids
	# shellcheck disable=SC2046 # ids
	"$PYTHON" "$ROOT/tests/bin/mkchain.py" c "$DEMO/tokenizer.json" $(cat ids)
	head -n 1 ids | kv-prefill -q -m c --ids -o a.kv
	n=$(($(wc -l <ids) - 1))
	[ "$(kv-decode -q -m c -n "$n" a.kv)" == "${said#A}" ]
	[ "$(on_terminal kv-decode -q -m c -n "$n" a.kv)" == "${shown#A}" ]
	[ "$(kv-tokenize -m "$DEMO" -d ids)" == "$said" ]
	[ "$(on_terminal kv-tokenize -m "$DEMO" -d ids)" == "$shown" ]
	mkdir m
	cp "$DEMO/tokenizer.json" m
	echo '{{ messages[0].content }}' >m/chat_template.jinja
	[ "$(kv-chat -q -m m --text --user-file said)" == "$said" ]
	[ "$(on_terminal kv-chat -q -m m --text --user-file said)" == "$shown" ]
	cp a.kv b.kv
	[ "$(kv-decode -q -m c -n 2 a.kv b.kv | head -n 1)" == $'\e[' ]
	[ "$(on_terminal kv-decode -q -m c -n 2 a.kv b.kv | head -n 1)" == '\x1b[' ]
}

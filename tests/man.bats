#!/usr/bin/env bats
# The man pages against the programs: examples are run, usage and methods are compared

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$DEMO" demo-model
	"$PYTHON" "$ROOT/tests/bin/mkchat.py" chat-model
	cp "$ROOT/examples/prompts/harbour.txt" prompt.txt
	cp "$ROOT/examples/python/value_aware.py" .
	export PYTHONPATH=$ROOT/python
	python_beside
	# a document, and the question that continues it
	head -n 1 prompt.txt >book.txt
	tail -n 2 prompt.txt >question.txt
}

# examples PAGE: the displays that begin with a command, as a reader of the rendered page would copy them
examples() {
	groff -mdoc -Tascii -P-cbou -rLL=200n "$ROOT/man/$1" | awk '
		!inside && match($0, /^ +\$ /) { inside = RLENGTH - 2 }
		inside && substr($0, 1, inside) !~ /^ +$/ { inside = 0 }
		inside { print substr($0, inside + 1) }'
}

# alike A B: the same words; numbers with a point may differ by a tenth. What is measured on a model's keys is not the same to
# the last digit with every instruction set.
alike() {
	[ "$1" = "$2" ] || awk -v a="$1" -v b="$2" 'BEGIN {
		n = split(a, x)
		if (split(b, y) != n)
			exit 1
		for (i = 1; i <= n; i++)
			if (x[i] != y[i] && (x[i] y[i] !~ /^[0-9]+\.[0-9]+%?[0-9]+\.[0-9]+%?$/ ||
			    x[i] - y[i] > x[i] / 10 || y[i] - x[i] > x[i] / 10))
				exit 1
	}'
}

# Runs one command, and compares what it prints with what the page shows, if it shows something.
try_example() {
	local command=$1 shown=$2
	run bash -c "$command"
	if [ "$status" -ne 0 ] || { [ -n "$shown" ] && ! alike "$output" "$shown"; }; then
		printf '%s\n' "command: $command" "status: $status" "printed: $output" "shown: $shown"
		return 1
	fi
}

# A command begins with "$ " and goes on while lines end in a backslash; then comes its output.
run_examples() {
	local line command='' shown='' count=0
	while IFS= read -r line; do
		if [[ $command == *\\ ]]; then
			command=${command%\\}$line
		elif [[ $line == '$ '* ]]; then
			[ -z "$command" ] || try_example "$command" "$shown"
			command=${line#'$ '} shown='' count=$((count + 1))
		else
			shown+=${shown:+$'\n'}$line
		fi
	done < <(examples "$1")
	[ -z "$command" ] || try_example "$command" "$shown"
	[ "$count" -gt 0 ]
}

@test "the examples of kvpipe(1) do what it says" { run_examples kvpipe.1; }
@test "the examples of kv-tokenize(1) do what it says" { run_examples kv-tokenize.1; }
@test "the examples of kv-chat(1) do what it says" { run_examples kv-chat.1; }
@test "the examples of kv-prefill(1) do what it says" { run_examples kv-prefill.1; }
@test "the examples of kv-observe(1) do what it says" { run_examples kv-observe.1; }
@test "the examples of kv-score(1) do what it says" { run_examples kv-score.1; }
@test "the examples of kv-evict(1) do what it says" { run_examples kv-evict.1; }
@test "the examples of kv-quantize1b(1) do what it says" { run_examples kv-quantize1b.1; }
@test "the examples of kv-merge(1) do what it says" { run_examples kv-merge.1; }
@test "the examples of kv-recompute(1) do what it says" { run_examples kv-recompute.1; }
@test "the examples of kv-decode(1) do what it says" { run_examples kv-decode.1; }
@test "the examples of kv-footprint(1) do what it says" { run_examples kv-footprint.1; }
@test "the examples of kv-critical(1) do what it says" { run_examples kv-critical.1; }
@test "the examples of kv-plan(1) do what it says" { run_examples kv-plan.1; }
@test "the examples of kv-tsp-layer(1) do what it says" { run_examples kv-tsp-layer.1; }
@test "the examples of kv-diff(1) do what it says" { run_examples kv-diff.1; }
@test "the examples of kv-index(1) do what it says" { run_examples kv-index.1; }
@test "the examples of kv-convert(1) do what it says" { run_examples kv-convert.1; }
@test "the examples of kv-info(1) do what it says" { run_examples kv-info.1; }
@test "the examples of kv-check(1) do what it says" { run_examples kv-check.1; }
@test "the examples of kv-snapshot(5) do what it says" { run_examples kv-snapshot.5; }
@test "the examples of kvpipe(7) do what it says" { run_examples kvpipe.7; }

# Without overstriking.
plain() {
	sed 's/.\x08//g'
}

# section PAGE NAME: as mandoc shows it, in one line
section() {
	mandoc -T ascii -O width=500 "$ROOT/man/$1" | plain |
	    awk -v name="$2" '/^[^ ]/ { on = $0 == name; next } on' | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'
}

@test "SYNOPSIS of every page is the usage of the program, word for word" {
	local page tool
	for page in "$ROOT"/man/*.1; do
		tool=$(basename "$page" .1)
		run bash -c '"$1" --help | sed "/^$/,\$d" | sed "s/^   or: //" | tr -s " \n" " " | sed "s/^usage: //; s/ $//"' _ "$tool"
		assert_equal "$(section "$tool.1" SYNOPSIS)" "$output"
	done
}

# A model may be a GGUF file, so it is no DIR, which is a folder and completed as one.
@test "-m takes a MODEL in every usage, page and completion" {
	local tool n=0
	for tool in $(basename -s .1 "$ROOT"/man/*.1); do
		"$tool" --list-options | awk -F '\t' '$2 == "model" { print $3, $4 }' >listed
		[ -s listed ] || continue
		n=$((n + 1))
		assert_equal "$tool $(<listed)" "$tool MODEL @file"
		run -0 "$tool" --help
		assert_line --regexp '^ +-m, --model MODEL '
		assert_output --partial '-m MODEL'
		grep -qx '\.It Fl m , Fl -model Ar MODEL' "$ROOT/man/$tool.1"
		run grep -nE 'Fl (m|-model) Ar [^M]' "$ROOT/man/$tool.1"
		assert_output ''
	done
	[ $n -ge 8 ]
}

@test "NAME of every page says what --help says" {
	local page tool
	for page in "$ROOT"/man/*.1; do
		tool=$(basename "$page" .1)
		run bash -c '"$1" --help | sed "1,/^$/d; /^$/,\$d"' _ "$tool"
		assert_equal "$(section "$tool.1" NAME)" "$tool - $output"
	done
}

@test "every option of --help stands in the page" {
	local page tool option
	for page in "$ROOT"/man/*.1; do
		tool=$(basename "$page" .1)
		mandoc -T ascii "$page" | plain >page.txt
		for option in $("$tool" --help | grep -oE '^ +(-[a-z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+'); do
			grep -qE -- "^ +(-[a-z], |--help, |-q, --quiet; -v, )?$option( |$|,|;)" page.txt ||
				fail "$tool.1 does not explain $option"
		done
	done
}

@test "every method of kv-score --list has its paragraph in kv-score(1)" {
	local method
	run bash -c "kv-score --list | cut -d ' ' -f 1"
	assert_success
	[ "${#lines[@]}" -ge 4 ]
	for method in "${lines[@]}"; do
		grep -qx "\.It Cm $method" "$ROOT/man/kv-score.1" || fail "kv-score.1 does not explain $method"
	done
}

@test "every key of kv-info --json is explained, in kv-info(1) or, for the model, in the specification" {
	kv-prefill -m demo-model -o x.kv prompt.txt
	kv-info --json --all x.kv >x.json
	run "$PYTHON" -c '
import json, re, sys
o = json.load(open("x.json"))
page = re.findall(r"\w+", open(sys.argv[1]).read())
document = re.findall(r"`(\w+)`", open(sys.argv[2]).read())
lists = ("layers", "sections", "provenance")
keys = set(o) | {key for name in lists for entry in o[name] for key in entry}
print(*sorted(keys - set(page)), *sorted(set(o["model"]) - set(document)))
' "$ROOT/man/kv-info.1" "$ROOT/formats/kv-snapshot.md"
	assert_success
	assert_output ''
}

@test "every key of --json of kv-check, kv-decode and kv-observe is explained in its page" {
	kv-prefill -m demo-model -o x.kv prompt.txt
	head -c 1000 x.kv >cut.kv
	kv-check -q --json x.kv >kv-check.json
	kv-check -q --json cut.kv >>kv-check.json || true
	kv-quantize1b x.kv | kv-decode -m demo-model -n 3 --json --retrieve 'fier budget=9' --audit >kv-decode.json
	seq 5 | kv-observe -m demo-model --ids-from - --json -o y.kv x.kv >kv-observe.json
	for name in kv-check kv-decode kv-observe; do
		run "$PYTHON" -c '
import re, sys
page = set(re.findall(r"\w+", open(sys.argv[1]).read()))
print(*sorted(set(re.findall(r"\"(\w+)\":", open(sys.argv[2]).read())) - page))' "$ROOT/man/$name.1" $name.json
		assert_success
		assert_output ''
	done
}

@test "what the pages refer to exists" {
	local name number
	while read -r name number; do
		[ -e "$ROOT/man/$name.$number" ] || fail "there is no page $name($number)"
	done < <(sed -n 's/^\.Xr \([^ ]*\) \([1-9]\).*/\1 \2/p' "$ROOT"/man/*.[1-9] | sort -u)
}

# A macro within a line, such as .%A Li, swallows the rest of it: only one of the two programs may notice.
@test "groff has no complaints about the pages, and shows the words that mandoc shows" {
	local page words of_groff of_mandoc
	for page in "$ROOT"/man/*.[1-9]; do
		run -0 groff -mdoc -Tascii -P-cbou -ww "$page"
		refute_output --partial 'warning:'
		words=$(tr -cs 'A-Za-z' '\n' <<<"$output" | sort)
		of_groff=$(grep -c . <<<"$words")
		of_mandoc=$(mandoc -Tascii "$page" | sed $'s/.\b//g' | tr -cs 'A-Za-z' '\n' | grep -c .)
		[ $((100 * of_groff)) -gt $((97 * of_mandoc)) ] || fail "$page: $of_groff of $of_mandoc words"
	done
}

@test "mandoc has no complaints about the pages" {
	run mandoc -T lint -W warning "$ROOT"/man/*.[1-9]
	assert_success
	assert_output ''
}

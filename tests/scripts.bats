#!/usr/bin/env bats
# bats file_tags=nosan
# The scripts of examples/: the same in every shell and language, with any file's name, and no value of a model folder is a command

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# shells: those that are there, a command a line. sh is bash in its POSIX mode on some systems.
shells() {
	local shell
	for shell in dash bash 'bash --posix' 'busybox ash' mksh; do
		! command -v "${shell%% *}" >/dev/null || echo "$shell"
	done
}

# methods: the names of the scripts in examples/methods
methods() {
	basename -a -s .sh "$ROOT"/examples/methods/*.sh | grep -vx common
}

# shell_is SHELL ...: what scripts start as sh is this one
shell_is() {
	mkdir -p shell
	printf '#!/bin/sh\nexec %s "$@"\n' "$*" >shell/sh
	chmod +x shell/sh
	PATH=$PWD/shell:$PATH
}

# settings_of METHOD: the names of its settings
settings_of() {
	sed -n 's/^settings *//p' "$ROOT/examples/methods/$1.sh" | tr ' ' '\n' | sed '/^$/d'
}

# sorted_calls SHELL METHOD OPTION ...: the programs that the script calls, without the name of its own folder
sorted_calls() {
	: >calls
	# shellcheck disable=SC2086 # words
	$1 "$ROOT/examples/methods/$2.sh" "${@:3}" >line
	sed 's,/[^ ]*/tmp\.[A-Za-z0-9]*,WORK,g' calls | sort
}

@test "every script parses in every shell" {
	local shell script
	while read -r shell; do
		for script in "$ROOT"/{examples,examples/methods,experiments,src/cli,tests}/*.sh; do
			# shellcheck disable=SC2086 # words
			$shell -n "$script" || fail "$shell: $script"
		done
	done < <(shells)
}

@test "every script of examples/methods runs the same programs with the same options in every shell" {
	local shell method
	stub_programs
	other_model other
	mkdir gate
	printf 'random.recent=7\nstop=a\\nb\nheads=mask\nadapter=mask\nretriever=mask\nfilters=mask\ngate=gate\n' >conf
	printf '1 0 0\n0.5 0 0\n' >mask
	for method in $(methods); do
		in_sample 4 || continue
		while read -r shell; do
			sorted_calls "$shell" "$method" -m other -C conf -r 20% >"now"
			[ "$(wc -l <line)" -eq 1 ] || fail "$shell: $method: $(cat line)"
			[ -s now ] || fail "$shell: $method runs nothing"
			[ -e "$method.first" ] || mv now "$method.first"
			[ ! -e now ] || diff now "$method.first" || fail "$shell: $method"
		done < <(shells)
	done
}

@test "scripts that compute with numbers, share and run others print the same line in every shell" {
	local shell words
	mkdir cache
	printf '0.9 0.2\n0.6,0\n0.1 0.7\n0.3\t0.4\n' >mask
	while read -r shell; do
		for words in 'chunked-patched -r 0.3' 'shadowkv -b 120' 'duoattention -H mask -s recent=60 -r 0.3' 'kvzip -c cache -r 0.2'; do
			# shellcheck disable=SC2086 # words
			run -0 $shell "$ROOT/examples/methods/${words%% *}.sh" ${words#* }
			echo "$output" >>lines
		done
	done < <(shells)
	[ "$(sort -u lines | wc -l)" -eq 4 ] || fail "$(cat lines)"
	run grep -c . lines
	assert_output "$(($(shells | wc -l) * 4))"
}

@test "compare.sh and accuracy.sh run under bash as sh as under dash, and name a run that fails" {
	local shell rows
	while read -r shell; do
		(
			# shellcheck disable=SC2086 # words
			shell_is $shell
			sh "$ROOT/examples/compare.sh" -c -n 1 -t 400 -r 0.2 -M 'full snapkv streamingllm-chunked' >table
			sh "$ROOT/examples/accuracy.sh" --documents 1 --tokens 400 >>table
			run -1 --separate-stderr sh "$ROOT/examples/compare.sh" -n 1 -t 400 -r 2 -M 'snapkv'
			[[ $stderr == *'snapkv at 2, 1 times: snapkv.sh: -r: not a share above 0, up to 1'* ]] || fail "$stderr"
		) || fail "$shell"
		sed 's/^\(| [a-z].*\) [0-9.]* | \([0-9]*-[0-9]* |\)$/\1 \2/' table >>tables
		rows=$(wc -l <table)
	done < <(shells)
	[ "$(sort -u tables | grep -c .)" -eq "$(head -n "$rows" tables | sort -u | grep -c .)" ] || fail "$(cat tables)"
}

@test "no value of a model folder is a command, in any shell" {
	local shell method name
	stub_programs
	cp -r "$DEMO" model
	# shellcheck disable=SC2016 # what a shell that computes with it would run
	command='a[$(touch ran >&2; echo 0)]'
	for method in $(methods); do
		in_sample 4 || continue
		for name in $(settings_of "$method" | sed 's/=.*//') answer; do
			printf '%s.%s=%s\n' "$method" "$name" "$command" >model/kvpipe-methods.conf
			# a text may be anything, a file need not be there, a number must be one
			run bash "$ROOT/examples/methods/$method.sh" -m model -r 0.2
			[ ! -e ran ] || fail "$method: $name"
			case $name in
			adapter | budgets | draft_model | filters | gate | heads | query_stats | retriever | instruction | stop) ;;
			*)
				[ "$status" -eq 2 ] || fail "$method: $name: $status, $output"
				assert_output --regexp "^$method.sh: model/kvpipe-methods.conf: line 1: $name: not "
				;;
			esac
			run bash "$ROOT/examples/methods/$method.sh" -m model -C /dev/null -r 0.2 -s "$name=$command"
			[ ! -e ran ] || fail "$method: -s $name"
		done
	done
	while read -r shell; do
		printf 'chunks=%s\n' "$command" >model/kvpipe-methods.conf
		# shellcheck disable=SC2086 # words
		run -2 $shell "$ROOT/examples/methods/chunked-naive.sh" -m model
		printf '{ "num_hidden_layers": 08, "hidden_size": 12345678901 }\n' >model/config.json
		# shellcheck disable=SC2086 # words
		run -2 $shell "$ROOT/examples/methods/fastkv.sh" -m model -C /dev/null
		assert_output 'fastkv.sh: model/config.json: num_hidden_layers is not a whole number above 0'
	done < <(shells)
	[ ! -e ran ]
}

# The names of settings stand in a list with blanks between.
@test "two names of settings are none, and none is a program" {
	local shell
	printf '#!/bin/sh\ntouch %s/ran\n' "$PWD" >group
	cp group given_group
	chmod +x group given_group
	printf 'group heads=1\n' >conf
	while read -r shell; do
		# shellcheck disable=SC2086 # words
		PATH=$PWD:$PATH run -2 $shell "$ROOT/examples/methods/fier.sh" -C conf
		assert_output 'fier.sh: conf: line 1 is not NAME=VALUE'
		# shellcheck disable=SC2086 # words
		PATH=$PWD:$PATH run -2 $shell "$ROOT/examples/methods/fier.sh" -s 'group heads=1'
		assert_output 'fier.sh: -s group heads: there is no such setting'
	done < <(shells)
	[ ! -e ran ]
}

@test "a value that is not of its setting's kind is refused: numbers, shares, words, names" {
	local line method
	while read -r method line; do
		printf '%s\n' "$line" >conf
		run -2 sh "$ROOT/examples/methods/$method.sh" -C conf
		assert_output --regexp "^$method.sh: conf: line 1: ${line%%=*}: not "
		run -2 sh "$ROOT/examples/methods/$method.sh" -s "$line"
		assert_output --regexp "^$method.sh: -s ${line%%=*}: not "
	done <<-'END'
		snapkv window=0
		snapkv window=08
		snapkv window=-1
		snapkv window=1.5
		snapkv window=1k
		snapkv window=8 9
		snapkv window=1234567890
		random recent=00
		snapkv pool=max$
		snapkv pool=--help
		fastkv tsp_rate=0
		fastkv tsp_rate=1.01
		fastkv tsp_rate=101%
		fastkv tsp_rate=.
		fastkv tsp_rate=0,2
	END
	for rate in 0 1.1 110% x 0.1x '' '0.1 0.2' 1e 1e1; do
		run -2 sh "$ROOT/examples/methods/full.sh" -r "$rate"
		assert_output 'full.sh: -r: not a share above 0, up to 1'
	done
	run -2 sh "$ROOT/examples/methods/full.sh" -b 07
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -s window=
	assert_output 'snapkv.sh: window: no value'
}

@test "a settings file from another system is read, and one that is none is not" {
	printf 'window=4\r\nstop=a\\nb\\\\n\r\n' >conf
	run -0 sh "$ROOT/examples/methods/snapkv.sh" -C conf -h
	assert_line '    window=4'
	assert_line '    stop=a\nb\\n'
	printf 'stop=\033]0;x\a\n' >conf
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -C conf
	assert_output 'snapkv.sh: conf: line 1: a control character (\n stands for a newline)'
	yes '# a long comment' | head -n 5000 >conf
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -C conf
	assert_output 'snapkv.sh: conf: more than 64 KiB'
	cp -r "$DEMO" model
	rm model/kvpipe-methods.conf
	mkfifo model/kvpipe-methods.conf
	run -0 timeout 20 sh "$ROOT/examples/methods/snapkv.sh" -m model -h
	assert_line '    window=32'
}

# comma_locale: programs from here on find numbers with a comma, as in most of Europe; skips where that cannot be made
comma_locale() {
	local made=$BATS_FILE_TMPDIR/locales
	if [ ! -e "$made/done" ]; then
		mkdir -p "$made"
		localedef -i de_DE -f UTF-8 "$made/de_DE.UTF-8" 2>/dev/null || skip "localedef makes no de_DE.UTF-8 (Debian: locales)"
		touch "$made/done"
	fi
	export LOCPATH=$made LC_ALL=de_DE.UTF-8 LANG=de_DE.UTF-8
	[ "$(env printf %.1f 0)" = 0,0 ] || skip "programs do not take up de_DE.UTF-8"
}

@test "figures of the scripts are the same where the user's numbers have a comma" {
	local words
	printf '0.9 0.2\n0.6,0\n0.1 0.7\n0.3\t0.4\n' >mask
	run_all() {
		for words in 'snapkv -r 0.2' 'h2o-decode -r 20%' 'fier -b 100' 'fastkv -r 0.2 -s tsp_rate=0.5' 'duoattention -H mask -r 0.3'; do
			# shellcheck disable=SC2086 # words
			sh "$ROOT/examples/methods/${words%% *}.sh" ${words#* }
		done
		sh "$ROOT/examples/compare.sh" -c -n 1 -t 400 -r '0.2' -M 'full snapkv' -P full | sed 's/ [0-9.]* | \([0-9]*-[0-9]* |\)$/ \1/'
		sh "$ROOT/examples/accuracy.sh" --documents 1 --tokens 400 2>/dev/null
	}
	run_all >expected
	comma_locale
	diff <(run_all) expected
	# where bash, awk and printf would all be wrong
	run awk 'BEGIN { print "0,5" + 0 }'
	assert_output '0,5'
}

@test "figures of the programs and of Python are the same where the user's numbers have a comma" {
	prints() {
		kv-prefill -m "$DEMO" --observe 16 -o full.kv "$ROOT/examples/prompts/harbour.txt"
		kv-score --method snapkv --kernel 7 full.kv | kv-evict --policy ada --alpha 0.5 --rate 0.2 -o "$1"
		kv-info "$1"
		kv-info --json "$1" | sed /digest/d
		kv-footprint "$1"
		printf 'a\t0.5\t0.25\nfull\t1\t0.5\n' | kv-critical --json -
		PYTHONPATH=$ROOT/python "$PYTHON" "$ROOT/examples/python/value_aware.py" <full.kv | kv-evict --rate 0.5 | kv-info --positions -
	}
	prints x.kv >expected
	mv x.kv first.kv
	comma_locale
	diff <(prints x.kv) expected
	cmp x.kv first.kv
}

@test "tests and their helpers are right where the user's numbers have a comma" {
	kv-prefill -m "$DEMO" "$ROOT/examples/prompts/harbour.txt" | kv-score --method knorm | kv-evict --rate 0.25 -o x.kv
	comma_locale
	run -0 bats -f 'about the rate' "$ROOT/tests/method_settings.bats"
	source "$ROOT/tests/kvpipe/load.bash"
	assert_kept x.kv 0.25
	assert_kept x.kv 25%
	run -1 assert_kept x.kv 0.75
	assert_footprint_below x.kv 1.5
	run -1 assert_footprint_below x.kv 0.5
}

# Blanks, quotes, what a shell expands, what awk takes for an assignment, what an option begins with
@test "files and folders may have any name of one line" {
	local odd="-a='b \"c\"  [d]* \$e \\n\`f\`" method
	mkdir -- "$odd"
	mkdir "./$odd/tmp" "./$odd/cache"
	cp -r "$DEMO" "./$odd/model"
	cp "$ROOT/examples/prompts/harbour.txt" "./$odd/x=y.txt"
	cp "$DEMO/duoattention.tsv" "./$odd/-mask=1"
	for method in chunked-naive chunked-patched keydiff-chunked streamingllm-chunked lookaheadkv duoattention shadowkv \
	    specontext speckv 'duoattention -s chunk=200 -s recent=60'; do
		in_sample 4 || continue
		(
			cd "./$odd" || exit 1
			# shellcheck disable=SC2086 # words
			TMPDIR=$PWD/tmp sh "$ROOT/examples/methods/${method%% *}.sh" ${method#"${method%% *}"} -m "../$odd/model" -c "../$odd/cache" -r 0.2 x=y.txt
		) >line || fail "$method"
		# shellcheck disable=SC2086 # words
		diff line <(sh "$ROOT/examples/methods/${method%% *}.sh" ${method#"${method%% *}"} -r 0.2) || fail "$method"
	done
	sh "$ROOT/examples/methods/duoattention.sh" -H "$odd/-mask=1" -m "$odd/model" -C "$odd/model/kvpipe-methods.conf" -r 0.2 -o "$odd/-x" -- "$odd/x=y.txt"
	kv-check "./$odd/-x"
	[ -e "./$odd/-x.options" ]
}

@test "compare.sh takes documents, models, tables and plots of any name of one line" {
	local odd="-a='b \"c\"  [d]* \$e \\n\`touch ran\`" plot=()
	"$PYTHON" "$DEMO/documents.py" --n 1 --tokens 400 --seed 1 --out made
	mkdir -- "$odd"
	mkdir "./$odd/tmp"
	cp -r "$DEMO" "./$odd/model"
	mv made/*.txt "./$odd/ -1\\n 'x'.txt"
	mv made/*.answer "./$odd/ -1\\n 'x'.answer"
	! command -v gnuplot >/dev/null || plot=(-p "$odd/-x.svg")
	TMPDIR="$PWD/$odd/tmp" run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -c -d "$odd" -m "$odd/model" -C "$odd/model/kvpipe-methods.conf" \
	    -T "$odd/-t" -r 0.2 -M 'full snapkv' "${plot[@]}"
	assert_line "1 documents of ./$odd"
	assert_line --regexp '^\| full \| all \| 100 \| 100.0 '
	[ "$(tail -n 1 "./$odd/-t" | cut -f 3)" = " -1\\n 'x'" ]
	[ "${#plot[@]}" -eq 0 ] || grep -q '<svg' "./$odd/-x.svg"
	[ ! -e ran ]
	# what is in the table is not done again
	TMPDIR="$PWD/$odd/tmp" run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -c -d "$odd" -m "$odd/model" -C "$odd/model/kvpipe-methods.conf" \
	    -T "$odd/-t" -r 0.2 -M 'full snapkv'
	[[ $stderr == *"2 of 2 runs are in ./$odd/-t already"* ]]
}

@test "a name with a line break is refused" {
	local name=$'a\nb' option
	mkdir "$name"
	for option in -c -C -m -o -H; do
		run -2 sh "$ROOT/examples/methods/full.sh" "$option" "$name"
		[ "${#lines[@]}" -eq 1 ] || fail "$output"
	done
	run -2 sh "$ROOT/examples/methods/full.sh" -s "adapter=$name"
	assert_output 'full.sh: -s adapter: not a name of one line'
	run -2 sh "$ROOT/examples/methods/full.sh" "$name"
	assert_output 'full.sh: prompt: a name with a line break'
	for option in -C -d -m -p -T; do
		run -2 sh "$ROOT/examples/compare.sh" "$option" "$name"
		assert_output "compare.sh: $option: a name with a line break"
	done
	mkdir documents
	touch documents/$'a\tb.txt' documents/$'a\tb.answer'
	run -2 sh "$ROOT/examples/compare.sh" -d documents
	assert_output 'compare.sh: -d documents: the name of a document has a line break or a tab'
}

@test "what a model needs to have passed over reaches every script, from a variable, its own file or another one, and compare.sh" {
	local method words
	cp -r "$DEMO" model
	"$PYTHON" -c 'import json
config = json.load(open("model/config.json"))
json.dump({**config, "internal_version": "7b"}, open("model/config.json", "w"))'
	run ! sh "$ROOT/examples/methods/full.sh" -m model
	{ cat "$DEMO/kvpipe-methods.conf"; echo allow-config=internal_version; } >model/own
	for method in full lookaheadkv kvzip fier specontext h2o-decode chunked-patched oracle; do
		KV_ALLOW_CONFIG=internal_version run -0 --separate-stderr sh "$ROOT/examples/methods/$method.sh" -m model -r 0.2
		words=$output
		run -0 --separate-stderr sh "$ROOT/examples/methods/$method.sh" -m model -C model/own -r 0.2
		assert_output "$words"
	done
	cp model/own model/kvpipe-methods.conf
	run -0 --separate-stderr sh "$ROOT/examples/methods/oracle.sh" -m model -r 0.2
	assert_output "$words"
	"$PYTHON" "$DEMO/documents.py" --n 1 --tokens 400 --seed 1 --out made
	run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -c -m model -d made -r 0.2 -M 'full snapkv'
	assert_line --regexp '^\| full \| all \| 100 \| 100.0 '
	printf 'allow-config=two words\n' >conf
	run -2 sh "$ROOT/examples/methods/full.sh" -C conf
	assert_output 'full.sh: conf: line 1: allow-config: not a name'
}

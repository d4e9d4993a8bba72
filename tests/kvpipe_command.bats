#!/usr/bin/env bats
# kvpipe: the list of the programs, and each of them by its word

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# listed: name and line of each program, as kvpipe lists them
listed() {
	kvpipe | sed -n 's/^  \(kv-[a-z0-9-]*\)  */\1 - /p'
}

@test "kvpipe lists every program once, with the line that --help, its page and README.md have" {
	local name about
	run -0 kvpipe
	assert_equal "$(listed | cut -d ' ' -f 1 | sort)" "$(for tool in "$ROOT"/tools/kv-*.c; do basename "$tool" .c; done | sort)"
	while read -r name _ about; do
		assert_equal "$("$name" --help | sed '1,/^$/d; /^$/,$d')" "$about"
		assert_equal "$(mandoc -T ascii "$ROOT/man/$name.1" | sed 's/.\x08//g; 1,/^NAME/d; /^SYNOPSIS/,$d' | tr -s ' \n' ' ' | sed 's/^ //; s/ $//')" "$name - $about"
		grep -qFx "| \`$name\` | $about |" "$ROOT/README.md" || fail "README.md: $name"
	done < <(listed)
	# groups have titles
	run -0 grep -c '^[A-Z].*[a-z]$' <(kvpipe)
	assert_output 7
	run awk 'length > 100' <(kvpipe)
	assert_output ''
}

@test "kvpipe score ... is kv-score ..., with its arguments, output, messages and exit status" {
	kvpipe prefill -q -m "$DEMO" --observe 16 -o 'a b.kv' <<<'The boat lay in the harbour.'
	kv-prefill -q -m "$DEMO" --observe 16 -o b.kv <<<'The boat lay in the harbour.'
	cmp 'a b.kv' b.kv
	kvpipe kv-score --method snapkv 'a b.kv' | kvpipe evict --rate 0.5 | cmp - <(kv-score --method snapkv b.kv | kv-evict --rate 0.5)
	run -2 --separate-stderr kvpipe score --method snapvk b.kv
	[[ $stderr == "kv-score: --method: there is no 'snapvk'"* ]] || fail "$stderr"
	head -c 100 b.kv >cut.kv
	run -3 kvpipe check cut.kv
	assert_output --partial 'kv-check: '
	run -0 kvpipe score --help
	assert_output "$(kv-score --help)"
	run -0 kvpipe help kv-score
	assert_output "$(kv-score --help)"
	run -0 kvpipe help
	assert_output "$(kvpipe)"
	run -0 kvpipe --version
	assert_line "$(kv-score --version | sed -n 's/^kv-score/kvpipe/p')"
}

@test "a word that is no program is refused, with the nearest name" {
	refused() {
		run -2 --separate-stderr kvpipe "${@:2}"
		assert_equal "$output" ''
		assert_equal "$stderr" "kvpipe: $1"
	}
	refused "there is no program 'scroe': did you mean score?" scroe
	refused "there is no program 'kv-evcit': did you mean evict?" kv-evcit
	refused "there is no program 'foot': did you mean footprint?" foot -x
	refused "there is no program 'zzzz'" zzzz
	refused "there is no program ''" ''
	refused "there is no program 'a\\nb'" $'a\nb'
	refused "there is no program 'scroe': did you mean score?" help scroe
	refused 'help: one program, not 2' help score evict
	run -2 kvpipe --scroe
	assert_output --partial 'usage: kvpipe'
	# no path leads out
	refused "there is no program '../kv-score'" ../kv-score
}

@test "the program beside kvpipe is run, also by a link from elsewhere; else that of the PATH" {
	mkdir bin other
	cp "$O/kvpipe" bin
	ln -s ../bin/kvpipe other/pipe
	printf '#!/bin/sh\necho "$0: $*"\n' >bin/kv-check
	printf '#!/bin/sh\necho "other $*"\n' >other/kv-info
	cp other/kv-info other/kv-check
	chmod +x bin/kv-check other/kv-*
	run -0 env PATH="$PWD/other:$PATH" pipe check 'a b' ''
	assert_output --regexp '/bin/kv-check: a b $'
	run -0 env PATH="$PWD/other:$PATH" pipe info x
	assert_output 'other x'
	run -1 env PATH="$PWD/bin" "$PWD/bin/kvpipe" score
	assert_output 'kvpipe: kv-score cannot be run: No such file or directory'
}

@test "shells complete the words of kvpipe, and behind them what the program takes" {
	complete_bash() {
		bash --norc -c '. "$1/completions/kvpipe.bash"
			shift
			COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
			_kvpipe
			printf "%s\n" "${COMPREPLY[@]}"' - "$O" "$@"
	}
	run complete_bash kvpipe ''
	assert_output "$(listed | sed 's/^kv-\([^ ]*\).*/\1/'; echo help)"
	run complete_bash kvpipe help in
	assert_output $'index\ninfo'
	run complete_bash kvpipe evict --po
	assert_output $'--positions\n--policy'
	run complete_bash kvpipe kv-evict --policy pyramid-e
	assert_output pyramid-exact
	touch a.kv
	run complete_bash kvpipe info ''
	assert_output a.kv
	run bash --norc -c '. "$O/completions/kvpipe.bash"; complete -p kvpipe'
	assert_output 'complete -F _kvpipe kvpipe'
	if command -v fish >/dev/null; then
		run bash -c 'HOME=$PWD fish -N -c "source $O/completions/kvpipe.fish; complete -C \"kvpipe sco\"" | cut -f 1'
		assert_output score
	fi
}

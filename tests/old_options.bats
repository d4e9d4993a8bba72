#!/usr/bin/env bats
# Options that have another name now are answered with it, in the command line and in words.

load helper

@test "every old option is answered with what stands for it now, and that exists" {
	local program name now last
	# the table itself, so that no entry is left out
	while IFS=$'\t' read -r program name now; do
		last=$program
		case $program in
		--evict)
			run -2 --separate-stderr kv-prefill -m x --evict "rate=0.5 $name=x"
			assert_equal "$stderr" "kv-prefill: --evict: $name= is now $now"
			;;
		*)
			run -2 --separate-stderr "$program" "--$name" x
			# shellcheck disable=SC2154 # bats sets it
			assert_equal "${stderr%%$'\n'*}" "$program: --$name is now $now"
			run -2 --separate-stderr "$program" "--$name=x"
			assert_equal "${stderr%%$'\n'*}" "$program: --$name is now $now"
			;;
		esac
		case $now in
		"the program "*) command -v "${now#the program }" ;;
		kv-*) "${now%% *}" --help | grep -qe "$(grep -o -e '--[a-z-]*' <<<"$now" | head -n 1)" ;;
		--*) "$program" --help | grep -qe "$(grep -o -e '--[a-z-]*' <<<"$now" | head -n 1)" ;;
		esac
	done < <(sed -n 's/^\t{ "\([^"]*\)", "\([^"]*\)", "\(.*\)" },$/\1\t\2\t\3/p' "$ROOT/src/cli/old_options.c")
	assert_equal "$last" kv-footprint       # the last one was read
}

@test "-h is --help, and its options stand in groups" {
	for program in kv-prefill kv-decode kv-evict kv-info; do
		assert_equal "$($program -h)" "$($program --help)"
		run -0 $program -h
		assert_line 'common options:'
		assert_line --regexp '^(input|processing|output):$'
	done
}

@test "KV_MODEL names the model where -m does not" {
	local prompt=$ROOT/examples/prompts/harbour.txt
	cd "$BATS_TEST_TMPDIR" || exit 1
	export KV_MODEL=$DEMO
	kv-prefill -o a.kv "$prompt"
	kv-prefill -m "$DEMO" -o b.kv "$prompt"
	cmp a.kv b.kv
	assert_equal "$(kv-decode --stop . a.kv)" "$(kv-decode -m "$DEMO" --stop . a.kv)"
	assert_equal "$(kv-tokenize --count "$prompt")" 982
	assert_equal "$(kv-info --text a.kv)" "$(kv-info --text -m "$DEMO" a.kv)"
	kv-info a.kv >with
	KV_MODEL='' kv-info a.kv | diff - with
	run -1 kv-decode -m none a.kv
	KV_MODEL='' run -2 --separate-stderr kv-decode a.kv
	# shellcheck disable=SC2154 # bats sets it
	assert_equal "${stderr%%$'\n'*}" 'kv-decode: a model is needed: -m MODEL, or KV_MODEL'
}

@test "-p is the prompt on the command line: text, or with --ids token ids" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf 'The access code of Elmford is L047.' >text
	kv-tokenize -m "$DEMO" text >ids
	assert_equal "$(kv-tokenize -m "$DEMO" -p "$(cat text)")" "$(cat ids)"
	assert_equal "$(kv-tokenize -m "$DEMO" -d -p "$(cat ids)")" "$(kv-tokenize -m "$DEMO" -d ids)"
	kv-prefill -m "$DEMO" -o want.kv text
	kv-prefill -m "$DEMO" -o a.kv --prompt "$(cat text)"
	kv-prefill -m "$DEMO" -o b.kv --ids -p "$(cat ids)"
	cmp want.kv a.kv
	cmp want.kv b.kv
	# standard input stays free for the snapshot
	head -c 9 text | kv-prefill -m "$DEMO" | kv-prefill -m "$DEMO" -r - -p ' and more' -o c.kv
	run -2 --separate-stderr kv-prefill -m "$DEMO" -p x text
	# shellcheck disable=SC2154 # bats sets it
	assert_equal "$stderr" 'kv-prefill: give --prompt or the file text, and not both'
	run -3 kv-prefill -m "$DEMO" --ids -p 'x' -o d.kv
	assert_output --partial '--prompt'
	[ ! -e d.kv ]
}

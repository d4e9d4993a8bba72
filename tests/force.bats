#!/usr/bin/env bats
# kv-decode --force: how likely each token of a given text is, under eviction and retrieval, against NumPy, and against transformers where
# it is (TRAIN_PYTHON, or python3)

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	kv-prefill -m "$DEMO" -w 16 --mass -o full.kv "$ROOT/examples/prompts/harbour.txt"
	kv-decode -m "$DEMO" --ids --ignore-eos -n 20 full.kv >said.ids
	kv-decode -q -m "$DEMO" --ids --force said.ids --logits full.npy full.kv
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# numpy CODE: with np, and o, what --json has printed in out.json
numpy() {
	"$PYTHON" -c '
import json, sys
import numpy as np
o = json.load(open("out.json"))
def logp(x):
    x = np.asarray(x, np.float64)
    return x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
'"$1"
}

@test "log-likelihood, perplexity and top-1 are those that NumPy finds in the logits" {
	kv-decode -m "$DEMO" --ids --json --force said.ids --logits x.npy full.kv >out.json
	cmp x.npy full.npy
	numpy '
x, ids = np.load("x.npy"), [int(w) for w in open("said.ids").read().split()]
assert x.dtype == np.float32 and x.shape == (20, 1536), x.shape
want = logp(x)[np.arange(20), ids]
np.testing.assert_allclose([e["logprob"] for e in o["each"]], want, rtol=1e-12, atol=1e-12)
assert [e["id"] for e in o["each"]] == ids
assert [e["top"] for e in o["each"]] == list(x.argmax(1) == ids)
np.testing.assert_allclose([o["nll"], o["perplexity"], o["logprob"]], [-want.mean(), np.exp(-want.mean()), want.sum()], rtol=1e-12, atol=1e-12)
assert o["top1"] == 1 and o["tokens"] == 20'
}

@test "what greedy decoding says is likeliest at every place, and the text itself may be given" {
	run -0 kv-decode -m "$DEMO" --ids --force said.ids full.kv
	assert_line --regexp '^ +20 +[0-9.]+ +[0-9.]+ +100.00%  full.kv$'
	kv-decode -m "$DEMO" -n 20 --ignore-eos full.kv >said.txt
	run -0 kv-decode -m "$DEMO" --force said.txt full.kv
	assert_line --regexp '^ +20 .* 100.00%  full.kv$'
}

@test "KL and agreement with a reference run are what NumPy finds in both logits, under eviction and retrieval" {
	kv-score --method snapkv full.kv | kv-evict --rate 0.05 -o small.kv
	kv-quantize1b -o bits.kv full.kv
	for how in "small.kv" "--score h2o --evict budget=40 full.kv" "--retrieve 'fier budget=32' bits.kv"; do
		eval "more=($how)"
		# shellcheck disable=SC2154 # eval sets it
		kv-decode -m "$DEMO" --ids --json --force said.ids --against full.npy --logits other.npy "${more[@]}" >out.json
		numpy '
p, q = logp(np.load("full.npy")), logp(np.load("other.npy"))
kl = (np.exp(p) * (p - q)).sum(1)
np.testing.assert_allclose([e["kl"] for e in o["each"]], kl, rtol=1e-9, atol=1e-12)
np.testing.assert_allclose([o["kl"], o["kl_most"]], [kl.mean(), kl.max()], rtol=1e-9, atol=1e-12)
assert [e["agrees"] for e in o["each"]] == list(p.argmax(1) == q.argmax(1))
assert o["kl_most"] > 1e-9'
	done
	assert_equal "$(json out.json '"retrieval" in o')" True
	kv-decode -m "$DEMO" --ids --json --force said.ids --against full.npy full.kv >out.json
	numpy 'assert o["kl_most"] == 0 and o["agreement"] == 1'
}

@test "the snapshot that is kept is that of a prefill of the same tokens" {
	kv-decode -m "$DEMO" --ids --force said.ids -o after.kv full.kv
	kv-prefill -m "$DEMO" --ids -r full.kv -o resumed.kv said.ids
	errors_below 1e-2 "$PYTHON" "$ORACLE/same.py" after.kv resumed.kv
	kv-check -q after.kv
	assert_equal "$(see after.kv 's.tokens[-20:]')" "$(tr '\n' ' ' <said.ids | sed 's/ $//')"
}

@test "in layers with a window, too" {
	window_model some 60 sf --layers 2 --hidden 40 --heads 4 --kv-heads 2 --head-dim 8 --dtype f32
	seq 5 300 | kv-prefill -m some --ids -o x.kv -
	kv-decode -m some --ids --ignore-eos -n 80 -o one.kv x.kv >ids
	run -0 kv-decode -m some --ids --force ids -o two.kv x.kv
	assert_line --regexp '^ +80 .* 100.00%  x.kv$'
	assert_equal "$(logical one.kv)" "$(logical two.kv)"
}

@test "what cannot be compared is refused, and no file appears" {
	run -2 kv-decode -m "$DEMO" --logits x.npy full.kv
	run -2 kv-decode -m "$DEMO" --against full.npy full.kv
	for option in "-n 3" "--stop ." --ignore-eos "-t 1"; do
		# shellcheck disable=SC2086 # words
		run -2 --separate-stderr kv-decode -m "$DEMO" --force said.ids --ids $option full.kv
		[[ "$stderr" == *" does not go with --force: each token is given"* ]]
	done
	run -2 kv-decode -m "$DEMO" --ids --force said.ids --logits none.npy --against none.npy full.kv
	run -2 kv-decode -m "$DEMO" --ids --force said.ids --logits - full.kv
	run -2 kv-decode -m "$DEMO" --ids --force - - <full.kv
	: >empty
	run -3 --separate-stderr kv-decode -m "$DEMO" --ids --force empty full.kv
	[[ "$stderr" == *"empty: there is no token"* ]]
	echo 99999 >big
	run -3 kv-decode -m "$DEMO" --ids --force big full.kv
	head -n 19 said.ids >short
	run -4 --separate-stderr kv-decode -m "$DEMO" --ids --force short --against full.npy --logits none.npy full.kv
	[[ "$stderr" == *"full.npy: logits of 20 tokens, and short has 19"* ]]
	head -c 50000 full.npy >cut.npy
	run -3 --separate-stderr kv-decode -m "$DEMO" --ids --force said.ids --against cut.npy --logits none.npy full.kv
	[[ "$stderr" == *"cut.npy: it ends before its last row"* ]]
	[ ! -e none.npy ]
	head -c 60 full.npy >cut.npy
	run -3 kv-decode -m "$DEMO" --ids --force said.ids --against cut.npy full.kv
	run -3 --separate-stderr kv-decode -m "$DEMO" --ids --force said.ids --against full.kv full.kv
	[[ "$stderr" == *"full.kv: not a .npy file of version 1.0"* ]]
	"$PYTHON" -c 'import numpy as np; np.save("wide.npy", np.zeros((20, 1537), np.float32)); np.save("double.npy", np.zeros((20, 1536)))'
	run -4 kv-decode -m "$DEMO" --ids --force said.ids --against wide.npy full.kv
	run -3 kv-decode -m "$DEMO" --ids --force said.ids --against double.npy full.kv
}

# The oracle prints what it compares, and the greatest difference of a token's log-likelihood last. Rows of the text's own tokens are all kept.
# bats test_tags=nosan
@test "transformers finds each token as likely with the full cache, and where its tokens see only the rows that were kept" {
	: "${TRAIN_PYTHON:=python3}"
	missing=$(cannot_import 'torch, transformers, xxhash')
	[ -z "$missing" ] || skip "$TRAIN_PYTHON: $missing"
	theirs() { HF_HUB_OFFLINE=1 "$TRAIN_PYTHON" "$ORACLE/kept_nll.py" "$FORMAT" "$@" 2>err || { cat err; return 1; }; }
	kv-tokenize -m "$DEMO" "$ROOT/examples/prompts/harbour.txt" >all.ids
	head -n 300 all.ids >prompt.ids
	sed -n 301,330p all.ids >text.ids
	ln -sfn "$DEMO" demo
	window_model window 60 sfss --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype f32 --seed 3 --std 0.1
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" gemma2 gemma2 "$DEMO/tokenizer.json"
	for name in demo window gemma2; do
		kv-prefill -m $name --ids --dtype f32 -w 8 -o $name-full.kv prompt.ids
		kv-score --method snapkv -o scored.kv $name-full.kv
		kv-evict --rate 0.2 -o $name-uniform.kv scored.kv
		kv-evict --rate 0.2 --policy ada -o $name-ragged.kv scored.kv
		# rows that each query head has chosen by itself
		kv-convert -q --per-query-head $name-full.kv | kv-score --method snapkv | kv-evict --rate 0.2 -o $name-query-heads.kv
		pairs=()
		for kv in $name-full $name-uniform $name-ragged $name-query-heads; do
			kv-decode -q -m $name --ids --json --force text.ids $kv.kv >$kv.json
			pairs+=("$kv.kv" "$kv.json")
		done
		errors_below 1e-4 theirs $name prompt.ids text.ids "${pairs[@]}"
		assert_equal "$(wc -l <"$BATS_TEST_TMPDIR/errors")" 8
		run ! errors_below 1e-4 theirs $name prompt.ids text.ids $name-full.kv $name-uniform.json
	done
	assert_equal "$(see demo-uniform.kv 'sorted({len(p) for l in s.layers for p in l.positions})')" 60
	assert_equal "$(see demo-ragged.kv 'len({len(p) for l in s.layers for p in l.positions}) > 2')" True
}

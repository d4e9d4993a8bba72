#!/usr/bin/env bats
# kv-convert --per-query-head: rows for each query head, and what other programs do with such a snapshot

load helper

setup_file() {
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || return
	# three query heads for each KV head
	random_model gqa --layers 3 --hidden 96 --heads 6 --kv-heads 2 --head-dim 32 --ffn 128 --dtype f32 --seed 5 --std 0.15
	seq 5 204 >200.ids
	seq 300 339 >40.ids
	"$PYTHON" "$ROOT/tests/bin/mkgate.py" linear "$PWD/gqa" kvzap
	kv-prefill -m gqa --ids -w 8 --mass --query-stats --value-norms --gate kvzap -o text.kv 200.ids
	kv-convert --per-query-head -o repeated.kv text.kv
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# repeats A B: B is A with rows for each query head, section by section, by the independent reader
repeats() {
	"$PYTHON" - "$FORMAT" "$1" "$2" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		import kvread
		a, b = (kvread.read(open(path, "rb")) for path in sys.argv[2:])
		G, H = a.model["kv_heads"], a.model["query_heads"]
		assert b.model == dict(a.model, kv_heads=H) and b.tokens == a.tokens
		assert {k: v for k, v in a.head.items() if k != "model"} == {k: v for k, v in b.head.items() if k != "model"}
		assert a.logits == b.logits and a.head_keys == b.head_keys
		lists = lambda values: [list(x) for one in values for x in one]
		for l, (x, y) in enumerate(zip(a.layers, b.layers, strict=True)):
		    for h in range(H):
		        g = h // (H // G)
		        assert list(y.positions[h]) == list(x.positions[g]), (l, h)
		        for name in ("keys", "values"):
		            assert b.head_rows(l, name, h) == a.head_rows(l, name, g), (l, h, name)
		        if x.gate_scores:
		            assert list(y.gate_scores.values[h]) == list(x.gate_scores.values[g]), (l, h)
		    for name in ("mass", "paid", "value_norms"):
		        one, two = getattr(x, name), getattr(y, name)
		        assert bool(one) == bool(two)
		        if one:
		            assert getattr(one, "label", 0) == getattr(two, "label", 0)
		            one, two = getattr(one, "values", one), getattr(two, "values", two)
		            assert lists(one) == lists(two), (l, name)
		    if x.gate_scores:
		        assert y.gate_scores.label == x.gate_scores.label
		    assert x.query_stats == y.query_stats
		    assert not y.scores and not y.noncausal
		    if x.queries:
		        assert y.queries.positions == x.queries.positions
		        for name in x.queries._fields:
		            one, two = getattr(x.queries, name), getattr(y.queries, name)
		            if name in ("own", "own_keys", "keys") and one:
		                size = len(one) // G
		                one = b"".join(bytes(one[g * size:(g + 1) * size]) * (H // G) for g in range(G))
		            assert one == two, (l, name)
	END
}

# near A B: the same tokens and positions, and keys and values that differ by the rounding of bf16
near() {
	PYTHONPATH=$ROOT/python "$PYTHON" -c '
import sys
import kvsnapshot
import numpy as np
a, b = (kvsnapshot.read(path) for path in sys.argv[1:3])
assert list(a.tokens) == list(b.tokens) and len(a.layers) == len(b.layers)
for x, y in zip(a.layers, b.layers):
    for g, (p, q) in enumerate(zip(x.positions, y.positions, strict=True)):
        assert np.array_equal(p, q), (x.index, g)
        for one, two in ((x.keys[g], y.keys[g]), (x.values[g], y.values[g])):
            assert np.abs(one - two).max() < 0.01 * np.abs(one).max(), (x.index, g)' "$@"
}

@test "each query head gets the rows of its KV head, byte for byte, and what belongs to query heads stays" {
	for shape in "-H 6 -G 2 -L 3 -E 32 -N 90 --ragged -T 120 -w 5 --own 3 --mass --paid --query-stats -d bf16" "-H 8 -G 1 -E 24 -N 70 --value-norms l2 --logits -d f16" \
	    "-H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -w 5 --mass" "-H 4 -G 4 -N 30 --mass" "-L 4 -H 4 -G 2 -N 100 --sees 20 --gate-scores 'kvzap test' --scores random --noncausal 'chunk=256 first=0'"; do
		eval "mksnapshot $shape -o x.kv"
		kv-convert -q --per-query-head x.kv -o y.kv
		kv-check y.kv
		repeats x.kv y.kv
		kv-convert -q --per-query-head -z - <x.kv >z.kv
		assert_equal "$(logical z.kv)" "$(logical y.kv)"
	done
	for type in q8_0 fp8 q4_0 kivi2; do
		kv-quantize -q --keys $type --values $type text.kv -o x.kv
		kv-convert -q --per-query-head x.kv -o y.kv
		kv-check y.kv
		repeats x.kv y.kv
		# rows are quantised one by one, those of KIVI by KV head
		kv-quantize -q --keys $type --values $type repeated.kv -o z.kv
		assert_equal "$(logical z.kv)" "$(logical y.kv)"
	done
	repeats text.kv repeated.kv
	# through a safetensors file and back
	kv-convert -q -o x.safetensors repeated.kv
	kv-convert -o x.kv x.safetensors
	assert_equal "$(logical x.kv)" "$(logical repeated.kv)"
}

@test "what does not hold for query heads is left out, and said; where nothing changes, that is said, too" {
	kv-score --method snapkv text.kv | kv-quantize1b | kv-index --pages -o x.kv
	run -0 --separate-stderr kv-convert --per-query-head x.kv -o y.kv
	assert_equal "$stderr" "kv-convert: left behind: sCOR, bITS, pAGE"
	mksnapshot -H 4 -G 4 -N 30 --extra xYZW -o x.kv
	run -0 --separate-stderr kv-convert --per-query-head x.kv -o y.kv
	assert_regex "$stderr" 'x.kv: each query head has rows of its own already'
	assert_regex "$stderr" 'dropped the unknown section xYZW, which depends on the rows that changed'
	run -2 --separate-stderr kv-convert --per-query-head --as-stored text.kv -o no
	assert_equal "$stderr" "kv-convert: --per-query-head: not with --as-stored, which concerns safetensors files"
	run -2 --separate-stderr kv-convert --per-query-head --like text.kv text.kv -o no
	kv-convert -q -o x.safetensors text.kv
	run -3 --separate-stderr kv-convert --per-query-head x.safetensors -o no
	for n in 3000 $(($(stat -c %s text.kv) / 2)) $(($(stat -c %s text.kv) - 1)); do
		head -c $n text.kv >cut.kv
		run -3 --separate-stderr kv-convert --per-query-head cut.kv -o no
		assert_regex "$stderr" truncated
	done
	[ ! -e no ]
}

@test "the event log counts the rows of query heads, and goes on" {
	kv-score --method snapkv text.kv | kv-evict --rate 0.3 --keep-queries -o small.kv
	kv-convert -q --per-query-head small.kv -o x.kv
	kv-check x.kv
	kv-score --method snapkv x.kv | kv-evict --rate 0.5 -o y.kv
	kv-decode -m gqa --ids --ignore-eos -n 5 -o z.kv y.kv >ids
	kv-check z.kv
	assert_equal "$(kv-footprint --json x.kv | json - 'o["footprint"]')" "$(kv-footprint --json small.kv | json - 'o["footprint"]')"
}

@test "text, logits and rows go on as with rows for each KV head, and a snapshot of them is the converted one" {
	kv-decode -m gqa --ids --ignore-eos -n 30 -o a.kv text.kv >a.ids
	kv-decode -m gqa --ids --ignore-eos -n 30 -o b.kv repeated.kv >b.ids
	cmp a.ids b.ids
	repeats a.kv b.kv
	for kv in text repeated; do PATH=$O/emulated:$PATH kv-decode -m gqa --device cuda --ids --ignore-eos -n 12 -o $kv.cuda.kv $kv.kv >$kv.ids; done
	cmp text.ids repeated.ids
	kv-check repeated.cuda.kv
	# several texts in one step, questions, forced tokens, a prompt behind it
	kv-decode -m gqa --ids --ignore-eos -n 9 -o two.kv repeated.kv >/dev/null
	for kv in repeated two; do kv-decode -m gqa --ids --ignore-eos -n 12 $kv.kv; done | paste -sd ' ' | tr ' ' '\n' >want
	kv-decode -m gqa --ids --ignore-eos -n 12 repeated.kv two.kv | tr ' ' '\n' | cmp - want
	printf '11 12 13\n40 41 42\n' >asked
	kv-decode -m gqa --ids --ignore-eos -n 6 --questions asked text.kv >want
	kv-decode -m gqa --ids --ignore-eos -n 6 --questions asked repeated.kv | cmp - want
	kv-decode -m gqa --ids --force 40.ids --logits a.npy text.kv >/dev/null
	kv-decode -m gqa --ids --force 40.ids --logits b.npy repeated.kv >/dev/null
	cmp a.npy b.npy
	for kv in text repeated; do kv-prefill -m gqa --ids --products f32 -r $kv.kv -w 8 --mass --gate kvzap -o $kv.more.kv 40.ids; done
	kv-check repeated.more.kv
	kv-convert -q --per-query-head text.more.kv -o want.kv
	near want.kv repeated.more.kv
}

@test "selection for each query head: each keeps its best rows, by its own attention" {
	for options in "--rate 0.2" "--budget 30 --policy ada" "--rate 0.2 --policy pyramid-exact" "--rate 0.1 --policy global"; do
		for method in snapkv h2o meanmass cake tova; do
			kv-score --method $method repeated.kv -o scored.kv
			echo "5e-6 repeated.kv scored.kv $method" >comparisons
			all_agree
			kv-evict -q $options scored.kv -o small.kv
			echo "scored.kv small.kv $options" >runs
			"$PYTHON" "$ORACLE/budgets.py" <runs >judged
			assert_equal "$(<judged)" "18 heads"
		done
	done
	# query heads of a KV head keep different rows
	kv-score --method snapkv repeated.kv | kv-evict --rate 0.2 -o small.kv
	assert_equal "$(see small.kv 's.layers[1].positions[0] != s.layers[1].positions[1]')" True
	# the same rows in each query head of a KV head: what the KV head's rows say
	kv-score --method snapkv text.kv | kv-evict --rate 0.2 -o shared.kv
	kv-convert -q --per-query-head shared.kv -o x.kv
	kv-decode -m gqa --ids --ignore-eos -n 30 shared.kv >want
	kv-decode -m gqa --ids --ignore-eos -n 30 x.kv | cmp - want
	kv-info --positions x.kv >rows
	kv-evict --rows rows repeated.kv -o y.kv
	assert_equal "$(logical y.kv)" "$(logical x.kv)"
}

@test "retrieval, eviction while decoding, offloading, learned tokens and reuse take rows of query heads" {
	local how
	ln -sfn "$DEMO" demo
	kv-prefill -m demo -w 16 --mass --retrieval-head "$ROOT/examples/demo-model/retrieval-head" -o full.kv "$ROOT/examples/prompts/harbour.txt"
	kv-convert -q --per-query-head -o q.kv full.kv
	kv-decode -m demo --ids --ignore-eos -n 20 full.kv >want
	kv-quantize1b q.kv | kv-index --pages | kv-index --clusters -o indexed.kv
	for how in "fier budget=2000" "quest budget=2000" "clusterkv budget=2000" "specontext budget=2000 head=demo/retrieval-head"; do
		kv-decode -m demo --ids --ignore-eos -n 20 --retrieve "$how" indexed.kv | cmp - want
		how=${how/2000/60}
		kv-decode -q -m demo --ids --ignore-eos -n 20 --retrieve "$how" indexed.kv >some
		kv-decode -q -m demo --ids --ignore-eos -n 20 --retrieve "$how" --offload indexed.kv | cmp - some
	done
	for method in snapkv h2o; do
		kv-decode -q -m demo --ids --ignore-eos -n 9 --score $method --evict budget=60 -o y.kv q.kv >/dev/null
		kv-check y.kv
		assert_equal "$(see y.kv 'sorted({len(p) for l in s.layers for p in l.positions})')" 60
	done
	# gates are for KV heads: their query heads share a score
	ln -s "$ROOT/examples/demo-model/kvzap" zap
	kv-prefill -q -m demo --gate zap -o gated.kv "$ROOT/examples/prompts/harbour.txt"
	kv-convert -q --per-query-head -o gq.kv gated.kv
	for kv in gated gq; do kv-decode -q -m demo --gate zap --ids --ignore-eos -n 9 -o $kv.on.kv $kv.kv; done >/dev/null
	repeats gated.on.kv gq.on.kv
	for kv in full q; do kv-observe -q -m demo --lookahead "$ROOT/examples/demo-model/lookahead" -o $kv.seen.kv $kv.kv; done
	repeats full.seen.kv q.seen.kv
	for kv in full q; do kv-observe -q -m demo --repeat-context -o $kv.again.kv $kv.kv; done
	kv-convert -q --per-query-head -o want.kv full.again.kv
	near want.kv q.again.kv
	kv-score --method kvzip -o scored.kv q.again.kv
	echo "5e-6 q.again.kv scored.kv kvzip" >comparisons
	all_agree
	# the reused part has rows of query heads, and so has the prompt
	head -c 1500 "$ROOT/examples/prompts/harbour.txt" >prompt
	echo ' And so on.' >>prompt
	for kv in full q; do kv-prefill -m demo --products f32 --reuse $kv.kv -o $kv.reused.kv prompt; done
	kv-check q.reused.kv
	kv-convert -q --per-query-head -o want.kv full.reused.kv
	near want.kv q.reused.kv
	run -4 --separate-stderr kv-decode -m demo --ids full.kv q.kv
	assert_equal "$stderr" "kv-decode: q.kv has rows for each query head, and another snapshot for each KV head: use kv-convert --per-query-head on all or none"
	run -4 --separate-stderr kv-decode -m demo --ids q.kv full.kv
	assert_regex "$stderr" '^kv-decode: full.kv has rows for each KV head, and another snapshot for each query head'
}

@test "in every family of models rows of query heads give the same text" {
	for name in qwen2 qwen3 phi3 gemma2 gemma3 olmo2 mistral llama-biases; do
		in_sample 4 || continue
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name $name "$DEMO/tokenizer.json"
		kv-prefill -m $name --ids -w 4 -o x.kv 200.ids
		kv-convert -q --per-query-head -o y.kv x.kv
		for kv in x y; do kv-decode -q -m $name --ids --ignore-eos -n 20 -o $kv.on.kv $kv.kv >$kv.ids; done
		cmp x.ids y.ids
		repeats x.on.kv y.on.kv
	done
}

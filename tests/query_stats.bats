#!/usr/bin/env bats
# Query statistics (kv-snapshot(5), qSTa): what kv-prefill and kv-decode add up, and who passes it on

load helper

setup_file() {
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || return
	seq 5 204 >200.ids
	seq 205 244 >40.ids
	cat 200.ids 40.ids >240.ids
	kv-prefill -m "$DEMO" --ids --query-stats -o 200.kv 200.ids
	kv-prefill -m "$DEMO" --ids -o plain.kv 200.ids
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# stats FILE: the numbers of all layers
stats() {
	see "$1" '[(q.first, q.n, [list(x) for x in q.sums], [list(x) for x in q.moduli], [list(x) for x in q.products]) for q in (l.query_stats for l in s.layers)]' | sha256sum
}

counts() {
	see "$1" '[l.query_stats.n for l in s.layers]'
}

@test "the sums are those of the queries that --observe keeps, turned back, in every family" {
	local name
	kv-prefill -m "$DEMO" --ids --dtype f32 --observe 200 --query-stats -o x.kv 200.ids
	"$PYTHON" "$ORACLE/query_sums.py" 1e-6 x.kv
	for name in qwen3 granite phi3-partial smollm3 llama-yarn phi3-longrope olmo2 gemma3 mistral-window glm4 ministral3 olmo3-yarn cohere2 deepseek_v3; do
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name $name "$DEMO/tokenizer.json"
		kv-prefill -m $name --ids --dtype f32 --observe 56 --query-stats -o x.kv <(seq 5 60)
		"$PYTHON" "$ORACLE/query_sums.py" 3e-6 x.kv
	done
}

@test "threads, and tokens that continue a text, change no bit of the sums" {
	kv-prefill -m "$DEMO" --ids --query-stats -j 1 -o one.kv 200.ids
	cmp one.kv 200.kv
	for chunk in 1 3 199; do
		kv-prefill -m "$DEMO" --ids --query-stats --products f32 -c $chunk -o $chunk.kv <(head -n 20 200.ids)
		assert_equal "$(counts $chunk.kv)" '16 16 16 16'
	done
	kv-prefill -m "$DEMO" --ids --query-stats -c 200 -o whole.kv 240.ids
	kv-prefill -m "$DEMO" --ids --query-stats -r 200.kv -o later.kv 40.ids
	assert_equal "$(stats later.kv)" "$(stats whole.kv)"
	assert_equal "$(counts later.kv)" '236 236 236 236'
	kv-prefill -m "$DEMO" --ids --query-stats --reuse 200.kv -o reused.kv 240.ids
	assert_equal "$(stats reused.kv)" "$(stats whole.kv)"
}

@test "a text that ends before position 4 has sums of no query" {
	kv-prefill -m "$DEMO" --ids --query-stats -o x.kv <(seq 5 8)
	assert_equal "$(counts x.kv)" '0 0 0 0'
	kv-check -q x.kv
}

@test "generated tokens add their queries, in a batch those of their own text, and a stop text that was run in vain none" {
	kv-decode -m "$DEMO" -n 6 --query-stats -o a.kv 200.kv
	assert_equal "$(counts a.kv)" '202 202 202 202'
	kv-decode -m "$DEMO" --ids -n 6 200.kv >said
	kv-prefill -m "$DEMO" --ids --query-stats -c 1 -r 200.kv -o b.kv said
	assert_equal "$(stats a.kv)" "$(stats b.kv)"
	mkdir out
	kv-prefill -m "$DEMO" --ids --query-stats -o other.kv 40.ids
	kv-decode -m "$DEMO" -n 6 --query-stats --batch 2 -o out 200.kv other.kv
	assert_equal "$(stats out/200.kv)" "$(stats a.kv)"
	# a stop text within the second token: the token is taken back, and what stands before the stop text is run
	assert_equal "$(kv-decode -m "$DEMO" -n 6 --stop ill --query-stats -o stopped.kv 200.kv)" '; w'
	see stopped.kv 's.tokens[200:]' >ids
	kv-prefill -m "$DEMO" --ids --query-stats -c 1 -r 200.kv -o c.kv ids
	assert_equal "$(stats stopped.kv)" "$(stats c.kv)"
	assert_equal "$(counts stopped.kv)" '198 198 198 198'
}

@test "tokens that are run and not stored add nothing: a patch, probe tokens, learned tokens, the first run of gemfilter" {
	local want
	want=$(stats 200.kv)
	kv-prefill -m "$DEMO" --ids --query-stats -c 50 --products f32 -o chunks.kv 200.ids
	kv-prefill -m "$DEMO" --ids --query-stats -c 50 --products f32 --patch 8 --score "snapkv window=8" --evict rate=1 -o x.kv 200.ids
	assert_equal "$(stats x.kv)" "$(stats chunks.kv)"
	kv-observe -m "$DEMO" --ids-from 40.ids -o x.kv 200.kv
	assert_equal "$(stats x.kv)" "$want"
	kv-prefill -m "$DEMO" --ids --query-stats --score "lookahead='$DEMO/lookahead'" --evict rate=1 -o x.kv 200.ids
	assert_equal "$(stats x.kv)" "$want"
	kv-prefill -m "$DEMO" --ids --query-stats --select "gemfilter layer=1 rate=0.5" -o x.kv 200.ids
	assert_equal "$(counts x.kv)" '96 96 96 96'
	# only layers behind the selection run fewer tokens
	kv-prefill -m "$DEMO" --ids --query-stats --select "tsp layer=1 rate=0.5" -o x.kv 200.ids
	assert_equal "$(see x.kv '[l.query_stats.n == 196 for l in s.layers]')" 'True True False False'
}

@test "programs that drop, move, quantise or score rows pass the sums on" {
	local want
	want=$(stats 200.kv)
	kv-score --method recent 200.kv | kv-evict --budget 50 -o small.kv
	kv-score --method recent small.kv | kv-evict --positions compact --budget 40 -o moved.kv
	for file in small moved; do
		kv-check -q $file.kv
		assert_equal "$(stats $file.kv)" "$want"
	done
	passed_on stats moved.kv
	# keys were turned to positions 0 to 39: the next position is 40, and so are those that expected looks at
	kv-score --method expected -o scored.kv moved.kv
	"$PYTHON" "$ORACLE/scores.py" 5e-6 moved.kv scored.kv expected
}

@test "what kv-evict decides by expected is what one process decides, on the prompt, in chunks and while decoding" {
	kv-score --method expected 200.kv | kv-evict --budget 50 -o pipe.kv
	kv-prefill -m "$DEMO" --ids --query-stats --score expected --evict budget=50 -o fused.kv 200.ids
	same_values fused.kv pipe.kv s.logical_digest
	# a chunk at a time
	kv-prefill -m "$DEMO" --ids --query-stats -c 100 -o 1.kv <(head -n 100 200.ids)
	kv-score --method expected 1.kv | kv-evict --budget 50 -o 2.kv
	kv-prefill -m "$DEMO" --ids --query-stats -c 100 -r 2.kv -o 3.kv <(tail -n 100 200.ids)
	kv-score --method expected 3.kv | kv-evict --budget 50 -o pipe.kv
	kv-prefill -m "$DEMO" --ids --query-stats -c 100 --score expected --evict budget=50 -o fused.kv 200.ids
	same_values fused.kv pipe.kv s.logical_digest
	# a token at a time
	kv-decode -m "$DEMO" -n 3 --ids --score capkv --evict budget=40 --query-stats -o fused.kv 200.kv >ids
	cp 200.kv pipe.kv
	kv-score --method capkv pipe.kv | kv-evict --budget 40 -o now.kv
	for i in 1 2 3; do
		kv-prefill -m "$DEMO" --ids --query-stats -c 1 -r now.kv -o next.kv <(sed -n ${i}p ids)
		kv-score --method capkv next.kv | kv-evict --budget 40 -o now.kv
	done
	same_values fused.kv now.kv '[[list(p) for p in l.positions] for l in s.layers]'
	assert_equal "$(stats fused.kv)" "$(stats now.kv)"
	# after every second token
	kv-decode -m "$DEMO" -n 4 --ids --score triattention --evict budget=40 --every 2 -o fused.kv 200.kv >ids
	kv-score --method triattention 200.kv | kv-evict --budget 40 -o now.kv
	for lines in 1,2 3,4; do
		kv-prefill -m "$DEMO" --ids --query-stats -c 1 -r now.kv -o next.kv <(sed -n ${lines}p ids)
		kv-score --method triattention next.kv | kv-evict --budget 40 -o now.kv
	done
	same_values fused.kv now.kv '[[list(p) for p in l.positions] for l in s.layers]'
	# statistics of other texts need none of this one
	"$PYTHON" "$ORACLE/sine_filters.py" --query-stats plain.kv f.safetensors
	kv-score --method expected --query-stats f.safetensors plain.kv | kv-evict --budget 50 -o pipe.kv
	kv-prefill -m "$DEMO" --ids --score "expected query-stats=f.safetensors" --evict budget=50 -o fused.kv 200.ids
	same_values fused.kv pipe.kv s.logical_digest
	kv-decode -m "$DEMO" -n 3 --score "expected query-stats=f.safetensors" --evict budget=40 plain.kv
}

@test "train/query_stats.py: mean and covariance of the queries of some texts, which expected reads" {
	head -c 900 "$ROOT/examples/prompts/harbour.txt" >a.txt
	head -c 700 "$ROOT/examples/prompts/manual.txt" >b.txt
	"$PYTHON" "$ROOT/train/query_stats.py" -m "$DEMO" -o f.safetensors a.txt b.txt
	for f in a b; do kv-prefill -m "$DEMO" --observe 2000 -o $f.kv $f.txt 2>/dev/null; done
	"$PYTHON" - "$ORACLE" <<-'END'
		import json, sys
		import numpy as np
		sys.path.insert(0, sys.argv[1])
		import query_sums, kvread
		data = open("f.safetensors", "rb").read()
		n = int.from_bytes(data[:8], "little")
		head = json.loads(data[8:8 + n])
		def tensor(name):
		    first, last = head[name]["data_offsets"]
		    return np.frombuffer(data[8 + n + first:8 + n + last], "<f4").reshape(head[name]["shape"])
		mean, cov = tensor("query_mean"), tensor("query_cov")
		assert mean.shape == (4, 4, 32) and cov.shape == (4, 4, 32, 32)
		texts = [kvread.read(open(f + ".kv", "rb")) for f in "ab"]
		for l in range(4):
		    q = np.concatenate([query_sums.queries_before(t, l, 4) for t in texts], axis=1)
		    for h in range(4):
		        assert np.abs(mean[l, h] - q[h].mean(axis=0)).max() < 5e-3, (l, h)
		        pairs = np.hypot(q[h][:, :16], q[h][:, 16:]).mean(axis=0)
		        assert np.abs(tensor("query_modulus")[l, h] - pairs).max() < 5e-3, (l, h)
		        want = np.cov(q[h].T)
		        assert np.abs(cov[l, h] - want).max() < 5e-3 * np.abs(want).max(), (l, h)
	END
	kv-score --method expected --query-stats f.safetensors a.kv | kv-check -q
}

@test "a text whose first tokens were not counted is refused, with the way on" {
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --query-stats -r plain.kv -o no.kv 40.ids
	assert_equal "$stderr" "kv-prefill: plain.kv: layer 0 has no query statistics of its tokens: make the snapshot with kv-prefill --query-stats from its first token"
	run -1 --separate-stderr kv-decode -m "$DEMO" -n 1 --score expected --evict budget=40 plain.kv
	assert_equal "$stderr" "kv-decode: plain.kv: layer 0 has no query statistics of its tokens: make the snapshot with kv-prefill --query-stats from its first token"
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --query-stats --reuse plain.kv -o no.kv 240.ids
	assert_equal "$stderr" "kv-prefill: plain.kv: layer 0 has no query statistics of these tokens alone, and --query-stats cannot add them later"
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --query-stats --store . -o no.kv 200.ids
	assert_equal "$stderr" "kv-prefill: --query-stats, and methods that need them, do not go with --store: it keeps no query statistics; use --reuse, or run the whole prompt"
	run -2 --separate-stderr kv-decode -m "$DEMO" --query-stats 200.kv
	assert_equal "$stderr" "kv-decode: --query-stats: no snapshot is kept without -o FILE"
	[ ! -e no.kv ]
}

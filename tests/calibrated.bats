#!/usr/bin/env bats
# Methods that look at queries of the model, at a file made from them, or at keys before rotary embedding: expected, capkv, qfilter,
# triattention, leverage

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

@test "expected and capkv agree with their formulas for every option, frequencies of rotary embedding, statistics of other texts" {
	local name options
	mksnapshot -L 2 -H 8 -G 2 -E 32 -N 150,9,4,2 -T 200 --query-stats -o x.kv
	for options in "" "sink=0" "sink=70" "future=1" "future=3000" "no-covariance=1" "no-value-norm=1 epsilon=0.25" "epsilon=0.01"; do
		agrees 2e-6 expected $options
	done
	agrees 2e-6 capkv sink=0 future=40
	# the mean rotation takes the same time for any number of positions
	kv-score --method expected --future 4000000000 -o far.kv x.kv
	# a factor, half of the channels, layers that are not rotated, other frequencies in layers with a window
	for name in llama-yarn llama-llama3 phi3-longrope smollm3 gemma3; do
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name $name "$DEMO/tokenizer.json"
		kv-prefill -m $name --ids --dtype f32 --query-stats -o x.kv <(seq 5 60)
		agrees 5e-6 expected future=20
		agrees 5e-6 capkv
	done
	all_agree
}

@test "triattention agrees with its formula for every option, frequencies of rotary embedding, statistics of other texts" {
	local name options
	mksnapshot -L 2 -H 8 -G 2 -E 32 -N 150,9,4,2 -T 200 --query-stats -o x.kv
	for options in "" "reduce=mean" "reduce=sum z-score=1" "z-score=1" "since=70"; do
		agrees 2e-6 triattention $options
	done
	mksnapshot -L 2 -H 6 -G 3 -E 10 -N 90 -T 70000 --ragged --query-stats -d bf16 -o x.kv
	agrees 2e-6 triattention
	for name in llama-yarn llama-llama3 phi3-longrope phi3-partial smollm3 gemma3; do
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name $name "$DEMO/tokenizer.json"
		kv-prefill -m $name --ids --dtype f32 --query-stats -o x.kv <(seq 5 60)
		agrees 5e-6 triattention
		agrees 2e-5 triattention z-score=1
	done
	all_agree
	assert_equal "$(see 1.y.kv 's.layers[0].scores.label')" 'triattention reduce=max z-score=0 query-stats=text'
}

@test "triattention takes moduli of queries from a file that has them" {
	mksnapshot -L 3 -H 8 -G 2 -E 32 -N 150 --ragged -o x.kv
	"$PYTHON" "$ORACLE/sine_filters.py" --query-stats x.kv f.safetensors
	kv-score --method triattention --query-stats f.safetensors -o y.kv x.kv
	echo '2e-6 x.kv y.kv triattention query-stats=sine' >comparisons
	all_agree
	sed 's/query_modulus/query_module_/' f.safetensors >none.safetensors
	kv-score --method expected --query-stats none.safetensors -o z.kv x.kv
	run -3 --separate-stderr kv-score --method triattention --query-stats none.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: none.safetensors: there is no tensor query_modulus, which method triattention needs: make the file with train/query_stats.py"
	sed 's/\[3, 8, 16\]/[3, 16, 8]/' f.safetensors >shape.safetensors
	run -3 --separate-stderr kv-score --method triattention --query-stats shape.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: shape.safetensors: tensor query_modulus does not have the layers, query heads and half of the head width of query_mean"
	"$PYTHON" - <<-'END'
		import json
		data = bytearray(open("f.safetensors", "rb").read())
		n = int.from_bytes(data[:8], "little")
		at = 8 + n + json.loads(data[8:8 + n])["query_modulus"]["data_offsets"][0]
		data[at + 19] |= 0x80
		open("negative.safetensors", "wb").write(data)
	END
	run -3 --separate-stderr kv-score --method triattention --query-stats negative.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: negative.safetensors: tensor query_modulus: element 4 is negative"
	run -1 --separate-stderr kv-score --method triattention -o no.kv x.kv
	assert_equal "$stderr" "kv-score: x.kv: layer 0 has no query statistics, which method triattention needs: make the snapshot with kv-prefill --query-stats, or give those of other texts, --query-stats FILE"
	[ ! -e no.kv ]
}

@test "leverage agrees with its formula for every shape of heads, width of the projection, and rotary embedding, and is exact where that is as wide" {
	local name sketch
	for shape in "-L 3 -H 8 -G 2 -E 32 -N 150 --ragged -T 100000" "-H 8 -G 4 -E 24 -N 90,12,5,0 -T 200 -d f16" "-H 3 -G 3 -E 33 -N 1" \
	    "-H 16 -G 2 -E 64 -N 40 -T 3000000 -d bf16" "-L 3 -H 8 -G 2 -E 32 -N 150 --sees 60"; do
		mksnapshot $shape -o x.kv
		for sketch in 0 1 7 23; do agrees 2e-6 leverage sketch=$sketch; done
		agrees 2e-6 leverage sketch=7 seed=9223372036854775807
	done
	mksnapshot -L 2 -H 8 -G 2 -E 32 -N 150 -T 200 -o x.kv
	agrees 2e-6 leverage since=70
	for sketch in 31 32 400; do agrees 2e-6 leverage sketch=$sketch since=70; done
	kv-score --method knorm x.kv | kv-evict --budget 60 --positions compact -o moved.kv
	mv moved.kv x.kv
	agrees 2e-6 leverage
	# a factor, half of the channels, layers that are not rotated, other frequencies in layers with a window
	for name in llama-yarn phi3-partial phi3-longrope smollm3 gemma3; do
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name $name "$DEMO/tokenizer.json"
		kv-prefill -m $name --ids --dtype f32 -o x.kv <(seq 5 60)
		agrees 5e-6 leverage
		agrees 5e-6 leverage sketch=5
	done
	all_agree
}

@test "leverage has its projection in label and provenance, and refuses a seed that nothing reads" {
	mksnapshot -L 2 -H 8 -G 2 -E 32 -N 150 -o x.kv
	kv-score --method leverage -o exact.kv x.kv
	assert_equal "$(see exact.kv 's.layers[0].scores.label')" 'leverage sketch=0 seed=0'
	kv-score --method LeverageScore --sketch 7 --seed 5 -o y.kv x.kv
	assert_equal "$(see y.kv 's.layers[1].scores.label')" 'leverage sketch=7 seed=5'
	assert_equal "$(see y.kv '[s.provenance[-1]["options"][k] for k in ("method", "sketch", "seed")]')" 'leverage 7 5'
	kv-score --method leverage --sketch 32 -o wide.kv x.kv
	same_values wide.kv exact.kv '[l.scores.values for l in s.layers]'
	kv-score -j 1 --method leverage --sketch 7 --seed 5 -o one.kv x.kv
	same_values one.kv y.kv '[l.scores.values for l in s.layers]'
	run -2 --separate-stderr kv-score --method leverage --seed 5 -o no.kv x.kv
	assert_equal "$stderr" "kv-score: --seed: method leverage is exact without --sketch"
	run -2 --separate-stderr kv-score --method knorm --sketch 5 -o no.kv x.kv
	assert_equal "$stderr" "kv-score: --sketch: method knorm does not use it"
	run -2 --separate-stderr kv-score --method leverage --sketch -1 -o no.kv x.kv
	assert_regex "$stderr" "^kv-score: --sketch"
	[ ! -e no.kv ]
}

@test "expected takes the statistics of a file in place of the text's, which must be of the model and be numbers" {
	mksnapshot -L 3 -H 8 -G 2 -E 32 -N 150 --ragged -o x.kv
	"$PYTHON" "$ORACLE/sine_filters.py" --query-stats x.kv f.safetensors
	kv-score --method expected --query-stats f.safetensors -o y.kv x.kv
	kv-score --method capkv --query-stats f.safetensors -o z.kv x.kv
	printf '2e-6 x.kv %s query-stats=sine\n' 'y.kv expected' 'z.kv capkv' >comparisons
	all_agree
	assert_regex "$(see y.kv 's.layers[0].scores.label')" '^expected sink=4 future=512 epsilon=0 no-covariance=0 no-value-norm=0 query-stats=[0-9a-f]{16}$'
	run -1 --separate-stderr kv-score --method expected -o no.kv x.kv
	assert_equal "$stderr" "kv-score: x.kv: layer 0 has no query statistics, which method expected needs: make the snapshot with kv-prefill --query-stats, or give those of other texts, --query-stats FILE"
	mksnapshot -L 3 -H 8 -G 2 -E 32 -N 4 --query-stats -o short.kv
	run -1 --separate-stderr kv-score --method capkv -o no.kv short.kv
	assert_equal "$stderr" "kv-score: layer 0: the query statistics are of no query: the text has no token from position 4 on"
	"$PYTHON" "$ORACLE/sine_filters.py" --query-stats 3 4 32 other.safetensors
	run -3 --separate-stderr kv-score --method expected --query-stats other.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: other.safetensors: query statistics of 3 layers, 4 query heads and a head width of 32, and the model has 3, 8 and 32"
	sed 's/query_cov/query_cow/' f.safetensors >named.safetensors
	run -3 --separate-stderr kv-score --method expected --query-stats named.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: named.safetensors: there is no tensor query_cov"
	head -c -4 f.safetensors >nan.safetensors
	printf '\0\0\300\177' >>nan.safetensors
	run -3 --separate-stderr kv-score --method expected --query-stats nan.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: nan.safetensors: tensor query_cov: a number of layer 2, head 7 is not finite"
	head -c -4 f.safetensors >negative.safetensors
	printf '\0\0\200\277' >>negative.safetensors
	run -3 --separate-stderr kv-score --method expected --query-stats negative.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: negative.safetensors: tensor query_cov: the variance of channel 31 of layer 2, query head 7 is negative"
	run -2 --separate-stderr kv-score --method knorm --query-stats f.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: --query-stats: method knorm does not use it"
	run -2 --separate-stderr kv-score --method expected --epsilon=-1 -o no.kv x.kv
	assert_equal "$stderr" "kv-score: --epsilon -1: want 0 or more"
	run -2 --separate-stderr kv-score --method expected --future 0 -o no.kv x.kv
	assert_equal "$stderr" "kv-score: --future: want at least one position"
	[ ! -e no.kv ]
}

@test "qfilter is the projection of keys on filters of the model, which must fit it and be numbers" {
	local shape
	for shape in "-H 8 -G 2 -E 32 -N 150 --ragged" "-H 6 -G 3 -E 33 -N 68 -d f16" "-H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -d bf16"; do
		mksnapshot -L 3 $shape -o x.kv
		"$PYTHON" "$ORACLE/sine_filters.py" x.kv f.safetensors
		n=$((${n:-0} + 1))
		cp x.kv $n.x.kv
		kv-score --method qfilter --filters f.safetensors -o $n.y.kv x.kv
		echo "1e-6 $n.x.kv $n.y.kv qfilter" >>comparisons
	done
	all_agree
	mkdir folder
	cp f.safetensors folder/model.safetensors
	kv-score --method Q-Filters --filters folder -o folder.kv x.kv
	cmp folder.kv $n.y.kv
	assert_regex "$(see folder.kv 's.layers[0].scores.label')" '^qfilter filters=[0-9a-f]{16}$'
	run -2 --separate-stderr kv-score --method qfilter -o no.kv x.kv
	assert_equal "$stderr" "kv-score: method qfilter needs --filters FILE, which is made for the model by train/q_filters.py"
	run -2 --separate-stderr kv-score --method knorm --filters f.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: --filters: method knorm does not use it"
	"$PYTHON" "$ORACLE/sine_filters.py" 3 2 16 other.safetensors
	run -3 --separate-stderr kv-score --method qfilter --filters other.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: other.safetensors: filters of 3 layers, 2 KV heads and a head width of 16, and the model has 3, 4 and 16"
	sed 's/q_filters/k_filters/' f.safetensors >named.safetensors
	run -3 --separate-stderr kv-score --method qfilter --filters named.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: named.safetensors: there is no tensor q_filters"
	head -c -4 f.safetensors >nan.safetensors
	printf '\0\0\300\177' >>nan.safetensors
	run -3 --separate-stderr kv-score --method qfilter --filters nan.safetensors -o no.kv x.kv
	assert_equal "$stderr" "kv-score: nan.safetensors: tensor q_filters: a number of layer 2, head 3 is not finite"
	head -c -4 f.safetensors >short.safetensors
	run -3 --separate-stderr kv-score --method qfilter --filters short.safetensors -o no.kv x.kv
	assert_regex "$stderr" 'short.safetensors'
	run --separate-stderr kv-score --method qfilter --filters nowhere -o no.kv x.kv
	[ "$status" -ne 0 ]
	assert_regex "$stderr" 'nowhere'
	[ ! -e no.kv ]
}

@test "train/q_filters.py: the first singular vector of the queries of some texts, away from most of them, the mean of a KV head" {
	head -c 900 "$ROOT/examples/prompts/harbour.txt" >a.txt
	head -c 700 "$ROOT/examples/prompts/manual.txt" >b.txt
	"$PYTHON" "$ROOT/train/q_filters.py" -m "$DEMO" --queries 60 -o f.safetensors a.txt b.txt
	for f in a b; do kv-prefill -m "$DEMO" --no-template --observe 60 -o $f.kv $f.txt; done
	"$PYTHON" - "$FORMAT" <<-'END'
		import json, sys
		import numpy as np
		sys.path.insert(0, sys.argv[1])
		import kvread
		data = open("f.safetensors", "rb").read()
		n = int.from_bytes(data[:8], "little")
		assert json.loads(data[8:8 + n])["q_filters"]["shape"] == [4, 2, 32]
		got = np.frombuffer(data[8 + n:], "<f4").reshape(4, 2, 32)
		texts = [kvread.read(open(f + ".kv", "rb")) for f in "ab"]
		for l in range(4):
		    q = np.concatenate([kvread.widen(t.layers[l].queries.data, t.head["dtype"]).reshape(4, 60, 32) for t in texts], axis=1)
		    each = []
		    for head in q.astype("f8"):
		        u, s, v = np.linalg.svd(head, full_matrices=False)
		        each.append(-v[0] if (u[:, 0] > 0).sum() > 60 else v[0])
		    want = np.mean(np.reshape(each, (2, 2, 32)), axis=1)
		    assert np.abs(got[l] - want).max() < 1e-5, (l, got[l], want)
	END
	kv-score --method qfilter --filters f.safetensors a.kv | kv-check -q
}

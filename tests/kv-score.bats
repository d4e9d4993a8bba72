#!/usr/bin/env bats
# kv-score: every method against formulas in double precision, what it passes on, what it refuses

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

@test "every method agrees with its formula for 1, 4 and 8 query heads a KV head and widths 24, 33, 64" {
	for shape in "-H 3 -G 3 -E 24" "-H 8 -G 2 -E 33" "-H 16 -G 2 -E 64"; do
		for dtype in f32 f16 bf16; do
			mksnapshot $shape -d $dtype -N 150 -w 7 --mass --paid --query-stats -o x.kv
			agrees 2e-6 snapkv
			agrees 2e-6 tova
			agrees 1e-6 h2o
			agrees 1e-6 meanmass
			agrees 1e-6 kvzip
			agrees 1e-6 kvcompose
			agrees 1e-6 knorm
			agrees 1e-6 keydiff
			agrees 1e-6 lagkv lag=33
			agrees 1e-6 cur
			agrees 2e-6 expected
			agrees 2e-6 capkv
			agrees 2e-6 leverage
			agrees 2e-6 leverage sketch=9 seed=5
			agrees 1e-9 recent
			agrees 1e-9 random
			for method in kvzap fastkvzip; do
				mksnapshot $shape -d $dtype -N 150 --gate-scores "$method test" -o x.kv
				agrees 0 $method
			done
			mksnapshot $shape -d $dtype -N 150 --noncausal "chunk=256 first=0" -o x.kv
			agrees 1e-6 noncausal
			agrees 5e-6 compactor
			agrees 5e-6 compactor sink=0 recent=1 blend=2 sketch=9 seed=5
		done
	done
	all_agree
}

@test "in layers with a sliding window, and with softcapped logits, every method agrees with its formula" {
	for shape in "-H 3 -G 3 -E 24" "-H 8 -G 2 -E 33"; do
		for limit in "--sees 60" "--softcap 3" "--sees 100 --softcap 2"; do
			mksnapshot $shape $limit -L 3 -N 150 -w 7 --mass --paid -o x.kv
			for method in snapkv tova h2o meanmass kvzip kvcompose knorm keydiff lagkv cur; do agrees 2e-6 $method; done
			agrees 2e-6 snapkv window=3 over-queries=max kernel=7 pool=max
			mksnapshot $shape $limit -L 3 -N 150 -w 7 --own 4 -o x.kv
			for method in snapkv tova lookahead; do agrees 2e-6 $method; done
		done
	done
	all_agree
}

@test "ragged heads, a head of the window only, and an empty head are scored" {
	mksnapshot -H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -w 5 --mass --paid -o x.kv
	for method in snapkv tova h2o meanmass kvzip kvcompose knorm keydiff lagkv cur leverage recent random; do agrees 2e-6 $method; done
	mksnapshot -L 5 -H 8 -G 4 -E 16 -N 300 --ragged -w 9 --mass --paid --query-stats -o x.kv
	for method in snapkv tova h2o meanmass kvzip kvcompose knorm keydiff lagkv cur expected capkv leverage recent random; do agrees 2e-6 $method; done
	for method in kvzap fastkvzip; do
		mksnapshot -H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 --gate-scores "$method test" -o x.kv
		agrees 0 $method
		agrees 0 $method since=70
	done
	mksnapshot -H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 --noncausal "chunk=256 first=0" -o x.kv
	for method in noncausal compactor; do
		agrees 5e-6 $method
		agrees 5e-6 $method since=70
	done
	agrees 5e-6 compactor sink=150 recent=20
	mksnapshot -H 8 -G 4 -E 16 -N 200,0,0,3 --noncausal "chunk=256 first=0" -T 200 -o x.kv
	agrees 5e-6 compactor recent=197
	mksnapshot -H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 --gate-scores "fastkvzip test" -o x.kv
	agrees 0 fastkvzip sink=9 recent=0
	agrees 0 fastkvzip sink=0 recent=300
	mksnapshot -H 1 -G 1 -E 2 -N 300 -T 31999 --gate-scores "fastkvzip test" -o x.kv
	agrees 0 fastkvzip
	mksnapshot -H 1 -G 1 -E 2 -N 300 -T 32000 --gate-scores "fastkvzip test" -o x.kv
	agrees 0 fastkvzip
	all_agree
}

@test "snapkv agrees with its formula for every kernel, pooling, reduction, order and window" {
	mksnapshot -H 8 -G 2 -E 16 -N 80 --ragged -w 8 -o x.kv
	for pool in avg max; do
		for reduce in mean max sum; do
			for order in pool-first reduce-first; do
				agrees 2e-6 snapkv pool=$pool reduce=$reduce order=$order kernel=7
			done
		done
	done
	for kernel in 1 3 63 201; do agrees 2e-6 snapkv kernel=$kernel; done
	for window in 1 3 8; do agrees 2e-6 snapkv window=$window; done
	for window in 1 8; do agrees 2e-6 snapkv window=$window over-queries=max reduce=max kernel=7 pool=max; done
	all_agree
}

@test "snapkv --weight visible: the attention of each query counts by the number of rows before it" {
	for shape in "-H 8 -G 2 -E 16 -N 80 --ragged -w 8" "-H 3 -G 3 -E 24 -N 150 -w 7 -d bf16" "-H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -w 5" \
	    "-L 3 -H 8 -G 2 -E 33 -N 150 -w 7 --sees 60" "-H 6 -G 3 -E 24 -N 150 -w 9 --softcap 3" "-N 150 -w 4 --own 5" "-N 40 --own 9" \
	    "-L 3 -N 150 --sees 12 -w 4 --own 20" "-N 6 -w 6"; do
		mksnapshot $shape -o x.kv
		agrees 2e-6 snapkv weight=visible
		agrees 2e-6 snapkv weight=visible window=3 over-queries=max reduce=max kernel=7 pool=max
		agrees 2e-6 snapkv weight=visible kernel=1 since=70
	done
	all_agree
	mksnapshot -N 80 -w 8 -o x.kv
	kv-score --method snapkv x.kv -o a.kv
	kv-score --method snapkv --weight none x.kv | cmp a.kv -
	kv-score --method snapkv --weight visible x.kv -o b.kv
	assert_not_equal "$(see a.kv 's.layers[0].scores.values')" "$(see b.kv 's.layers[0].scores.values')"
	assert_equal "$(see b.kv 's.layers[0].scores.label')" \
	    "snapkv window=8 over-queries=sum kernel=5 pool=avg reduce=mean order=pool-first weight=visible"
	run -2 --separate-stderr kv-score --method snapkv --weight seen x.kv
	assert_regex "$stderr" "^kv-score: --weight: 'seen'"
	run -2 --separate-stderr kv-score --method lookahead --weight visible x.kv
	assert_equal "$stderr" "kv-score: --weight: method lookahead does not use it"
}

@test "cake agrees with its formula for every option, shape of heads, sliding windows and learned tokens, and so do entropy and variance" {
	for shape in "-H 8 -G 2 -E 16 -N 80 --ragged -w 8" "-H 3 -G 3 -E 24 -N 150 -w 7 -d bf16" "-H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -w 5" \
	    "-L 3 -H 8 -G 2 -E 33 -N 150 -w 7 --sees 60" "-H 6 -G 3 -E 24 -N 150 -w 9 --softcap 3" "-N 150 -w 4 --own 5" "-N 40 --own 9" "-N 6 -w 6"; do
		mksnapshot $shape -o x.kv
		agrees 2e-6 cake
		agrees 2e-6 cake window=3 reduce=max kernel=7 pool=max order=reduce-first
		agrees 2e-6 cake kernel=1 gamma=0 reduce=sum
		agrees 2e-6 cake window=1 gamma=3.5
		agrees 2e-6 cake kernel=1 since=70
	done
	all_agree
	kv-prefill -m "$DEMO" --dtype f32 --observe 32 -o x.kv "$ROOT/examples/prompts/harbour.txt"
	kv-score --method CAKE -o y.kv x.kv
	echo "5e-6 x.kv y.kv cake" >comparisons
	all_agree
	assert_regex "$(see y.kv 's.layers[1].scores.label')" \
	    '^cake window=32 kernel=5 pool=avg reduce=mean order=pool-first gamma=200 entropy=[0-9.]+ variance=0\.[0-9]+$'
	# a layer without rows in front of its window
	mksnapshot -N 6 -w 6 -o x.kv
	kv-score --method cake -o y.kv x.kv
	assert_regex "$(see y.kv 's.layers[0].scores.label')" ' entropy=0 variance=0$'
	run -2 --separate-stderr kv-score --method cake --gamma -1 x.kv
	assert_equal "$stderr" "kv-score: --gamma -1: want 0 or more"
	run -2 --separate-stderr kv-score --method snapkv --gamma 1 x.kv
	assert_equal "$stderr" "kv-score: --gamma: method snapkv does not use it"
}

@test "rkv agrees with its formula for every option, shape of heads, sliding windows and softcaps" {
	for shape in "-H 3 -G 3 -E 24" "-H 8 -G 2 -E 33 -d bf16" "-H 16 -G 2 -E 64 -d f16" "-H 8 -G 4 -E 16 -N 90,12,5,0 -T 200" "-L 3 -H 4 -G 2 --ragged"; do
		mksnapshot -N 150 -w 9 $shape -o x.kv
		agrees 5e-6 rkv
		agrees 5e-6 rkv window=1 kernel=1 lambda=1
		agrees 5e-6 rkv lambda=0
		agrees 5e-6 rkv window=9 kernel=3 lambda=0.5
	done
	agrees 5e-6 rkv since=70
	mksnapshot -H 4 -G 2 -E 16 -N 150 -w 9 --sees 40 --softcap 3 -o x.kv
	agrees 5e-6 rkv lambda=0.5
	all_agree
	# rows that are not chance: most keys are like others
	kv-prefill -m "$DEMO" --dtype f32 --observe 8 -o x.kv "$ROOT/examples/prompts/harbour.txt"
	kv-score --method r-kv -o y.kv x.kv
	echo "5e-6 x.kv y.kv rkv" >comparisons
	all_agree
	assert_equal "$(see y.kv 's.layers[0].scores.label')" 'rkv window=8 kernel=7 lambda=0.07'
	run -2 --separate-stderr kv-score --method rkv --lambda 1.1 -o no.kv x.kv
	assert_equal "$stderr" "kv-score: --lambda: 1.1 is not from 0 to 1"
	run -2 --separate-stderr kv-score --method rkv --window 9 -o no.kv x.kv
	[ ! -e no.kv ]
}

@test "simlayer agrees with its formula for every option, and kv-evict --threshold 1 keeps what scores 1" {
	local lazy
	for lazy in 0 0.3 0.5 0.9 1; do
		mksnapshot -L 4 -H 8 -G 2 -E 24 -N 150 -w 7 -o x.kv
		agrees 0 simlayer lazy=$lazy recent=20
		agrees 0 simlayer lazy=$lazy recent=60 window=5 sink=9
		agrees 0 simlayer lazy=$lazy
	done
	mksnapshot -H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -w 5 -o x.kv
	agrees 0 simlayer lazy=0 recent=3
	all_agree
	mksnapshot -L 2 -H 4 -G 2 -E 24 -N 150 -w 3 -o x.kv
	kv-score --method SimLayerKV --lazy 0 --recent 20 --window 2 x.kv | kv-evict --threshold 1 -o y.kv
	assert_equal "$(see y.kv '{tuple(p) for l in s.layers for p in l.positions} == {(0, 1, 2, 3) + tuple(range(132, 150))}')" True
	run -2 --separate-stderr kv-score --method simlayer --lazy 1.1 -o no.kv x.kv
	assert_equal "$stderr" "kv-score: --lazy: 1.1 is not from 0 to 1"
}

@test "lagkv and cur agree with their formulas for every option, types of rows and partitions that do not fit" {
	local shape norms lag
	for shape in "-H 8 -G 2 -E 32 -N 150 --ragged" "-H 6 -G 3 -E 64 -N 68 -d f16" "-H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -d bf16"; do
		mksnapshot $shape -o x.kv
		agrees 1e-6 lagkv lag=33 sink=0
		for lag in 1 5 32 74 75 1000; do
			agrees 1e-6 lagkv lag=$lag
			kv-score --method lagkv --lag $lag --cross -o cross$lag.kv x.kv
			cp x.kv of$lag.kv
			echo "2e-6 of$lag.kv cross$lag.kv lagkv lag=$lag cross=1" >>comparisons
		done
		for norms in product mean keys values; do
			agrees 1e-6 cur norms=$norms local=7
			agrees 1e-6 cur norms=$norms local=0 sink=9
		done
		all_agree
		rm comparisons
	done
	# quantised rows are the numbers that they stand for, keys and values each in its type
	mksnapshot -H 8 -G 2 -E 32 -N 150 --ragged -o full.kv
	kv-quantize --keys q4_0-hadamard --values int8 -o x.kv full.kv
	agrees 1e-6 lagkv lag=9
	agrees 1e-6 cur
	all_agree
}

@test "values that are read behind the keys leave every other section as it is, compressed or not, also in a pipe" {
	local how
	mksnapshot -H 8 -G 2 -E 32 -N 150 -w 5 --mass -o plain.kv
	kv-quantize1b plain.kv | kv-index --pages | kv-index --clusters -o all.kv
	for how in "" -z; do
		kv-score --method knorm $how all.kv | kv-score --method cur -o a.kv
		kv-score --method cur $how -o b.kv all.kv
		kv-score --method cur $how <all.kv >c.kv
		cmp b.kv c.kv
		kv-check -q a.kv b.kv
		assert_equal "$(logical a.kv)" "$(logical b.kv)"
		assert_equal "$(stat -c %s a.kv | head -c 3)" "$(stat -c %s b.kv | head -c 3)"
	done
	head -c 40000 all.kv >cut.kv
	run -3 --separate-stderr kv-score --method cur -o x.kv cut.kv
	[ ! -e x.kv ]
}

@test "from --since on rows are scored as in a snapshot without the others, which get +inf" {
	for shape in "-H 8 -G 2 -E 16 -N 150" "-H 8 -G 4 -E 16 -N 90,12,5,0 -T 200" "-H 6 -G 3 -E 24 -N 150 --ragged"; do
		mksnapshot $shape -d bf16 -w 5 --mass --paid -o x.kv
		for since in 1 70 146 300; do
			for method in snapkv tova h2o meanmass kvzip kvcompose knorm keydiff cur recent random; do
				agrees 2e-6 $method since=$since
			done
			agrees 2e-6 lagkv lag=9 since=$since
		done
	done
	all_agree
	see 2.y.kv 's.layers[0].scores.label' | grep -x 'tova keep-last=0 since=1'
	kv-score --method knorm --since 0 x.kv | cmp - <(kv-score --method knorm x.kv)
}

@test "own keys of tokens that are not stored count in the softmax, for 1, 4 and 8 query heads a KV head" {
	for shape in "-H 3 -G 3 -E 24" "-H 8 -G 2 -E 33" "-H 16 -G 2 -E 64 --ragged"; do
		for dtype in f32 bf16; do
			for queries in "--own 1" "--own 9" "-w 4 --own 5"; do
				mksnapshot $shape -d $dtype -N 150 $queries -o x.kv
				agrees 2e-6 snapkv
				agrees 2e-6 tova
				agrees 2e-6 snapkv over-queries=max reduce=max pool=max kernel=7
			done
			agrees 2e-6 snapkv window=2
			agrees 2e-6 snapkv window=7
		done
	done
	all_agree
}

@test "rows of the window are always kept, and of tokens that are not stored there are none" {
	mksnapshot -N 20 -w 3 --own 4 -o x.kv
	kv-score --method snapkv -o a.kv x.kv
	assert_equal "$(see a.kv '[sum(v == float("inf") for v in l.scores.values[0]) for l in s.layers]')" "3 3"
	kv-score --method snapkv --window 4 -o a.kv x.kv
	assert_equal "$(see a.kv '[sum(v == float("inf") for v in l.scores.values[0]) for l in s.layers]')" "0 0"
}

@test "without probe mass kvzip is refused and the message says how to get it" {
	mksnapshot --mass -w 4 -o x.kv
	run -1 --separate-stderr kv-score --method kvzip -o a.kv x.kv
	assert_equal "$stderr" "kv-score: x.kv: layer 0 has no probe mass, which method kvzip needs: \
add it with kv-observe --repeat-context or --accumulate"
	assert [ ! -e a.kv ]
}

@test "max pooling before and after the reduction are different scores, average pooling is the same" {
	mksnapshot -H 8 -G 2 -E 16 -N 80 -w 8 -o x.kv
	kv-score --method snapkv --pool max --order pool-first x.kv -o a.kv
	kv-score --method snapkv --pool max --order reduce-first x.kv -o b.kv
	assert_not_equal "$(scores a.kv 0 0)" "$(scores b.kv 0 0)"
	kv-score --method snapkv --order reduce-first x.kv -o scored.kv
	"$PYTHON" "$ORACLE/scores.py" 2e-6 x.kv scored.kv snapkv order=pool-first
}

@test "the label names the method and every option it used" {
	mksnapshot -w 4 -o x.kv
	kv-score --method snapkv x.kv -o a.kv
	assert_equal "$(see a.kv 's.layers[1].scores.label')" \
	    "snapkv window=4 over-queries=sum kernel=5 pool=avg reduce=mean order=pool-first weight=none"
	kv-score --method snapkv --kernel 7 --pool max --reduce sum --order reduce-first --window 2 x.kv -o a.kv
	assert_equal "$(see a.kv 's.layers[0].scores.label')" \
	    "snapkv window=2 over-queries=sum kernel=7 pool=max reduce=sum order=reduce-first weight=none"
	assert_equal "$(see a.kv 's.provenance[-1]["options"]')" "{'kernel': 7, 'method': 'snapkv', \
'order': 'reduce-first', 'over-queries': 'sum', 'pool': 'max', 'reduce': 'sum', 'weight': 'none', 'window': 2}"
	kv-score --method random --seed 9223372036854775807 x.kv -o a.kv
	assert_equal "$(see a.kv 's.layers[0].scores.label')" "random seed=9223372036854775807"
}

@test "knorm of keys written by hand is minus their length" {
	echo "3 4 0 0  0 0 5 12  1e-3 0 0 0  -8 0 15 0" >keys
	mksnapshot -L 1 -H 1 -G 1 -E 4 -N 4 --keys keys -o x.kv
	kv-score --method knorm x.kv -o a.kv
	assert_equal "$(scores a.kv 0 0)" "-5.0 -13.0 -0.0010000000474974513 -17.0"
}

@test "the norm of huge keys does not overflow" {
	echo "1e30 1e30 1e30 1e30" >keys
	mksnapshot -L 1 -H 1 -G 1 -E 4 -N 1 --keys keys -o x.kv
	kv-score --method knorm x.kv -o a.kv
	awk -v s="$(scores a.kv 0 0)" 'BEGIN { exit !(s < -1.99e30 && s > -2.01e30) }'
}

@test "tova uses the last query alone, and all heads get one list where they have the same rows" {
	mksnapshot -H 8 -G 2 -E 16 -N 80 -w 8 -o x.kv
	kv-score --method tova x.kv -o a.kv
	assert_equal "$(scores a.kv 1 0)" "$(scores a.kv 1 1)"
	assert_equal "$(see a.kv 's.layers[1].scores.label')" "tova keep-last=0"
	kv-evict --budget 20 a.kv -o b.kv
	assert_equal "$(positions b.kv 1 0)" "$(positions b.kv 1 1)"
	run -2 --separate-stderr kv-score --method tova --window 1 x.kv
	assert_regex "$stderr" 'does not use it'
}

@test "tova leaves the last token to its score, with --keep-last it stays" {
	mksnapshot -H 8 -G 4 -E 16 -N 90,12,5,0 -T 200 -w 5 -o x.kv
	kv-score --method tova --keep-last x.kv -o a.kv
	"$PYTHON" "$ORACLE/scores.py" 2e-6 x.kv a.kv tova keep-last=1
	kv-score --method tova x.kv -o b.kv
	see b.kv '[v[-1] for v in s.layers[0].scores.values[:3]]' | grep -v inf
	see a.kv '[v[-1] for v in s.layers[0].scores.values[:3]]' | grep -x 'inf inf inf'
}

@test "h2o takes sum, mean or maximum of the query heads" {
	mksnapshot -H 8 -G 2 -N 80 --ragged --mass -o x.kv
	for reduce in sum mean max; do agrees 1e-6 h2o reduce=$reduce; agrees 1e-6 meanmass reduce=$reduce; done
	all_agree
	kv-score --method h2o x.kv -o a.kv
	assert_equal "$(see a.kv 's.layers[0].scores.label')" "h2o reduce=sum"
}

@test "meanmass divides by the queries that the log tells of, and refuses rows that some tokens have not run in" {
	seq 3 2 240 >text.ids
	kv-prefill -m "$DEMO" --ids --mass -o full.kv text.ids
	kv-score --method meanmass full.kv -o a.kv
	"$PYTHON" "$ORACLE/scores.py" 1e-6 full.kv a.kv meanmass
	assert_equal "$(see a.kv 's.layers[0].scores.label')" "meanmass reduce=mean"
	kv-score --method knorm full.kv | kv-evict --budget 20 -o small.kv
	kv-score --method meanmass small.kv -o a.kv
	# GemFilter begins anew, with the tokens that it has selected
	kv-prefill -m "$DEMO" --ids --mass --select 'gemfilter layer=1 budget=50' text.ids | kv-score --method meanmass -o a.kv
	refused() {
		run -5 --separate-stderr kv-score --method meanmass "$2" -o none.kv
		assert_regex "$stderr" "kv-score: $2: layer $1: method meanmass divides by the number of queries that see a row, which is unknown"
		[ ! -e none.kv ]
	}
	kv-prefill -m "$DEMO" --ids --mass --select 'tsp layer=1' -o tsp.kv text.ids
	refused '2 has run 23 tokens for 119 positions.*' tsp.kv
	kv-evict --positions compact --budget 20 <(kv-score --method knorm full.kv) -o compact.kv
	refused '0 has run 119 tokens for 20 positions.*' compact.kv
	ln -sfn "$DEMO" demo
	for program in 'kv-prefill -m demo --ids -r compact.kv --score meanmass --evict budget=10 -o none.kv text.ids' \
	    'kv-decode -m demo -n 2 --score meanmass --evict budget=10 compact.kv'; do
		run -5 --separate-stderr $program
		assert_regex "$stderr" 'compact.kv: layer 0 has run 119 tokens for 20 positions'
	done
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --select 'tsp layer=1' --score meanmass --evict budget=10 -o none.kv text.ids
	assert_regex "$stderr" '--score meanmass does not go with --select: it divides by the number of queries that see a row'
	[ ! -e none.kv ]
}

@test "without attention mass h2o is refused and the message says how to get it" {
	mksnapshot -w 4 -o x.kv
	run -1 --separate-stderr kv-score --method h2o -o a.kv x.kv
	assert_equal "$stderr" "kv-score: x.kv: layer 0 has no attention mass, which method h2o needs: \
make the snapshot with kv-prefill --mass"
	assert [ ! -e a.kv ]
}

@test "keydiff of keys written by hand, one of them of length 0" {
	# directions (1 0) (0 1) none (1 0): the anchor is (2 1)/sqrt 5
	echo "3 0  0 0.25  0 0  1e30 0" >keys
	mksnapshot -L 1 -H 1 -G 1 -E 2 -N 4 --keys keys -o x.kv
	kv-score --method keydiff x.kv -o a.kv
	see a.kv 's.layers[0].scores.values[0] == [-0.8944271802902222, -0.4472135901451111, 0.0, -0.8944271802902222]' | grep -x True
}

@test "keydiff of keys that cancel out, or have no length, is 0" {
	for keys in "1 2  -1 -2  0 0" "0 0  0 0  0 0"; do
		echo "$keys" >keys
		mksnapshot -L 1 -H 1 -G 1 -E 2 -N 3 --keys keys -o x.kv
		kv-score --method keydiff x.kv -o a.kv
		see a.kv '[abs(v) for v in s.layers[0].scores.values[0]]' | grep -x '0.0 0.0 0.0'
	done
}

@test "everything but the scores is passed on as it was, and old scores are replaced" {
	mksnapshot -w 4 --mass --logits --scores random --extra xYZw -o x.kv
	kv-score --method recent x.kv -o a.kv
	assert_equal "$(logical a.kv)" "$(logical x.kv)"
	for what in '[l.queries.data for l in s.layers]' '[l.mass for l in s.layers]' '[l.others for l in s.layers]' s.others s.logits; do
		assert_equal "$(see a.kv "$what")" "$(see x.kv "$what")"
	done
	assert_equal "$(see a.kv '[l.scores.label for l in s.layers]')" "recent sink=4 recent sink=4"
	assert_equal "$(see a.kv '[p["tool"] for p in s.provenance]')" "mksnapshot kv-score"
}

@test "indexes are passed on as they were, plain and compressed, from a file and from a pipe" {
	for form in "" -planes -unknown; do
		cp "$ROOT/formats/vectors/passed/indexes$form.kv" x.kv
		"$PYTHON" "$ROOT/tests/format/checkindex.py" --says x.kv >want
		for options in "--method recent" "--method knorm -z"; do
			kv-score $options x.kv -o a.kv
			"$PYTHON" "$ROOT/tests/format/checkindex.py" --says a.kv | diff want -
			kv-score $options <x.kv | cmp a.kv -
		done
	done
}

@test "compressed sections are passed on without being compressed anew, from a file and from a pipe" {
	mksnapshot -N 30000 -w 4 -d bf16 -z -o z.kv
	blocks='[(x.type, x.layer, x.table_hash) for x in s.sections if x.type in ("POSN", "KEYS", "VALS", "oBSq")]'
	see z.kv 'any(b.codec for x in s.sections if x.type == "KEYS" for b in x.blocks)' | grep -qx True
	see z.kv "$blocks" >want
	for method in snapkv knorm recent; do
		kv-score --method $method -o a.kv z.kv
		see a.kv "$blocks" | diff want -
		kv-score --method $method <z.kv | cat >b.kv
		cmp a.kv b.kv
	done
}

@test "-z changes the stored bytes and not the logical digest" {
	mksnapshot -N 30000 -w 4 -d bf16 -o x.kv
	kv-score --method snapkv x.kv -o a.kv
	kv-score --method snapkv x.kv -z -o b.kv
	assert_equal "$(logical a.kv)" "$(logical b.kv)"
	assert_equal "$(see a.kv '[l.scores.values for l in s.layers]')" "$(see b.kv '[l.scores.values for l in s.layers]')"
	[ "$(stat -c %s b.kv)" -lt "$(stat -c %s a.kv)" ]
}

@test "file and pipe, one thread and three, run and rerun give the same bytes" {
	mksnapshot -H 8 -G 2 -N 500 --ragged -w 16 -d bf16 -o x.kv
	kv-score --method snapkv x.kv -o a.kv
	cat x.kv | kv-score --method snapkv - | cmp a.kv -
	kv-score --method snapkv -j 1 x.kv | cmp a.kv -
	kv-score --method snapkv -j 3 <x.kv | cmp a.kv -
	KV_THREADS=2 KV_DEVICE=cpu kv-score --method snapkv -o - x.kv | cmp a.kv -
}

@test "without observation queries snapkv and tova are refused and the message says how to get them" {
	mksnapshot -o x.kv
	for method in snapkv tova; do
		run -1 --separate-stderr kv-score --method $method -o a.kv x.kv
		assert_regex "$stderr" 'x.kv: layer 0 has no observation queries.*kv-prefill --observe'
	done
	assert [ ! -e a.kv ]
	kv-score --method knorm -o a.kv x.kv
}

@test "a window wider than what is stored is refused with both numbers" {
	mksnapshot -w 4 -o x.kv
	run -2 --separate-stderr kv-score --method snapkv --window 5 x.kv
	assert_regex "$stderr" '--window 5: layer 0 holds only 4 '
	run -2 kv-score --method snapkv --window 0 x.kv
}

@test "an option that the method does not use is refused and named" {
	mksnapshot -w 4 -o x.kv
	while read -r method option value; do
		run -2 --separate-stderr kv-score --method "$method" "--$option" "$value" x.kv
		assert_equal "$stderr" "kv-score: --$option: method $method does not use it"
	done <<-E
		knorm kernel 5
		knorm window 2
		recent pool avg
		recent seed 1
		random sink 4
		random reduce mean
		knorm order pool-first
		kvzip over-queries max
		kvzip kernel 5
		kvcompose over-queries max
		h2o window 2
		h2o kernel 5
		snapkv sink 4
		snapkv seed 1
	E
}

@test "wrong values are refused" {
	mksnapshot -w 4 -o x.kv
	for wrong in "--kernel 4" "--kernel 0" "--kernel x" "--pool min" "--reduce none" "--order both" "--over-queries mean" "--window 99999999999"; do
		run -2 --separate-stderr kv-score --method snapkv $wrong x.kv
		assert_regex "$stderr" "^kv-score: ${wrong% *}"
	done
	run -2 kv-score x.kv
	run -2 kv-score --method foo x.kv
	run -2 kv-score --method knorm x.kv x.kv
	run -2 kv-score --method snapkv --device tpu x.kv
	run -2 kv-score --method snapkv --device cuda:x x.kv
	run -2 kv-score --method knorm --nonsense x.kv
}

@test "a key that is not a number is named by layer, head and row" {
	{ seq 1 40; echo nan; seq 1 23; } >keys
	mksnapshot -L 1 -H 2 -G 2 -E 4 -N 8 --keys keys -w 2 -o x.kv
	for method in knorm keydiff; do
		run -1 --separate-stderr kv-score --method $method -o a.kv x.kv
		assert_regex "$stderr" 'layer 0 head 1 row [0-9]: the score is not a number'
	done
	assert [ ! -e a.kv ]
}

@test "a truncated or damaged input is refused with 3, and no output is left" {
	mksnapshot -N 300 -w 4 -o x.kv
	for method in snapkv recent; do
		for n in 100 3000 20000; do
			head -c $n x.kv >cut.kv
			run -3 --separate-stderr kv-score --method $method -o a.kv cut.kv
			assert_regex "$stderr" truncated
			run -3 --separate-stderr bash -c "kv-score --method $method <cut.kv >b.kv"
			run -3 kv-check b.kv
		done
		cp x.kv bad.kv
		printf X | dd of=bad.kv bs=1 seek=20000 conv=notrunc status=none
		run -3 --separate-stderr kv-score --method $method -o a.kv bad.kv
		assert_regex "$stderr" 'bad.kv: .*checksum'
	done
	assert [ -z "$(ls a.kv* 2>/dev/null)" ]
}

@test "names of papers and other programs are accepted, in upper and lower case; the snapshot has ours" {
	mksnapshot -H 8 -G 2 -N 60 -w 4 --mass --paid -o x.kv
	while read -r name canonical; do
		kv-score --method "$name" x.kv -o a.kv
		kv-score --method "$canonical" x.kv | cmp a.kv -
	done <<-'END'
		StreamingLLM recent
		streaming-llm recent
		l2norm knorm
		L2-Norm knorm
		L2Compress knorm
		KVzip kvzip
		KVCompose kvcompose
		ObservedAttention meanmass
		SnapKV snapkv
		TOVA tova
		H2O h2o
		KeyDiff keydiff
	END
	kv-prefill -m "$DEMO" --ids --score 'StreamingLLM sink=3' --evict 'budget=9 policy=AdaKV sink=1' -o a.kv <(seq 3 60)
	kv-prefill -m "$DEMO" --ids --score 'recent sink=3' --evict 'budget=9 policy=ada sink=1' <(seq 3 60) | cmp a.kv -
}

@test "--list names the methods with the options they use" {
	run -0 kv-score --list
	assert_line --regexp '^snapkv  .* \[window over-queries kernel pool reduce order weight\]$'
	assert_line --regexp '^tova  .* \[keep-last\]$'
	assert_line --regexp '^h2o  .* \[reduce\]$'
	assert_line --regexp '^recent  .* \(= streamingllm streaming-llm\) \[sink\]$'
	assert_line --regexp '^kvzip  .* \[reduce\]$'
	assert_line --regexp '^kvcompose  .* \[reduce\]$'
	assert_line --regexp '^knorm  '
	assert_line --regexp '^keydiff  '
	assert_line --regexp '^recent  .* \[sink\]$'
	assert_line --regexp '^random  .* \[seed\]$'
}

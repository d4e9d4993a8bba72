#!/usr/bin/env bats
# bats file_tags=slow
# kv-prefill --score --evict without --chunk: each layer is evicted before the next one fills, and the snapshot is that of a pipe

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	random_model mqa --layers 3 --hidden 40 --heads 5 --kv-heads 1 --head-dim 24 --ffn 56 --dtype f16 --seed 2
	random_model gqa --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype bf16 --seed 3 --std 0.1
	seq 5 700 >700.ids
	seq 5 95 >91.ids
}

# same A B: rows, keys, values, tokens, next position, logits, and the attention that the rows have received
same() {
	same_values "$1" "$2" s.logical_digest '[s.logits, [l.mass for l in s.layers]]'
}

# equal MODEL PROMPT "OPTIONS FOR THE PIPE'S kv-prefill" SCORE EVICT ["OPTIONS FOR BOTH"]: the same in one process and in a pipe
equal() {
	local model=$BATS_FILE_TMPDIR/$1 prompt=$BATS_FILE_TMPDIR/$2.ids method=${4%% *}
	[ "$1" = demo ] && model=$DEMO
	eval "more=($6)"
	# shellcheck disable=SC2046,SC2086,SC2154 # words
	kv-prefill -m "$model" --ids $3 "${more[@]}" "$prompt" | kv-score --method "$method" $(options "${4#"$method"}") |
	    kv-evict $(options "$5") -o pipe.kv
	# shellcheck disable=SC2086 # words
	kv-prefill -m "$model" --ids --score "$4" --evict "$5" "${more[@]}" -o fused.kv "$prompt"
	same fused.kv pipe.kv
}

@test "snapkv: the snapshot is that of a pipe, whatever the budget" {
	for model in demo mqa gqa; do
		equal $model 700 "-w 32" snapkv rate=0.1
		equal $model 91 "-w 5" "snapkv window=5 kernel=7 pool=max reduce=max order=reduce-first" "budget=20 sink=4"
	done
	equal gqa 700 "-w 16" "snapkv window=16" "rate=0.2 recent=40 sink=3"
	equal gqa 700 "-w 16" "snapkv window=16" "budget=100 policy=ada alpha=0.1 normalize"
	assert_not_equal "$(see fused.kv 's.layers[1].rows[0]')" "$(see fused.kv 's.layers[1].rows[1]')"
	equal gqa 91 "-w 8" "snapkv window=8 weight=visible" budget=30
	equal demo 700 "-w 8" "snapkv window=8" "rate=0.3 policy=pyramid"
	equal gqa 700 "-w 8" "snapkv window=8" "rate=0.3 skip-layers=1"
}

@test "tova, h2o, keydiff, knorm, lagkv, cur, leverage, recent, random: the snapshot is that of a pipe" {
	for model in demo gqa; do
		sampled equal $model 700 "-w 1" "tova keep-last" rate=0.2
		sampled equal $model 700 "--mass" "h2o reduce=max" "rate=0.3 recent=100"
		sampled equal $model 700 "--mass" meanmass "rate=0.3 sink=4"
		sampled equal $model 91 "" keydiff budget=30
		sampled equal $model 91 "" knorm rate=0.5
		sampled equal $model 700 "" "lagkv lag=60 cross" "rate=0.3 policy=ada"
		sampled equal $model 700 "" cur budget=70
		sampled equal $model 91 "" leverage budget=30
		sampled equal $model 700 "" "leverage sketch=5 seed=2" "rate=0.3 policy=ada"
		sampled equal $model 700 "" keydiff "rate=0.3 select=chunk=20"
		sampled equal $model 700 "" keydiff "threshold=-0.2 recent=64"
		sampled equal $model 700 "" recent "budget=100 sink=2"
		sampled equal $model 91 "" "random seed=7" "budget=9"
		sampled equal $model 700 "--query-stats" "expected no-covariance" "rate=0.3 policy=ada-kvpress"
		sampled equal $model 700 "-w 8" rkv rate=0.3
		sampled equal $model 700 "-w 8" "cake gamma=100 window=8" rate=0.3
		sampled equal $model 700 "--query-stats" "triattention z-score" rate=0.3
		sampled equal $model 700 "-w 3" "simlayer lazy=0.2 recent=50 window=2" "threshold=1"
	done
	ln -s "$DEMO/q-filters" .
	equal demo 91 "" "qfilter filters=q-filters" rate=0.3
}

@test "chunks of which spiky ones keep only some rows: fused, and in pieces of a prompt, as in a pipe" {
	local model=$BATS_FILE_TMPDIR/gqa prompt=$BATS_FILE_TMPDIR/700.ids select='chunk=10 spiky=4'
	kv-prefill -m "$model" --ids "$prompt" | kv-score --method keydiff | kv-evict --rate 0.3 --select "$select" -o pipe.kv
	kv-prefill -m "$model" --ids --score keydiff --evict "rate=0.3 select='$select'" -o fused.kv "$prompt"
	same fused.kv pipe.kv
	assert_equal "$(see fused.kv '[l.rows for l in s.layers][0]')" "208 208"
	head -n 350 "$prompt" | kv-prefill -m "$model" --ids - | kv-score --method keydiff | kv-evict --budget 100 --select "$select" -o first.kv
	tail -n +351 "$prompt" | kv-prefill -m "$model" --ids -r first.kv - | kv-score --method keydiff |
	    kv-evict --budget 100 --select "$select" -o pipe.kv
	kv-prefill -m "$model" --ids -c 350 --score keydiff --evict "budget=100 select='$select'" -o pieces.kv "$prompt"
	same pieces.kv pipe.kv
}

@test "more than one tile: the snapshot is that of a pipe with the default tile" {
	seq 5 1200 >"$BATS_FILE_TMPDIR/1200.ids"
	equal gqa 1200 "-w 32" snapkv budget=64
}

@test "tokens selected on the way, each layer evicted behind them: the snapshot is that of a pipe" {
	for select in "--select 'tsp layer=1'" "--select 'gemfilter layer=2 rate=0.3'" "--select 'pyramidinfer decay=0.5'"; do
		sampled equal demo 700 "-w 8" "snapkv window=8 kernel=7" "rate=0.1 of=tokens" "$select"
		sampled equal gqa 700 "-w 5" "snapkv window=5" "budget=40 sink=4 policy=ada alpha=0.2" "$select"
		sampled equal gqa 700 "-w 1" "tova keep-last" rate=0.2 "$select"
		sampled equal gqa 700 "--mass" "h2o reduce=max" "rate=0.3 recent=30" "$select"
		sampled equal gqa 700 "" keydiff "rate=0.4 skip-layers=1" "$select"
	done
	equal gqa 700 "-w 8" "snapkv window=8" "budget=60 policy=pyramid" "--select 'tsp layer=1'"
	equal mqa 700 "-w 6" "snapkv window=6" "rate=0.2 of=tokens" "--select 'tsp layer=0 window=40 rate=0.5'"
	# layers at both ends, and the window that selects when --score does not say which
	equal gqa 700 "-w 8" snapkv "rate=0.3 of=tokens" "--select 'tsp layer=3'"
	equal gqa 700 "-w 8" snapkv "rate=0.1 of=tokens" "--select 'tsp layer=0'"
}

@test "FastKV's Algorithm 1 in one process leaves what its pipe leaves, with a smaller peak" {
	equal gqa 700 "-w 8" "snapkv window=8 kernel=7" "rate=0.1 of=tokens" "--select 'tsp layer=1'"
	kv-footprint --json pipe.kv >pipe.json
	kv-footprint --json fused.kv >fused.json
	assert_equal "$(see fused.kv '[(e.kind, e.n, e.l0, e.l1) for e in s.events][-7:]')" \
	    "(1, 512, 1, 2) (1, 184, 1, 2) (3, 0, 1, 2) (1, 139, 2, 3) (3, 0, 2, 3) (1, 139, 3, 4) (3, 0, 3, 4)"
	kv-check fused.kv
	"$PYTHON" - <<-E
		import json
		pipe, fused = (json.load(open(name + '.json')) for name in ('pipe', 'fused'))
		assert pipe['kept'] == fused['kept'] and abs(pipe['footprint'] - fused['footprint']) < 1e-12, (pipe, fused)
		# layers 0 and 1 hold the prompt, the others a fifth of it: 2.4 of 4; in one process one of them, and three times a tenth at most
		assert abs(pipe['peak'] - 0.6) < 1e-3, pipe
		assert fused['peak'] <= (1 + 3 * 0.1) / 4, fused
	E
}

@test "tokens selected from a text that continues a snapshot, each layer evicted behind them" {
	head -n 300 "$BATS_FILE_TMPDIR/700.ids" | kv-prefill -m "$DEMO" --ids - | kv-score --method knorm |
	    kv-evict --rate 0.5 -o a.kv
	tail -n 200 "$BATS_FILE_TMPDIR/700.ids" >b.ids
	kv-prefill -m "$DEMO" -r a.kv --ids --select 'tsp layer=1' -w 8 b.ids -o b.kv
	kv-score --method snapkv b.kv | kv-evict --rate 0.2 -o pipe.kv
	kv-prefill -m "$DEMO" -r a.kv --ids --select 'tsp layer=1' --score snapkv --evict rate=0.2 -o fused.kv b.ids
	same fused.kv pipe.kv
	kv-score --method snapkv --since 300 b.kv | kv-evict --since 300 --rate 0.5 -o pipe.kv
	kv-prefill -m "$DEMO" -r a.kv --ids --select 'tsp layer=1' --once --score snapkv --evict rate=0.5 -o fused.kv b.ids
	same fused.kv pipe.kv
}

@test "a snapshot that is continued is scored as a whole, with --once only its new rows" {
	head -n 300 "$BATS_FILE_TMPDIR/700.ids" | kv-prefill -m "$DEMO" --ids - | kv-score --method knorm |
	    kv-evict --rate 0.5 -o a.kv
	tail -n 200 "$BATS_FILE_TMPDIR/700.ids" >b.ids
	kv-prefill -m "$DEMO" -r a.kv --ids -w 32 b.ids -o b.kv
	kv-score --method snapkv b.kv | kv-evict --rate 0.2 -o pipe.kv
	kv-prefill -m "$DEMO" -r a.kv --ids --score snapkv --evict rate=0.2 -o fused.kv b.ids
	same fused.kv pipe.kv
	kv-score --method snapkv --since 300 b.kv | kv-evict --since 300 --rate 0.2 -o pipe.kv
	kv-prefill -m "$DEMO" -r a.kv --ids --once --score snapkv --evict rate=0.2 -o fused.kv b.ids
	same fused.kv pipe.kv
	assert_equal "$(see fused.kv '[set(l.rows) for l in s.layers]')" "{190} {190} {190} {190}"
}

@test "the log has each layer's eviction, and kv-footprint less memory and a smaller peak than for the pipe, and the same footprint" {
	equal gqa 700 "-w 32" snapkv rate=0.1
	assert_equal "$(see fused.kv '[(e.kind, e.n, e.l0, e.l1) for e in s.events][-3:]')" \
	    "(1, 512, 3, 4) (1, 184, 3, 4) (3, 0, 3, 4)"
	kv-check fused.kv
	kv-footprint --json pipe.kv >pipe.json
	kv-footprint --json fused.kv >fused.json
	"$PYTHON" - <<-E
		import json
		pipe, fused = (json.load(open(name + '.json')) for name in ('pipe', 'fused'))
		assert pipe['footprint'] == pipe['memory'] == pipe['peak'] == fused['footprint'] == 1, (pipe, fused)
		# layer l of 4 fills while those below are small and those above are empty
		assert fused['peak'] <= (1 + 3 * 0.1) / 4, fused
		assert fused['memory'] <= (1 + 3 * 0.1) / 4, fused
		assert pipe['kept'] == fused['kept'], fused
	E
}

@test "--observe and --mass leave queries and attention in the snapshot, --score alone does not leave queries" {
	kv-prefill -m "$DEMO" --ids -w 8 --mass --score "snapkv window=4" --evict rate=0.1 -o a.kv "$BATS_FILE_TMPDIR/91.ids"
	kv-prefill -m "$DEMO" --ids -w 8 --mass "$BATS_FILE_TMPDIR/91.ids" | kv-score --method snapkv --window 4 |
	    kv-evict --rate 0.1 --keep-queries -o b.kv
	same a.kv b.kv
	same_values a.kv b.kv '[l.queries for l in s.layers]'
	# what is saved is less than what is looked at
	kv-prefill -m "$DEMO" --ids -w 4 --score "snapkv window=8" --evict rate=0.1 -o a.kv "$BATS_FILE_TMPDIR/91.ids"
	kv-prefill -m "$DEMO" --ids -w 4 "$BATS_FILE_TMPDIR/91.ids" -o b.kv
	same_values a.kv b.kv '[l.queries for l in s.layers]'
	kv-prefill -m "$DEMO" --ids --score snapkv --evict rate=0.4 -o a.kv "$BATS_FILE_TMPDIR/91.ids"
	assert_equal "$(see a.kv '[l.queries for l in s.layers] + [l.mass for l in s.layers]')" "None None None None None None None None"
}

@test "provenance names method, options and budget" {
	kv-prefill -m "$DEMO" --ids --score "snapkv kernel=7" --evict "rate=0.4 sink=2" --once -o a.kv "$BATS_FILE_TMPDIR/91.ids"
	assert_equal "$(see a.kv '[s.provenance[-1]["options"][k] for k in ("score", "evict", "evicting", "once")]')" \
	    "snapkv window=32 over-queries=sum kernel=7 pool=avg reduce=mean order=pool-first weight=none rate=0.4 sink=2 layers 1"
}

@test "one thread and three, file and pipe give the same bytes" {
	kv-prefill -m "$DEMO" --ids --score snapkv --evict rate=0.1 -o a.kv "$BATS_FILE_TMPDIR/700.ids"
	kv-prefill -m "$DEMO" --ids -j 1 --score snapkv --evict rate=0.1 "$BATS_FILE_TMPDIR/700.ids" | cmp a.kv -
	kv-prefill -m "$DEMO" --ids -j 3 --score snapkv --evict rate=0.1 <"$BATS_FILE_TMPDIR/700.ids" | cmp a.kv -
}

# refused STATUS REGEX OPTION...: with 91 tokens
refused() {
	local status=$1 regex=$2
	shift 2
	run "-$status" --separate-stderr kv-prefill -m "$DEMO" --ids "$@" -o x.kv "$BATS_FILE_TMPDIR/91.ids"
	assert_regex "$stderr" "$regex"
	assert [ ! -e x.kv ]
}

@test "what cannot be is refused with 2, and nothing is written" {
	refused 2 '--score: which rows go\? Give --evict' --score snapkv
	refused 2 '--once: which rows go' --once
	refused 2 '--evict: layer 0 cannot be evicted without scores' --evict rate=0.1
	refused 2 "there is no 'snap'" --score snap --evict rate=0.1
	refused 2 "there is no ''" --score "" --evict rate=0.1
	refused 2 "--score.*kernl" --score "snapkv kernl=7" --evict rate=0.1
	refused 2 "--kernel: method knorm does not use it" --score "knorm kernel=7" --evict rate=0.1
	refused 2 "kernel" --score "snapkv kernel=x" --evict rate=0.1
	refused 2 "--evict.*rat" --score snapkv --evict rat=0.1
	refused 2 "give --budget" --score snapkv --evict sink=4
	refused 2 "give --budget or --rate, and not both" --score snapkv --evict "rate=0.1 budget=7"
	refused 2 "a window of 92 queries is longer than the prompt, 91 tokens" --score "snapkv window=92" --evict rate=0.1
	refused 2 "always kept" --score snapkv --evict "budget=31 small=refuse"
	refused 2 "always kept" --score recent --evict "budget=10 sink=11 small=refuse"
	refused 2 "leave out --chunk" --score knorm --evict rate=0.5 --chunk 20 --select 'tsp layer=1'
	refused 2 "leave out --chunk" --score snapkv --evict rate=0.5 --chunk 20 --patch 8 --select 'gemfilter layer=1 rate=0.5'
	refused 2 "window of 9 queries: only the last 8 tokens" --score "snapkv window=9" --evict rate=0.5 --select 'tsp layer=1'
	refused 2 "window of 32 queries: only the last 19 tokens" --score snapkv --evict rate=0.5 --select 'pyramidinfer decay=0.5'
	refused 2 "--policy global" --score knorm --evict "rate=0.5 policy=global"
	refused 2 "--policy composite" --score knorm --evict "rate=0.5 policy=composite"
}

@test "attention mass cannot be added to a snapshot without it" {
	kv-prefill -m "$DEMO" --ids -o a.kv "$BATS_FILE_TMPDIR/91.ids"
	refused 1 "rows without attention mass" -r a.kv --score h2o --evict rate=0.1
}

@test "masks of streaming heads need no scores" {
	printf '1 0\n0 1\n0 0\n1 1\n' >mask
	kv-prefill -m "$DEMO" --ids "$BATS_FILE_TMPDIR/91.ids" | kv-evict --head-mask mask --sink 4 --recent 16 -o b.kv
	kv-prefill -m "$DEMO" --ids --evict "head-mask=mask sink=4 recent=16" -o a.kv "$BATS_FILE_TMPDIR/91.ids"
	same a.kv b.kv
	assert_equal "$(see a.kv '[l.rows for l in s.layers]')" "[91, 20] [20, 91] [20, 20] [91, 91]"
}

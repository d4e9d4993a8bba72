#!/usr/bin/env bats
# bats file_tags=slow
# kv-prefill --chunk --score --evict: all layers are evicted after each chunk, as a loop in the shell does it

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	random_model gqa --layers 3 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --seed 3 --std 0.1
	seq 5 354 >350.ids
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	prompt=$BATS_FILE_TMPDIR/350.ids
	gqa=$BATS_FILE_TMPDIR/gqa
}

# loop MODEL CHUNK ONCE "OPTIONS OF kv-prefill" SCORE EVICT: leaves loop.kv
loop() {
	local model=$1 chunk=$2 once=$3 method=${5%% *} at=0 piece from
	rm -f piece.* loop.kv
	split -l "$chunk" "$prompt" piece.
	for piece in piece.*; do
		from=()
		[ $at = 0 ] || from=(-r loop.kv)
		since=
		[ -z "$once" ] || since="--since $at"
		# shellcheck disable=SC2046,SC2086 # words
		kv-prefill -m "$model" --ids "${from[@]}" $4 "$piece" | kv-score --method "$method" $(options "${5#"$method"}") $since |
		    kv-evict -q --keep-queries $(options "$6") $since -o next.kv
		mv next.kv loop.kv
		at=$((at + chunk))
	done
}

# equal MODEL CHUNK ONCE "OPTIONS OF THE LOOP'S kv-prefill" SCORE EVICT: the same rows, bytes, logits, mass and events
equal() {
	loop "$@"
	kv-prefill -m "$1" --ids -c "$2" ${3:+--once} --score "$5" --evict "$6" -o chunked.kv "$prompt"
	same_values chunked.kv loop.kv s.logical_digest '[s.events, [l.mass for l in s.layers]]'
	kv-check chunked.kv
}

@test "the whole cache is judged after each chunk: a loop in the shell leaves the same snapshot and log" {
	for model in "$DEMO" "$gqa"; do
		sampled equal "$model" 100 "" "-w 32" snapkv budget=60
		sampled equal "$model" 64 "" "" keydiff "budget=50 sink=2"
		sampled equal "$model" 120 "" "-w 8" "snapkv window=8 weight=visible" budget=50
		sampled equal "$model" 120 "" "-w 8" "snapkv window=8 kernel=7" "rate=0.5 policy=ada"
		sampled equal "$model" 120 "" "" "lagkv lag=16" "rate=0.5"
		sampled equal "$model" 120 "" "" "leverage sketch=4" "rate=0.5"
		sampled equal "$model" 120 "" "-w 8" rkv budget=60
		sampled equal "$model" 120 "" "-w 8" "cake window=8" budget=60
		sampled equal "$model" 100 "" "-w 1" tova budget=60
		sampled equal "$model" 128 "" "--mass" h2o "budget=64 recent=32"
		sampled equal "$model" 128 "" "--mass" meanmass budget=64
	done
}

@test "only new rows are judged, with --once: a loop in the shell leaves the same snapshot and log" {
	for model in "$DEMO" "$gqa"; do
		sampled equal "$model" 100 once "-w 16" "snapkv window=16" rate=0.4
		sampled equal "$model" 100 once "" keydiff rate=0.3
		sampled equal "$model" 120 once "-w 8" "snapkv window=8 weight=visible" rate=0.3
		sampled equal "$model" 100 once "" cur rate=0.3
		sampled equal "$model" 90 once "-w 8" "snapkv window=8" "rate=0.4 policy=ada"
		sampled equal "$model" 100 once "--mass" meanmass rate=0.3
		sampled equal "$model" 100 once "--mass" "h2o reduce=max" rate=0.3
	done
	assert_equal "$(see chunked.kv '[sum(p < 100 for p in l.positions[0]) for l in s.layers]')" "30 30 30"
}

# patched MODEL CHUNK W ONCE SCORE EVICT: like loop, but kv-observe runs the prompt's last W tokens on top of all chunks but the last
patched() {
	local model=$1 chunk=$2 W=$3 once=$4 method=${5%% *} at=0 piece from last
	rm -f piece.* loop.kv
	split -l "$chunk" "$prompt" piece.
	tail -n "$W" "$prompt" >patch.ids
	last=$(printf '%s\n' piece.* | tail -n 1)
	for piece in piece.*; do
		from=()
		[ $at = 0 ] || from=(-r loop.kv)
		since=
		[ -z "$once" ] || since="--since $at"
		kv-prefill -m "$model" --ids "${from[@]}" -w "$W" -o next.kv "$piece"
		if [ "$piece" != "$last" ]; then
			kv-observe -m "$model" --ids-from patch.ids -o seen.kv next.kv
			mv seen.kv next.kv
		fi
		# shellcheck disable=SC2046,SC2086 # words
		kv-score --method "$method" $(options "${5#"$method"}") $since next.kv | kv-evict -q $(options "$6") $since -o loop.kv
		at=$((at + chunk))
	done
	kv-prefill -m "$model" --ids -c "$chunk" --patch "$W" ${once:+--once} --score "$5" --evict "$6" -o chunked.kv "$prompt"
	same_values chunked.kv loop.kv s.logical_digest s.events
}

@test "--patch: the end of the prompt judges each chunk, as kv-observe does in a loop of the shell" {
	for model in "$DEMO" "$gqa"; do
		sampled patched "$model" 100 16 once snapkv rate=0.4
		sampled patched "$model" 100 32 "" "snapkv window=8" budget=70
		sampled patched "$model" 90 8 once "snapkv kernel=7" "rate=0.4 policy=ada"
	done
	patched "$DEMO" 100 16 once tova rate=0.4
}

@test "with --patch exactly the rate of a chunk stays, and no local window" {
	kv-prefill -m "$DEMO" --ids -c 100 --once --patch 16 --score snapkv --evict rate=0.4 -o a.kv "$prompt"
	for l in 0 1 2 3; do
		for from in 0 100 200; do
			assert_equal "$(see a.kv "[sum($from <= p < $from + 100 for p in h) for h in s.layers[$l].positions]")" "40 40"
		done
		# the last chunk as without
		assert_equal "$(see a.kv "[sum(334 <= p for p in h) for h in s.layers[$l].positions]")" "16 16"
	done
	# what is kept at the end of the first chunks is not all of their window
	run see a.kv "all(p in h for l in s.layers for h in l.positions for p in range(84, 100))"
	assert_output False
}

@test "--patch that has no meaning is refused with 2, and nothing is written" {
	refused() {
		local regex=$1
		shift
		run -2 --separate-stderr kv-prefill -m "$DEMO" --ids "$@" -o x.kv "$prompt"
		assert_regex "$stderr" "$regex"
		assert [ ! -e x.kv ]
	}
	refused 'give --chunk' --patch 8 --score snapkv --evict rate=0.4
	refused 'does not look at queries' --patch 8 -c 100 --score keydiff --evict rate=0.4
	refused 'the method looks at 9 queries' --patch 8 -c 100 --score "snapkv window=9" --evict rate=0.4
	refused '--patch does not go with --mass' --patch 8 -c 100 --mass --score snapkv --evict rate=0.4
	refused 'which rows go' --patch 8 -c 100
}

@test "a last chunk shorter than the window is judged by queries that reach back" {
	equal "$DEMO" 112 "" "-w 32" snapkv budget=60
}

@test "a chunk longer than the tile runs in tiles of 512" {
	prompt=long.ids
	seq 5 1304 >long.ids
	equal "$DEMO" 700 "" "-w 32" snapkv budget=100
	equal "$DEMO" 700 once "" keydiff rate=0.1
}

@test "a snapshot that is continued is chunked from where it ends" {
	head -n 130 "$prompt" >a.ids
	tail -n 220 "$prompt" >b.ids
	kv-prefill -m "$DEMO" --ids -c 65 --once --score keydiff --evict rate=0.2 a.ids |
	    kv-prefill -m "$DEMO" -r - --ids -c 65 --once --score keydiff --evict rate=0.2 -o b.kv b.ids
	kv-prefill -m "$DEMO" --ids -c 65 --once --score keydiff --evict rate=0.2 -o c.kv "$prompt"
	assert_equal "$(logical b.kv) $(see b.kv s.events)" "$(logical c.kv) $(see c.kv s.events)"
}

@test "memory is bounded: KeyDiff's blocks never hold more than budget and chunk" {
	kv-prefill -m "$DEMO" --ids -c 32 --score keydiff --evict budget=64 -o a.kv "$prompt"
	assert_equal "$(see a.kv '[max(l.rows) for l in s.layers]')" "64 64 64 64"
	# 96 rows of 350 at most
	kv-footprint --json a.kv >a.json
	assert_equal "$(json a.json 'abs(o["peak"] - 96 / 350) < 1e-6')" True
}

@test "with --once each chunk leaves its share, and earlier survivors are not touched" {
	kv-prefill -m "$DEMO" --ids -c 100 --once --score "snapkv window=8" --evict rate=0.3 -o a.kv "$prompt"
	head -n 200 "$prompt" | kv-prefill -m "$DEMO" --ids -c 100 --once --score "snapkv window=8" --evict rate=0.3 -o b.kv
	for l in 0 1 2 3; do
		for g in 0 1; do
			positions=($(positions a.kv $l $g))
			assert_equal "${#positions[@]}" $((30 + 30 + 30 + 15))
			assert_equal "${positions[*]:0:60}" "$(positions b.kv $l $g)"
		done
	done
}

@test "--observe leaves the last queries in the snapshot" {
	kv-prefill -m "$DEMO" --ids -c 100 -w 8 --score "snapkv window=16" --evict budget=60 -o a.kv "$prompt"
	loop "$DEMO" 100 "" "-w 16" snapkv budget=60
	assert_equal "$(see a.kv '[l.queries.positions for l in s.layers]')" "$(see loop.kv '[l.queries.positions[-8:] for l in s.layers]')"
	kv-score --method snapkv --window 8 loop.kv -o want.kv
	kv-score --method snapkv a.kv -o got.kv
	same_values got.kv want.kv '[l.scores.values for l in s.layers]'
}

@test "a patch longer than the prompt is the prompt" {
	head -n 20 "$prompt" >20.ids
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids -c 8 --patch 64 --score "snapkv window=4" --evict rate=0.5 -o a.kv 20.ids
	assert_equal "$stderr" "kv-prefill: --patch 64: the prompt has 20 tokens: all of them are the patch"
	kv-prefill -m "$DEMO" --ids -c 8 --patch 20 --score "snapkv window=4" --evict rate=0.5 -o b.kv 20.ids
	same_values a.kv b.kv s.logical_digest
}

@test "a last chunk that is shorter than the window keeps what is in it" {
	# 350 = 3 * 116 + 2; 3 * 34 + 2 rows stay
	run -0 --separate-stderr kv-prefill -v -m "$DEMO" --ids -c 116 --once --patch 16 --score "snapkv kernel=5" --evict rate=0.3 -o x.kv "$prompt"
	assert_regex "$stderr" 'kv-prefill: the budget is smaller than what is always kept: KV heads keep up to 2 more'
	assert_equal "$(see x.kv '[l.rows for l in s.layers]')" "[104, 104] [104, 104] [104, 104] [104, 104]"
	assert_equal "$(positions x.kv 3 1 | cut -d ' ' -f 103-)" "348 349"
	# without -v nothing is said
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids -c 116 --once --patch 16 --score "snapkv kernel=5" --evict rate=0.3 -o x.kv "$prompt"
	assert_equal "$stderr" ""
	# every chunk has fewer rows than the window wants: a warning
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids -c 116 --score snapkv --evict rate=0.1 -o x.kv "$prompt"
	assert_regex "$stderr" 'kv-prefill: the budget is smaller than what is always kept: KV heads keep up to 2[0-9] more'
	assert_equal "$(see x.kv '{n for l in s.layers for n in l.rows}')" "{32}"
}

@test "a window longer than a chunk is refused with both numbers, and nothing is written" {
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids -c 31 --score snapkv --evict budget=60 -o x.kv "$prompt"
	assert_equal "$stderr" "kv-prefill: --score: a window of 32 queries is longer than a --chunk of 31"
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids -c 100 --once --score snapkv --evict "rate=0.3 small=refuse" -o x.kv "$prompt"
	assert_regex "$stderr" 'always kept'
	run -2 kv-prefill -m "$DEMO" --ids -c 0 --score snapkv --evict rate=0.3 -o x.kv "$prompt"
	assert [ ! -e x.kv ]
}

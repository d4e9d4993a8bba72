#!/usr/bin/env bats
# bats file_tags=slow
# kv-prefill --reuse: the rows that a snapshot has for the beginning of a prompt, with every other option; what is refused

load helper

# doc.ids 700 tokens; near.ids shares 600 of them and has 830; far.ids shares none. tile.kv ends where a cold prefill begins its
# second chunk: what is computed behind it is the same to the bit. Elsewhere products of other shapes may end in other digits.
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	small_talk 50 | kv-tokenize -m "$DEMO" >all.ids
	head -n 700 all.ids >doc.ids
	{ head -n 600 all.ids; tail -n 230 all.ids; } >near.ids
	seq 500 900 >far.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 -o doc.kv doc.ids
	kv-prefill -m "$DEMO" --ids -o small.kv doc.ids
	head -n 512 doc.ids | kv-prefill -m "$DEMO" --ids --dtype f32 -o tile.kv
	random_model gqa --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype bf16 --seed 3 --bias --llama3-rope
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/*.ids "$BATS_FILE_TMPDIR"/*.kv "$BATS_FILE_TMPDIR/gqa" .
}

# same_cache A B LIMIT: rows and tokens are equal, keys, values and queries within LIMIT (relative, L2)
same_cache() {
	errors_below "$3" "$PYTHON" "$ORACLE/same.py" "$1" "$2"
}

# reused FILE: how many rows the last program took from a snapshot
reused() {
	kv-info --json "$1" | json - 'o["provenance"][-1]["options"].get("reused", 0)'
}

# both SNAPSHOT PROMPT OPTION ...: cold.kv and warm.kv, without the snapshot and with it; the warm one is whole
both() {
	kv-prefill -q -m "$DEMO" --ids -o cold.kv "${@:3}" "$2"
	kv-prefill -q -m "$DEMO" --ids -o warm.kv --reuse "$1" "${@:3}" "$2"
	kv-check -q warm.kv
}

# refused STATUS TEXT OPTION ...: with this message, and nothing is written
refused() {
	run "-$1" --separate-stderr kv-prefill -m "$DEMO" --ids -o none.kv "${@:3}" near.ids
	[[ "$stderr" == *"$2"* ]] || { echo "$stderr"; return 1; }
	[ ! -e none.kv ]
}

@test "rows that another prompt shares are taken, and the snapshot is that of a cold prefill" {
	both doc.kv near.ids --dtype f32
	assert_equal "$(reused warm.kv)" "600"
	same_cache cold.kv warm.kv 1e-5
	both small.kv near.ids
	assert_equal "$(reused warm.kv)" "600"
	same_cache cold.kv warm.kv 5e-3
	assert_equal "$(kv-decode -m "$DEMO" cold.kv)" "$(kv-decode -m "$DEMO" warm.kv)"
}

@test "where the boundary is that of a chunk, the snapshot is the same to the bit, and so is its event log" {
	head -n 512 doc.ids | kv-prefill -m "$DEMO" --ids -o front.kv
	both front.kv near.ids
	assert_equal "$(reused warm.kv)" "512"
	same_but_provenance cold.kv warm.kv
	head -n 300 doc.ids | kv-prefill -m "$DEMO" --ids -o front.kv
	both front.kv near.ids -c 100
	assert_equal "$(reused warm.kv)" "300"
	same_but_provenance cold.kv warm.kv
}

@test "wherever the boundary is, keys, values and text are those of a cold prefill within rounding" {
	local k
	for k in 1 2 63 64 65 511 512 513 582 583 598 599; do
		in_sample 4 || continue
		head -n $k doc.ids | kv-prefill -m "$DEMO" --ids --dtype f32 -o front.kv
		head -n 600 doc.ids >prompt
		both front.kv prompt --dtype f32
		assert_equal "$(reused warm.kv)" "$k"
		same_cache cold.kv warm.kv 1e-5
		assert_equal "$(kv-decode -m "$DEMO" -n 20 --ids cold.kv)" "$(kv-decode -m "$DEMO" -n 20 --ids warm.kv)"
	done
	kv-prefill -m gqa --ids --dtype f32 -o front.kv doc.ids
	kv-prefill -m gqa --ids --dtype f32 -o cold.kv near.ids
	kv-prefill -m gqa --ids --dtype f32 --reuse front.kv -o warm.kv near.ids
	same_cache cold.kv warm.kv 2e-5
	assert_equal "$(reused warm.kv)" "600"
}

@test "the last token is always run, so that there are logits: of the same prompt, and of one that the snapshot goes beyond" {
	both small.kv doc.ids
	assert_equal "$(reused warm.kv)" "699"
	assert_equal "$(see warm.kv 'len(s.logits)')" "1536"
	assert_equal "$(kv-decode -m "$DEMO" -n 20 cold.kv)" "$(kv-decode -m "$DEMO" -n 20 warm.kv)"
	head -n 400 doc.ids >less.ids
	both small.kv less.ids
	assert_equal "$(reused warm.kv)" "399"
	assert_equal "$(kv-info --json warm.kv | json - 'o["next_position"]')" "400"
}

@test "nothing in common is no error: all of it runs, and a warning says so" {
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --reuse small.kv -o warm.kv far.ids
	assert_equal "$stderr" "kv-prefill: --reuse: small.kv shares no beginning with this prompt: all of it is run"
	kv-prefill -m "$DEMO" --ids far.ids | cmp - warm.kv
}

@test "a text is the whole prompt, with what the template puts in front, and is cut as without the snapshot" {
	small_talk 20 >one.txt
	{ head -n 15 one.txt; echo "Somebody else came by. <|pad|>"; } >two.txt
	for options in "" "--no-template" "--plain"; do
		# shellcheck disable=SC2086 # words
		kv-prefill -m "$DEMO" $options -o one.kv one.txt
		# shellcheck disable=SC2086 # words
		kv-prefill -m "$DEMO" $options -o cold.kv two.txt
		# shellcheck disable=SC2086 # words
		kv-prefill -m "$DEMO" $options --reuse one.kv -o warm.kv two.txt
		same_cache cold.kv warm.kv 5e-3
		[ "$(reused warm.kv)" -gt 200 ]
	done
}

@test "files, pipes, compression, threads and the same file for both give the same bytes" {
	kv-prefill -m "$DEMO" --ids --reuse small.kv -o want.kv near.ids
	kv-prefill -m "$DEMO" --ids doc.ids | kv-prefill -m "$DEMO" --ids --reuse - near.ids | cmp - want.kv
	kv-prefill -m "$DEMO" --ids --reuse small.kv -j 1 <near.ids | cmp - want.kv
	kv-prefill -z -m "$DEMO" --ids -o z.kv doc.ids
	kv-prefill -m "$DEMO" --ids --reuse z.kv near.ids | cmp - want.kv
	kv-prefill -z -m "$DEMO" --ids --reuse z.kv -o z.kv near.ids
	assert_equal "$(logical z.kv)" "$(logical want.kv)"
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --reuse - -o none.kv - <doc.kv
	assert_regex "$stderr" "cannot both come from standard input"
}

@test "--observe: the tokens of the window are run, wherever the snapshot ends" {
	local w
	for w in 1 16 229 231 400; do
		both doc.kv near.ids --dtype f32 --observe $w
		assert_equal "$(reused warm.kv)" "$((w > 230 ? 830 - w : 600))"
		same_values cold.kv warm.kv '[list(l.queries.positions) for l in s.layers]'
		same_cache cold.kv warm.kv 1e-5
	done
	both doc.kv near.ids --dtype f32 --observe 5000
	assert_equal "$(reused warm.kv)" "0"
	same_but_provenance cold.kv warm.kv
	# its own queries are of other tokens
	kv-prefill -m "$DEMO" --ids --dtype f32 --observe 100 -o with.kv doc.ids
	both with.kv near.ids --dtype f32
	assert_equal "$(see warm.kv '[l.queries for l in s.layers]')" "None None None None"
}

@test "--mass goes on where the snapshot ends within the prompt, and is refused where other tokens have added to it" {
	head -n 600 doc.ids | kv-prefill -m "$DEMO" --ids --dtype f32 --mass -o front.kv
	both front.kv near.ids --dtype f32 --mass
	assert_equal "$(reused warm.kv)" "600"
	errors_below 1e-5 "$PYTHON" "$ORACLE/llama.py" "$DEMO" warm.kv
	kv-prefill -m "$DEMO" --ids --dtype f32 --mass -o more.kv doc.ids
	refused 1 "more.kv: layer 0 has no attention mass of these tokens alone" --dtype f32 --mass --reuse more.kv
	refused 1 "doc.kv: layer 0 has no attention mass" --dtype f32 --mass --reuse doc.kv
	refused 1 "doc.kv: layer 0 has no attention mass" --dtype f32 --score h2o --evict rate=0.5 --reuse doc.kv
	both more.kv near.ids --dtype f32
	assert_equal "$(see warm.kv '[l.mass for l in s.layers]')" "None None None None"
}

@test "--score and --evict, layer by layer: the same rows are kept as from a cold prompt" {
	local score evict
	while IFS=/ read -r score evict options; do
		# shellcheck disable=SC2086 # words
		both tile.kv near.ids --dtype f32 --score "$score" --evict "$evict" $options
		assert_equal "$(reused warm.kv)" "512"
		assert_equal "$(logical cold.kv)" "$(logical warm.kv)"
		kv-footprint warm.kv >/dev/null
	done <<-'END'
		snapkv window=16 kernel=7/rate=0.1/
		snapkv window=230/budget=50 sink=4/--observe 8
		keydiff/rate=0.2/
		knorm/budget=40/--once
		recent/budget=100 sink=2/
		tova/rate=0.3/--observe 1
		random seed=3/rate=0.1/
	END
	head -n 512 doc.ids | kv-prefill -m "$DEMO" --ids --dtype f32 --mass -o front.kv
	both front.kv near.ids --dtype f32 --score h2o --evict "rate=0.3 recent=100"
	assert_equal "$(logical cold.kv)" "$(logical warm.kv)"
}

@test "learned tokens score behind reused rows as behind those that were run" {
	both tile.kv near.ids --dtype f32 --score "lookahead='$DEMO/lookahead'" --evict rate=0.1
	assert_equal "$(reused warm.kv)" "512"
	assert_equal "$(logical cold.kv)" "$(logical warm.kv)"
}

@test "a window of queries that is longer than what differs is run whole" {
	both doc.kv near.ids --dtype f32 --score "snapkv window=300" --evict rate=0.1
	assert_equal "$(reused warm.kv)" "530"
	same_cache cold.kv warm.kv 1e-5
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --score "snapkv window=900" --evict rate=0.1 --reuse small.kv -o none.kv near.ids
	assert_regex "$stderr" "a window of 900 queries is longer than the prompt, 830 tokens"
}

@test "scores, indexes, queries and logits of the snapshot stay behind" {
	head -n 512 doc.ids | kv-prefill -m "$DEMO" --ids --observe 8 | kv-score --method snapkv | kv-quantize1b | kv-index --pages --page 16 -o rich.kv
	both rich.kv near.ids
	assert_equal "$(reused warm.kv)" "512"
	same_but_provenance cold.kv warm.kv
}

# peak FILE: in percent
peak() {
	kv-footprint "$1" | awk 'NR == 2 { print $3 + 0 }'
}

@test "the event log tells of the reused rows as of those that ran, and of what was in memory" {
	both doc.kv near.ids --dtype f32
	assert_equal "$(kv-footprint cold.kv | sed 's/cold/warm/')" "$(kv-footprint warm.kv)"
	both doc.kv near.ids --dtype f32 --score knorm --evict rate=0.1
	# the rows that are reused stand in all layers at once
	less "$(peak cold.kv)" 40
	less 70 "$(peak warm.kv)"
}

@test "an answer that was generated is reused with its question" {
	kv-decode -m "$DEMO" --ids --ignore-eos -n 30 -o chat.kv small.kv >said.ids
	{ cat doc.ids said.ids; tail -n 50 all.ids; } >next.ids
	both chat.kv next.ids
	assert_equal "$(reused warm.kv)" "730"
	same_cache cold.kv warm.kv 1e-2
	assert_equal "$(kv-decode -m "$DEMO" -n 20 cold.kv)" "$(kv-decode -m "$DEMO" -n 20 warm.kv)"
}

@test "rows that were generated in the sight of few others are refused, and those before them are not" {
	kv-quantize1b -o bits.kv small.kv
	kv-decode -m "$DEMO" --ids --ignore-eos -n 30 --retrieve 'fier budget=64' -o chat.kv bits.kv >said.ids
	cat doc.ids said.ids far.ids >next.ids
	run -5 --separate-stderr kv-prefill -m "$DEMO" --ids --reuse chat.kv -o none.kv next.ids
	assert_equal "$stderr" "kv-prefill: chat.kv: rows from position 700 on were generated with --retrieve, each in the sight of few others: a prefill would not have them"
	[ ! -e none.kv ]
	both chat.kv near.ids
	assert_equal "$(reused warm.kv)" "600"
	same_cache cold.kv warm.kv 5e-3
	kv-decode -m "$DEMO" --ids --ignore-eos -n 30 -o chat.kv small.kv >said.ids
	strip pROv chat.kv silent.kv
	cat doc.ids said.ids far.ids >next.ids
	run -5 --separate-stderr kv-prefill -m "$DEMO" --ids --reuse silent.kv -o none.kv next.ids
	assert_regex "$stderr" "rows from position 700 on were generated, and nothing says how"
}

@test "a snapshot whose rows were dropped, numbered anew or selected is refused with the reason" {
	kv-score --method knorm small.kv | kv-evict --rate 0.5 -o evicted.kv
	refused 5 "evicted.kv: layer 0, KV head 0 has 350 rows of 700 tokens: a prompt that runs from its beginning has them all" --reuse evicted.kv
	kv-score --method recent small.kv | kv-evict --budget 650 --positions compact -o compact.kv
	refused 5 "compact.kv: it has 700 tokens, and the next one is at position 650: its rows were renumbered" --reuse compact.kv
	kv-prefill -m "$DEMO" --ids --select 'tsp layer=2' -o tsp.kv doc.ids
	refused 5 "tsp.kv: layer 3, KV head 0 has 140 rows of 700 tokens" --reuse tsp.kv
	kv-prefill -m "$DEMO" --ids --select 'gemfilter layer=2 budget=100' -o gem.kv doc.ids
	refused 5 "gem.kv: it has 700 tokens, and the next one is at position 100" --reuse gem.kv
	strip eVNt small.kv nolog.kv
	refused 1 "nolog.kv: it has no event log, so how its rows were made is unknown" --reuse nolog.kv
	kv-prefill -m "$DEMO" --ids -c 200 --score keydiff --evict budget=100 -o chunks.kv doc.ids
	refused 5 "chunks.kv: layer 0, KV head 0 has 100 rows of 700 tokens" --reuse chunks.kv
}

@test "a snapshot of another model, of another type or that is damaged is refused" {
	kv-prefill -m gqa --ids -o other.kv doc.ids
	refused 4 "other.kv is not of the model" --reuse other.kv
	refused 2 "doc.kv holds f32, and this prompt would be stored as bf16: see --dtype" --reuse doc.kv
	refused 2 "small.kv holds bf16, and this prompt would be stored as f16" --reuse small.kv --dtype f16
	head -c 100000 small.kv >cut.kv
	refused 3 "cut.kv" --reuse cut.kv
	refused 1 "nowhere.kv" --reuse nowhere.kv
}

@test "options whose rows no other prefill has are refused by name" {
	refused 2 "--reuse does not go with --select" --reuse small.kv --select 'tsp layer=2'
	refused 2 "--reuse does not go with --select" --reuse small.kv --select 'gemfilter layer=2 budget=100'
	refused 2 "--reuse does not go with --select" --reuse small.kv --select 'pyramidinfer decay=0.9'
	refused 2 "--reuse does not go with --chunk and --evict" --reuse small.kv -c 200 --score keydiff --evict budget=100
	refused 2 "--reuse does not go with --chunk and --evict" --reuse small.kv -c 200 --patch 32 --score snapkv --evict budget=100
	refused 2 "--reuse does not go with --resume" --reuse small.kv --resume small.kv
}

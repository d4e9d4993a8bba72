#!/usr/bin/env bats
# bats file_tags=slow
# kv-prefill --store: a folder with the rows of earlier prompts; what is found in it, many writers, kills, damage, limits

load helper

# all.ids has 1500 tokens; other.ids shares 900 of them and has 1180
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	small_talk 80 | kv-tokenize -m "$DEMO" | head -n 1500 >all.ids
	{ head -n 900 all.ids; seq 500 779; } >other.ids
	random_model gqa --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype bf16 --seed 3 --bias --llama3-rope
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/*.ids "$BATS_FILE_TMPDIR/gqa" .
}

# same_cache LIMIT A B [A B ...]: of each pair rows and tokens are equal, keys and values within LIMIT (relative, L2)
same_cache() {
	errors_below "$1" "$PYTHON" "$ORACLE/same.py" "${@:2}"
}

# stored OUTPUT PROMPT OPTION ...: prefills with the store S; prints how many rows came from it
stored() {
	kv-prefill -q -m "$DEMO" --ids --store S -o "$1" "${@:3}" "$2" || return
	kv-info --json "$1" | json - 'o["provenance"][-1]["options"].get("reused", 0)'
}

# blocks: how many files the store has; fails when there are others
blocks() {
	[ -z "$(find S -mindepth 1 ! -regex 'S/[0-9a-f]*\.kv')" ] || { find S >&2; return 1; }
	find S -name '*.kv' | wc -l
}

@test "a prompt is found again, and the beginning of another one, to the last whole block of 256 tokens" {
	kv-prefill -m "$DEMO" --ids -o cold.kv all.ids
	kv-prefill -m "$DEMO" --ids -o other.kv other.ids
	assert_equal "$(stored a.kv all.ids)" "0"
	cmp a.kv cold.kv
	assert_equal "$(blocks)" "5"
	assert_equal "$(stored b.kv all.ids)" "1280"
	assert_equal "$(stored c.kv other.ids)" "768"
	assert_equal "$(blocks)" "6"
	assert_equal "$(stored d.kv other.ids)" "1024"
	same_cache 5e-3 {cold,b}.kv {other,c}.kv {other,d}.kv
	for f in b:cold c:other d:other; do
		kv-check -q ${f%:*}.kv
		assert_equal "$(kv-decode -m "$DEMO" -n 20 ${f#*:}.kv)" "$(kv-decode -m "$DEMO" -n 20 ${f%:*}.kv)"
	done
	kv-check -q S/*.kv
}

@test "what ends where a chunk ends is the same to the bit" {
	head -n 1024 all.ids >first.ids
	stored x.kv first.ids
	kv-prefill -m "$DEMO" --ids -o cold.kv all.ids
	assert_equal "$(stored warm.kv all.ids)" "1024"
	same_but_provenance cold.kv warm.kv
}

@test "a prompt of whole blocks is run from its last block on, and a short one leaves nothing" {
	head -n 512 all.ids >two.ids
	head -n 200 all.ids >short.ids
	assert_equal "$(stored a.kv short.ids)" "0"
	assert_equal "$(blocks)" "0"
	stored a.kv two.ids
	assert_equal "$(blocks)" "2"
	assert_equal "$(stored b.kv two.ids)" "256"
	assert_equal "$(stored b.kv two.ids --observe 300)" "0"
	kv-prefill -m "$DEMO" --ids --observe 300 -o want.kv two.ids
	same_but_provenance b.kv want.kv
}

@test "model, type, and what the tokens before say are a part of the name; the tokenizer is not" {
	stored a.kv all.ids
	assert_equal "$(stored b.kv all.ids --dtype f32)" "0"
	assert_equal "$(blocks)" "10"
	kv-prefill -m gqa --ids --store S -v -o c.kv all.ids 2>&1 | grep "0 of 1500 tokens from S"
	assert_equal "$(blocks)" "15"
	{ echo 77; tail -n +2 all.ids; } >changed.ids
	assert_equal "$(stored d.kv changed.ids)" "0"
	cp -r "$DEMO" tok
	chmod -R u+w tok
	sed -i 's/<|pad|>/<|filler|>/' tok/tokenizer.json
	kv-prefill -m tok --ids --store S -v -o e.kv all.ids 2>&1 | grep "1280 of 1500 tokens from S"
	sed -i 's/"rope_theta": 500000.0/"rope_theta": 400000.0/' tok/config.json
	grep -q 400000 tok/config.json
	kv-prefill -m tok --ids --store S -v -o e.kv all.ids 2>&1 | grep "0 of 1500 tokens from S"
}

@test "rows that are dropped layer by layer are those of a cold prompt; the store is read, and a warning says that it gets nothing" {
	head -n 1024 all.ids >first.ids
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --store S --score knorm --evict rate=0.1 -o a.kv first.ids
	assert_equal "$stderr" "kv-prefill: --store: nothing is added to S: with --evict rows are dropped while the prompt runs; with --chunk and --once what is left is stored"
	assert_equal "$(blocks)" "0"
	stored a.kv first.ids
	for method in "snapkv window=16" "lookahead='$DEMO/lookahead'" keydiff; do
		kv-prefill -m "$DEMO" --ids --score "$method" --evict rate=0.1 -o cold.kv all.ids
		assert_equal "$(stored warm.kv all.ids --score "$method" --evict rate=0.1)" "1024"
		same_values cold.kv warm.kv s.logical_digest
	done
	assert_equal "$(blocks)" "4"
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --store S --score knorm --evict rate=0.1 -o a.kv first.ids
	assert_equal "$stderr" ""
}

@test "options that cannot go with a store are refused by name" {
	kv-prefill -m "$DEMO" --ids -o a.kv all.ids
	cp "$DEMO/duoattention.tsv" heads.tsv
	while IFS=/ read -r options text; do
		eval "more=($options)"
		# shellcheck disable=SC2154 # eval sets it
		run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --store S "${more[@]}" -o none.kv all.ids
		[[ "$stderr" == *"$text"* ]] || { echo "$stderr"; return 1; }
		[ ! -e none.kv ]
		[ ! -e S ]
	done <<-'END'
		--reuse a.kv/--reuse names the snapshot that --store would look for
		--resume a.kv/--store does not go with --resume
		--mass/do not go with --store
		--score h2o --evict rate=0.5/do not go with --store
		--select 'tsp layer=2'/--store does not go with --select
		--select 'gemfilter layer=2 budget=9'/--store does not go with --select
		--select 'pyramidinfer decay=0.9'/--store does not go with --select
		-c 128 --score knorm --evict budget=50/--store with --chunk and --evict needs --once: without it later chunks drop rows of earlier ones
		-c 128 --once --patch 8 --score 'snapkv window=8' --evict budget=50/--store does not go with --patch: the end of this prompt scores all chunks
		-c 100 --once --score knorm --evict budget=50/--chunk 100: with --store and --evict a block of 256 tokens holds whole chunks, or a chunk whole blocks
		-c 384 --once --score knorm --evict budget=50/--chunk 384: with --store and --evict a block of 256 tokens
		-c 128 --once --score h2o --evict budget=50/do not go with --store
		-c 128 --once --evict 'head-mask=heads.tsv sink=4 recent=32'/head-mask=...' and --once: rows are stored under a name, which does not have what is in a file
		-c 128 --once --reuse a.kv --score knorm --evict budget=50/--reuse names the snapshot
		--store-size 1x/'1x' is not a whole number
		--store-size 9999999T/'9999999T' is not a whole number
	END
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --store-size 1G -o none.kv all.ids
	assert_regex "$stderr" "--store-size: of what\? Give --store, too"
}

@test "with --chunk and --once what is left of each chunk is stored, under a name that has the method" {
	local how more
	for how in "-c 128 --score keydiff --evict budget=20" "-c 64 --score 'snapkv window=16' --evict 'rate=0.25 policy=ada sink=4'" \
	    "-c 512 --score knorm --evict 'rate=0.1 recent=9'" "-c 256 --score \"lookahead='$DEMO/lookahead'\" --evict budget=31" \
	    "-c 256 --score recent --evict 'budget=7 sink=3'" "-c 1024 --score 'random seed=3' --evict 'threshold=0.8'" \
	    "-c 32 --score 'lagkv lag=8' --evict budget=5 --keys int8 --values int8"; do
		eval "more=(--once $how)"
		rm -rf S
		kv-prefill -q -m "$DEMO" --ids "${more[@]}" -o cold.kv all.ids
		kv-prefill -q -m "$DEMO" --ids "${more[@]}" -o other.kv other.ids
		assert_equal "$(stored a.kv all.ids "${more[@]}")" 0
		cmp a.kv cold.kv
		case $how in                    # whole blocks of both prompts
		"-c 1024"*) set -- 1024 0 ;;
		"-c 512"*) set -- 1024 512 ;;
		*) set -- 1280 768 ;;
		esac
		assert_equal "$(stored b.kv all.ids "${more[@]}")" "$1"
		# to the byte, with its event log: only provenance says what was reused
		same_values b.kv cold.kv s.logical_digest s.events
		assert_equal "$(stored c.kv other.ids "${more[@]}")" "$2"
		same_values c.kv other.kv s.logical_digest s.events
		for f in S/*.kv; do kv-check -q "$f"; done
	done
}

@test "evicted blocks are found by the same method, options, chunk and model only, and not without --once" {
	local how
	set -- -c 128 --once --score keydiff --evict "budget=20"
	stored a.kv all.ids "$@"
	assert_equal "$(blocks)" 5
	while read -r how; do
		eval "more=($how)"
		[ "$(stored b.kv all.ids "${more[@]}")" = 0 ] || fail "found: $how"
	done <<-'END'
		-c 64 --once --score keydiff --evict budget=20
		-c 128 --once --score knorm --evict budget=20
		-c 128 --once --score keydiff --evict budget=21
		-c 128 --once --score keydiff --evict 'budget=20 sink=2'
		-c 128 --once --score keydiff --evict budget=20 --dtype f32
	END
	assert_equal "$(stored b.kv all.ids "$@")" 1280
	# and whole blocks, to the end of a tile, serve eviction layer by layer, as before
	head -n 1024 all.ids >first.ids
	assert_equal "$(stored b.kv first.ids)" 0
	assert_equal "$(stored b.kv all.ids --score keydiff --evict rate=0.1)" 1024
	kv-prefill -q -m "$DEMO" --ids --score keydiff --evict rate=0.1 -o cold.kv all.ids
	same_values b.kv cold.kv s.logical_digest
	# the bytes of an evicted block are those of its rows
	du -b S/*.kv | sort -n | awk 'NR == 1 { least = $1 } END { exit !(least < $1 / 4) }'
}

@test "an evicted block that is damaged, or has rows of other tokens, is removed and made again" {
	set -- -c 256 --once --score keydiff --evict "rate=0.1"
	kv-prefill -q -m "$DEMO" --ids "$@" -o cold.kv all.ids
	stored a.kv all.ids "$@"
	local second
	for f in S/*.kv; do
		[ "$(see "$f" "s.head['next_position']")" != 512 ] || second=$f
	done
	head -c 9000 "$second" >cut.kv
	cp cut.kv "$second"
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --store S "$@" -o b.kv all.ids
	assert_regex "$stderr" "removed; its tokens are run"
	same_values b.kv cold.kv s.logical_digest s.events
	# rows of other tokens: those of the block before, under the name of this one
	for f in S/*.kv; do
		[ "$(see "$f" "s.head['next_position']")" != 256 ] || cp "$f" first.kv
	done
	cp first.kv "$second"
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --store S "$@" -o b.kv all.ids
	assert_regex "$stderr" "its name does not match its content: removed; its tokens are run"
	same_values b.kv cold.kv s.logical_digest s.events
}

@test "models with sliding windows store no evicted blocks" {
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" mistral-window windows "$DEMO/tokenizer.json"
	run -5 --separate-stderr kv-prefill -m windows --ids --store S -c 64 --once --score knorm --evict budget=9 -o no.kv <(seq 5 90)
	assert_equal "$stderr" "kv-prefill: --store does not go with --chunk and --evict for this model: rows out of its sliding windows are gone when a block is written"
	[ ! -e no.kv ]
}

@test "a damaged file is passed over with a warning, removed, and written anew" {
	local file
	stored a.kv all.ids
	for file in S/*.kv; do
		[ "$(see "$file" 's.head["next_position"]')" != 512 ] || break
	done
	for how in flip cut empty other; do
		cp "$file" good
		case $how in
		flip) printf '\x01' | dd of="$file" bs=1 seek=200000 conv=notrunc status=none ;;
		cut) head -c 100000 good >"$file" ;;
		empty) : >"$file" ;;
		other) kv-prefill -m "$DEMO" --ids -q -o "$file" other.ids ;;
		esac
		run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --store S -o b.kv all.ids
		[[ "$stderr" == "kv-prefill: $file: "*": removed; its tokens are run" ]] || { echo "$how: $stderr"; return 1; }
		assert_equal "$(kv-info --json b.kv | json - 'o["provenance"][-1]["options"]["reused"]')" "256"
		same_cache 5e-3 a.kv b.kv
		cmp "$file" good || same_cache 5e-3 "$file" good
		assert_equal "$(stored b.kv all.ids)" "1280"
	done
}

@test "a limit removes what was used longest ago, and of one prompt its end first" {
	stored a.kv all.ids
	stored b.kv other.ids
	assert_equal "$(blocks)" "6"
	stored a.kv all.ids
	# a block has 270 KB: five remain, and other.ids has lost what only it has
	seq 700 1000 >new.ids
	stored c.kv new.ids --store-size 1700k
	assert_equal "$(blocks)" "6"
	assert_equal "$(stored b.kv other.ids --observe 1)" "768"
	rm -r S
	stored a.kv all.ids --store-size 1M
	assert_equal "$(blocks)" "3"
	assert_equal "$(stored b.kv all.ids --store-size 1M)" "768"
	[ "$(cat S/*.kv | wc -c)" -lt 1048576 ]
	# the limit of one who stores nothing
	stored a.kv new.ids --store-size 1
	assert_equal "$(blocks)" "0"
}

@test "a store that is full or cannot be written still answers, with a warning" {
	kv-prefill -m "$DEMO" --ids -o cold.kv all.ids
	bash -c '(ulimit -f 100; kv-prefill -q -m "$0" --ids --store S all.ids) 2>said | cat >a.kv; exit "${PIPESTATUS[0]}"' "$DEMO"
	grep -x "kv-prefill: S/[0-9a-f]*.kv: .*File too large: this prompt is not stored, or not to its end" said
	cmp a.kv cold.kv
	assert_equal "$(blocks)" "0"
	head -n 1024 all.ids >first.ids
	stored a.kv first.ids
	printf x >file
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --store file -o none.kv all.ids
	assert_equal "$stderr" "kv-prefill: file: Not a directory"
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --store no/where -o none.kv all.ids
	assert_equal "$stderr" "kv-prefill: no/where: No such file or directory"
	[ ! -e none.kv ]
}

@test "a store that is read only is read, and a warning says that nothing is added" {
	head -n 1024 all.ids >first.ids
	stored a.kv first.ids
	unshare -rm true 2>/dev/null || skip "no mount namespace here"
	run -0 --separate-stderr unshare -rm bash -c 'mount --bind S S && mount -o remount,bind,ro S &&
	    kv-prefill -m "$0" --ids --store S -o b.kv all.ids && kv-prefill -m "$0" --ids --store S/new -o c.kv all.ids' "$DEMO"
	assert_regex "$stderr" "Read-only file system: this prompt is not stored, or not to its end"
	assert_regex "$stderr" "S/new: Read-only file system: nothing is stored"
	assert_equal "$(kv-info --json b.kv | json - 'o["provenance"][-1]["options"]["reused"]')" "1024"
	assert_equal "$(blocks)" "4"
}

@test "the folder and its blocks are their owner's; where others may write in the folder, they may read the blocks" {
	local mode want
	umask 000
	stored a.kv all.ids
	assert_equal "$(stat -c %a S)" 700
	assert_equal "$(stat -c %a S/*.kv | sort -u)" 600
	while read -r mode want; do
		rm -r S
		mkdir -m "$mode" S
		stored a.kv all.ids
		assert_equal "$(stat -c %a S/*.kv | sort -u)" "$want"
	done <<-'END'
		755 600
		770 640
		1777 644
	END
}

@test "a FIFO, a link and a folder with the name of a block: not waited for, not followed, and a block takes their place" {
	local file files
	stored a.kv all.ids
	files=(S/*.kv)
	cp -r S good
	printf precious >target
	for how in fifo link dangling; do
		for file in "${files[@]}"; do
			rm "$file"
			case $how in
			fifo) mkfifo "$file" ;;
			link) ln -s ../target "$file" ;;
			dangling) ln -s ../nowhere "$file" ;;
			esac
		done
		run -0 --separate-stderr timeout 60 kv-prefill -m "$DEMO" --ids --store S -o b.kv all.ids
		assert_equal "$stderr" ''
		cmp a.kv b.kv
		assert_equal "$(cat target)" precious
		[ ! -e nowhere ]
		diff -r S good
	done
	rm "${files[0]}"
	mkdir "${files[0]}"
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --store S -o b.kv all.ids
	assert_regex "$stderr" "^kv-prefill: ${files[0]}: .*Is a directory: this prompt is not stored, or not to its end"
}

# alone COMMAND ...: as root without the right to remove what is others' in a sticky folder
alone() {
	setpriv --bounding-set -fowner,-dac_override,-dac_read_search "$@"
}

@test "blocks of others in a sticky folder: what cannot be removed is said" {
	[ "$(id -u)" = 0 ] && alone true 2>/dev/null || skip "only root can give files away"
	local file
	mkdir -m 1777 S
	stored a.kv all.ids
	chown -R 65534 S
	run -0 --separate-stderr alone kv-prefill -m "$DEMO" --ids --store S --store-size 600k -o b.kv all.ids
	assert_equal "$stderr" "kv-prefill: S: 5 blocks cannot be removed (Operation not permitted): it has $(cat S/*.kv | wc -c) bytes, which is more than 614400"
	for file in S/*.kv; do
		truncate -s 1000 "$file"
	done
	run -0 --separate-stderr alone kv-prefill -m "$DEMO" --ids --store S -o b.kv all.ids
	assert_regex "$stderr" "^kv-prefill: S/[0-9a-f]*.kv: .*: cannot be removed \(Operation not permitted\); its tokens are run$"
	assert_equal "$(blocks)" 5
}

@test "a store without room for one block says so, each time, and nothing stays" {
	for _ in 1 2; do
		run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --store S --store-size 1k -o a.kv all.ids
		assert_regex "$stderr" "^kv-prefill: S: a block has [0-9]+ bytes, and all of them may have 1024: nothing stays$"
		assert_equal "$(blocks)" 0
	done
	stored a.kv all.ids
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --store S --store-size 1k -o a.kv all.ids
	assert_regex "$stderr" "^kv-prefill: S: a block has [0-9]+ bytes, and all of them may have 1024: nothing stays$"
	assert_equal "$(blocks)" 0
}

@test "who reads the snapshot from a pipe need not wait for the store" {
	mkfifo S.fifo
	kv-prefill -m "$DEMO" --ids --store S -z all.ids | kv-decode -m "$DEMO" -n 5 >text
	[ -s text ]
	assert_equal "$(blocks)" "5"
	kv-check -q S/*.kv
	assert_equal "$(stored a.kv all.ids)" "1280"
}

@test "what killed writers have left is swept; what a living one writes, and files of others, are let alone" {
	local name=0123456789abcdef0123456789abcdef.kv
	mkdir S
	touch S/$name.tmp.77 S/$name.tmp.78.2 S/$name.tmp.79 S/notes S/$name.old S/0123.kv.tmp.5
	exec 9>S/$name.tmp.79
	flock 9
	stored a.kv all.ids --store-size 100k
	exec 9>&-
	assert_equal "$(ls S | tr '\n' ' ')" "0123.kv.tmp.5 $name.old $name.tmp.79 notes "
	stored a.kv all.ids --store-size 1
	assert_equal "$(ls S | tr '\n' ' ')" "0123.kv.tmp.5 $name.old notes "
}

# prompt N: one of many prompts that overlap
prompt() {
	head -n $((300 + $1 * 37 % 900)) all.ids
	seq $((500 + $1 % 7)) $((700 + $1 % 7))
}

@test "many writers of overlapping prompts, of which many are killed, leave nothing torn and no temporary file" {
	local i last=49 pids=() pairs=() wait
	not_under_sanitizers "it would take minutes"
	! all_cases || last=199
	for i in $(seq 0 $last); do
		prompt "$i" >p.$i
		kv-prefill -q -j 1 -m "$DEMO" --ids --store S --store-size 5M -o o.$i p.$i 2>>errors &
		pids+=($!)
		if [ $((i % 3)) -eq 0 ]; then
			wait=0.0$((RANDOM % 10))
			(sleep $wait; kill -9 ${pids[-1]}) 2>/dev/null &
		fi
		[ $((i % 8)) -ne 7 ] || wait "${pids[-5]}" || true
	done
	wait
	cat errors
	[ ! -s errors ]
	kv-check -q S/*.kv
	for i in $(seq 0 7 $last); do
		stored w.$i p.$i --store-size 5M >/dev/null
		kv-prefill -m "$DEMO" --ids -o cold.$i p.$i
		pairs+=("cold.$i" "w.$i")
	done
	same_cache 5e-3 "${pairs[@]}"
	# the last one has swept
	seq 100 500 >last.ids
	stored w.kv last.ids --store-size 5M >/dev/null
	blocks
	[ "$(cat S/*.kv | wc -c)" -le $((5 << 20)) ]
}

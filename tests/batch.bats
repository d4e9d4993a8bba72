#!/usr/bin/env bats
# bats file_tags=slow
# kv-decode with several snapshots: each answer, and each snapshot behind it, is that of a program of its own, to the byte

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	small_talk 25 >long.txt
	small_talk 3 >short.txt
	printf 'Nobody waited near the quiet' >talk.txt
	kv-prefill -m "$DEMO" -w 16 --mass -o long.kv long.txt
	kv-prefill -m "$DEMO" -w 40 --mass --dtype f32 -o short.kv short.txt
	kv-prefill -m "$DEMO" -w 8 --mass --dtype f16 -o talk.kv talk.txt
	kv-score --method snapkv long.kv | kv-evict --rate 0.4 --policy ada --keep-queries -o ragged.kv
	kv-score --method h2o short.kv | kv-evict --budget 30 --keep-queries -o few.kv
	random_model m --heads 8 --kv-heads 2 --head-dim 12 --hidden 96 --seed 5 --layers 3 --dtype f32 --std 0.2
	seq 3 2 240 >text.ids
	seq 900 -3 420 >more.ids
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# as_alone MODEL "SNAPSHOT ..." OPTION ...: two at once, and all, are as each is by itself
as_alone() {
	local model=$1 files=$2 f n
	shift 2
	rm -rf one all
	mkdir one all
	for f in $files; do
		kv-decode -q -m "$model" "$@" -o one/$f $f | as_line "$@" || return
	done >want
	for n in 2 64; do
		# shellcheck disable=SC2086 # words
		kv-decode -q -m "$model" "$@" --batch $n -o all $files >got || return
		cmp want got || return
		for f in $files; do
			cmp one/$f all/$f || return
			rm all/$f
		done
	done
}

# family NAME: its folder
family() {
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" "$1" "$1" "$DEMO/tokenizer.json"
}

FIVE="long.kv talk.kv ragged.kv short.kv few.kv"

@test "texts of any length, evicted or not, in caches of every type: greedy and sampled, to the byte" {
	local options
	while read -r options; do
		# shellcheck disable=SC2086 # words
		as_alone "$DEMO" "$FIVE" $options
	done <<-'END'
		-n 40
		-n 33 --ignore-eos --ids
		-n 40 --stop . --stop <|end_of_text|>
		-n 40 --ignore-eos -t 1.5 -s 7 --top-p 0.9
		-n 12 --ignore-eos -t 0.7 --min-p 0.05 -j 1
		-n 1 --ids
		-n 0
	END
	grep -q K742 <(kv-decode -m "$DEMO" --stop . long.kv short.kv)
	kv-decode -m "$DEMO" -n 12 long.kv short.kv talk.kv >text
	for f in long short talk; do
		kv-decode -m "$DEMO" -n 12 $f.kv | as_line
	done | cmp text -
}

@test "eviction while decoding, observation queries and attention mass are those of each snapshot" {
	local words
	while IFS=/ read -r words; do
		eval "as_alone '$DEMO' '$FIVE' -n 20 --ignore-eos $words"
	done <<-'END'
		--score recent --evict 'budget=24 sink=2'
		--score h2o --evict 'budget=30 recent=12'
		--score tova --evict budget=25
		--score 'snapkv window=8 kernel=3' --evict 'budget=20 policy=ada'
		--score knorm --evict 'rate=0.5 of=tokens' -t 2 -s 3
		--observe 12 --mass
		--observe 50
	END
	# a text grows up to its budget while others are cut at once
	as_alone "$DEMO" "$FIVE" -n 40 --ignore-eos --score knorm --evict budget=60
}

@test "each snapshot retrieves by its own index, which grows, and reports what it has read" {
	local f method
	for f in text more; do
		kv-prefill -m m --ids $f.ids | kv-quantize1b -g 16 | kv-index --pages --page 8 |
		    kv-index --clusters --cluster-count 9 --sink-rows 5 |
		    kv-index --low-rank --rank 10 --chunk-rows 4 --outliers 3 --local 2 -o $f.kv
	done
	kv-score --method knorm more.kv | kv-evict --policy ada --alpha 0 --rate 0.3 | kv-quantize1b -g 16 |
	    kv-index --pages --page 8 | kv-index --clusters --sink-rows 4 -o less.kv
	for method in fier quest quest-eval cluster; do
		as_alone m "text.kv more.kv less.kv" --ids --ignore-eos -n 9 --retrieve "$method budget=23 dense=1"
	done
	as_alone m "text.kv more.kv" --ids --ignore-eos -n 9 --retrieve 'shadow budget=23 dense=1'
	as_alone m "text.kv less.kv" --ids --ignore-eos -n 340 --retrieve 'cluster budget=23 dense=1'
	see one/text.kv '[l.clusters.ends for l in s.layers]' | grep -q 439
	args=(-m m --json --ignore-eos -n 9 --retrieve 'fier budget=23' --audit)
	kv-decode "${args[@]}" text.kv more.kv less.kv >lines
	for f in text more less; do
		kv-decode "${args[@]}" $f.kv | json - 'o["retrieval"], o["ids"]'
	done >want
	while read -r line; do
		json - 'o["retrieval"], o["ids"]' <<<"$line"
	done <lines | cmp want -
}

@test "sliding windows, softcaps and the other families go together as alone" {
	local name
	window_model some 60 sfss --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype f32 --seed 3 --std 0.1
	seq 5 95 >91.ids
	seq 5 204 >200.ids
	kv-prefill -m some --ids -w 5 --mass -o a.kv 91.ids
	kv-prefill -m some --ids -w 5 --mass --dtype bf16 -o b.kv 200.ids
	head -n 30 91.ids | kv-prefill -m some --ids -w 5 --mass -o c.kv -
	as_alone some "a.kv b.kv c.kv" --ids --ignore-eos -n 80
	as_alone some "a.kv b.kv c.kv" --ids --ignore-eos -n 40 --score tova --evict budget=20 -w 3
	as_alone some "a.kv b.kv c.kv" --ids --ignore-eos -n 30 -t 1 --mass
	for name in gemma2 gemma3 qwen3 phi3 granite olmo2 llama-biases; do
		family $name
		kv-prefill -m $name --ids -o a.kv <(head -n 50 200.ids)
		kv-prefill -m $name --ids -o b.kv <(tail -n 21 200.ids)
		as_alone $name "a.kv b.kv" --ids --ignore-eos -n 20
	done
}

@test "with products in bf16 any number of them is as each alone" {
	grep -qw avx512_bf16 /proc/cpuinfo || skip "this processor has no AVX512-BF16"
	random_model b --layers 3 --hidden 96 --heads 6 --kv-heads 2 --head-dim 16 --ffn 200 --dtype bf16 --seed 5
	local i files=""
	for i in $(seq 20); do
		seq "$i" $((i + 40)) | kv-prefill -m b --ids --products bf16 -o $i.kv -
		files="$files $i.kv"
	done
	as_alone b "$files" --device cpu --ids --ignore-eos -n 9 --products bf16 --batch 20
}

@test "a snapshot is opened when its turn comes, and its place is taken by the next one" {
	local files="" i
	for i in $(seq 60); do
		ln -s talk.kv $i.kv
		files="$files $i.kv"
	done
	# shellcheck disable=SC2086 # words
	(ulimit -n 30 && kv-decode -m "$DEMO" -n 3 --batch 8 $files) >got
	kv-decode -m "$DEMO" -n 3 talk.kv >one
	for i in $(seq 60); do
		cat one
		echo
	done | cmp got -
	# the first ends with its fourth token, and the third runs with the second from then on
	kv-decode -m "$DEMO" -n 12 --ids --ignore-eos --stop 742 long.kv >ids
	[ "$(wc -l <ids)" -lt 6 ]
	kv-decode -m "$DEMO" --device cpu --ignore-eos --stop 742 -n 12 --batch 2 --report run.jsonl long.kv talk.kv long.kv >/dev/null
	assert_equal "$(json run.jsonl 'o["steps"], o["tokens_run"]')" "(11, $((11 + 2 * ($(wc -l <ids) - 1))))"
}

@test "answers come in the order of the names, whichever ends first, as lines of JSON, too" {
	kv-decode -m "$DEMO" -n 60 --json long.kv talk.kv - ragged.kv <short.kv >lines
	assert_equal "$("$PYTHON" -c 'import json; print(*[json.loads(l)["snapshot"] for l in open("lines")])')" \
	    "long.kv talk.kv stdin ragged.kv"
	for f in long talk short ragged; do
		kv-decode -m "$DEMO" -n 60 --json $f.kv | json - 'o["text"], o["ids"], o["tokens"], o["stop"], o["stop_text"]'
	done >want
	while read -r line; do
		json - 'o["text"], o["ids"], o["tokens"], o["stop"], o["stop_text"]' <<<"$line"
	done <lines | cmp want -
}

@test "one that fails is named and has an empty line, the others are answered, and the status is that of the first" {
	head -c 20000 long.kv >cut.kv
	strip LGTS long.kv silent.kv
	kv-prefill -m m --ids -o foreign.kv text.ids
	mkdir out
	while IFS=: read -r bad status said; do
		run -"$status" --separate-stderr kv-decode -m "$DEMO" -n 5 -o out short.kv $bad talk.kv
		assert_equal "$output" "$(kv-decode -m "$DEMO" -n 5 short.kv | as_line; echo; kv-decode -m "$DEMO" -n 5 talk.kv | as_line)"
		[[ "$stderr" == "kv-decode: $bad"*"$said"* ]] || { echo "$stderr"; return 1; }
		assert_equal "$(ls out)" "$(printf 'short.kv\ntalk.kv')"
		rm out/*
	done <<-'END'
		nowhere.kv:1:No such file
		cut.kv:3:truncated
		silent.kv:1:no logits
		foreign.kv:4:not of the model
	END
}

@test "the first failure in the order of the names gives the status, also where a later one is found before" {
	head -c 20000 long.kv >cut.kv
	kv-prefill -m m --ids -o foreign.kv text.ids
	run -4 --separate-stderr kv-decode -m "$DEMO" -n 5 --json foreign.kv cut.kv talk.kv
	assert_equal "$(sed -n 1p <<<"$output" | json - 'sorted(o), o["snapshot"], o["status"]')" "(['error', 'snapshot', 'status'], 'foreign.kv', 4)"
	assert_equal "$(sed -n 2p <<<"$output" | json - 'o["status"], "cut.kv" in o["error"]')" "(3, True)"
	assert_equal "$(sed -n 3p <<<"$output" | json - 'o["tokens"]')" 5
	# no snapshot, no model: it is not even looked for
	run -1 --separate-stderr kv-decode -m nowhere a.kv b.kv
	assert_equal "${#stderr_lines[@]}" 2
	refute [ -n "$(echo "$stderr" | grep nowhere)" ]
}

@test "a text that comes to the end of its model ends alone" {
	family llama-dynamic
	local most
	most=$(json llama-dynamic/config.json 'o["max_position_embeddings"]')
	seq 8 $((most + 3)) >near.ids
	kv-prefill -m llama-dynamic --ids -o near.kv near.ids
	kv-prefill -m llama-dynamic --ids -o far.kv <(head -n 9 near.ids)
	run -5 --separate-stderr kv-decode -m llama-dynamic --ids --ignore-eos -n 20 near.kv far.kv
	assert_regex "$stderr" "position"
	kv-decode -m llama-dynamic --ids --ignore-eos -n 20 far.kv | as_line --ids >want
	assert_equal "$(echo "$output" | sed 1d)" "$(cat want)"
}

@test "a folder takes the snapshots under their names, of one text, too, and what cannot be is refused before anything runs" {
	local words said
	mkdir -p out sub
	cp short.kv sub
	kv-decode -m "$DEMO" -n 4 -o out sub/short.kv >/dev/null
	kv-decode -m "$DEMO" -n 4 -o alone.kv short.kv >/dev/null
	cmp out/short.kv alone.kv
	cp talk.kv sub
	kv-decode -m "$DEMO" -n 4 -o sub sub/short.kv sub/talk.kv >/dev/null
	cmp sub/short.kv alone.kv
	rm out/*
	while IFS=/ read -r words said; do
		eval "more=(${words//+//})"
		# shellcheck disable=SC2154 # eval sets it
		run -2 --separate-stderr kv-decode -m "$DEMO" "${more[@]}" <short.kv
		[[ "$stderr" == *"$said"* ]] || { echo "$words: $stderr"; return 1; }
		assert_equal "$output" ""
	done <<-'END'
		-o out short.kv sub+short.kv/would both be short.kv there
		-o out short.kv -/has no name
		-o out -/has no name
		-o out.kv short.kv talk.kv/want a folder
		- short.kv -/named twice
		--batch 0 short.kv talk.kv/want 1 to 64
		--batch 65 short.kv talk.kv/want 1 to 64
		--questions long.txt short.kv talk.kv/one at a time
		--force long.txt short.kv talk.kv/one at a time
		--retrieve 'fier budget=9' --stats s.json short.kv talk.kv/--json has what was read
		--report out+talk.kv -o out short.kv talk.kv/name the same file
	END
	assert_equal "$(ls out)" "talk.kv"
}

@test "a signal leaves whole snapshots only, those of texts that had ended" {
	local status=0
	mkdir out
	kv-decode -m "$DEMO" --ignore-eos --stop 742 -n 1m -o out talk.kv long.kv >text &
	pid=$!
	for _ in $(seq 400); do
		[ ! -e out/long.kv ] || break
		sleep 0.05
	done
	kill -TERM $pid
	wait $pid || status=$?
	assert_equal "$status" 143
	assert_equal "$(ls -A out)" "long.kv"
	kv-check out/long.kv
	[ ! -s text ]
}

@test "a step counts the weights once, whoever takes part, and products and attention of each" {
	local n
	for n in 1 2 4; do
		# shellcheck disable=SC2046 # words
		kv-decode -m "$DEMO" --device cpu -n 6 --ignore-eos --batch 4 --report $n.jsonl $(yes long.kv | head -n $n) >/dev/null
	done
	for n in 2 4; do
		assert_equal "$(json $n.jsonl 'o["steps"], o["tokens_run"]')" "(5, $((5 * n)))"
		assert_equal "$(json $n.jsonl 'o["traffic"]["weights"]')" "$(json 1.jsonl 'o["traffic"]["weights"]')"
		for key in '["flops"]["products"]' '["flops"]["attention"]' '["traffic"]["rows_read"]' '["traffic"]["rows_written"]'; do
			assert_equal "$(json $n.jsonl "o$key")" "$(json 1.jsonl "$n * o$key")"
		done
	done
}

@test "a late write error of the text is an error" {
	run -1 --separate-stderr bash -c 'kv-decode -m "$0" -n 4 short.kv talk.kv >/dev/full' "$DEMO"
	assert_regex "$stderr" "stdout: No space left on device"
}

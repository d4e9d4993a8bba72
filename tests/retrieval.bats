#!/usr/bin/env bats
# Retrieval as a part of pipelines: over what eviction has left, over chunks, over token selection; and what becomes of an index on the way

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	kv-prefill -m "$DEMO" --observe 16 -o full.kv "$ROOT/examples/prompts/harbour.txt"
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	full=$BATS_FILE_TMPDIR/full.kv
}

# answer SNAPSHOT [OPTION ...]: what the model says
answer() {
	local snapshot=$1
	shift
	kv-decode -m "$DEMO" -n 12 --stop . "$@" "$snapshot"
}

@test "retrieval finds the answer among the rows that eviction has left, for each KV head its own" {
	kv-score --method snapkv --kernel 7 "$full" | kv-evict --rate 0.3 --policy ada | kv-quantize1b |
	    kv-index --pages --clusters -o left.kv
	kv-check left.kv
	[ "$(see left.kv 'len({n for l in s.layers for n in l.rows})')" -gt 1 ]
	for method in fier quest quest-eval cluster; do
		run -0 answer left.kv --retrieve "$method budget=64" --stats stats.json
		assert_output ' L047'
		[ "$(json stats.json 'o["all"]["share"] < 0.75')" = True ]
	done
}

@test "retrieval does not bring back what eviction has dropped" {
	kv-score --method recent "$full" | kv-evict --rate 0.3 | kv-quantize1b -o recent.kv
	run -0 answer recent.kv --retrieve 'fier budget=64'
	refute_output --partial L047
}

@test "retrieval over a cache whose later layers hold a fifth of the tokens (FastKV)" {
	kv-prefill -m "$DEMO" --select 'tsp layer=2' --observe 8 -o tsp.kv "$ROOT/examples/prompts/harbour.txt"
	[ "$(see tsp.kv 's.layers[3].rows[0] < s.layers[0].rows[0]')" = True ]
	kv-quantize1b tsp.kv | kv-index --pages --clusters --low-rank --rank 24 --outliers 4 -o indexed.kv
	for method in fier quest quest-eval cluster shadow; do
		run -0 answer indexed.kv --retrieve "$method budget=64"
		assert_output ' L047'
	done
}

@test "one bit a channel over a cache that was evicted chunk by chunk" {
	kv-prefill -m "$DEMO" --chunk 250 --score 'snapkv window=16 kernel=7' --evict 'rate=0.3' --patch 16 -o chunked.kv \
	    "$ROOT/examples/prompts/harbour.txt"
	kv-quantize1b -g 16 chunked.kv -o indexed.kv
	run -0 answer indexed.kv --retrieve 'fier budget=32' --stats stats.json
	assert_output "$(answer chunked.kv)"
	[ "$(json stats.json 'o["all"]["share"] < 0.8')" = True ]
}

@test "an index that eviction has dropped is asked for by name, and made anew" {
	kv-quantize1b "$full" | kv-score --method snapkv --kernel 7 -o scored.kv
	kv-evict --rate 0.5 scored.kv -o half.kv
	run -1 --separate-stderr answer half.kv --retrieve 'fier budget=64'
	assert_output ''
	assert_regex "$stderr" 'kv-quantize1b'
	kv-quantize1b half.kv | answer - --retrieve 'fier budget=64' >text
	assert_equal "$(cat text)" ' L047'
	kv-evict --rate 1 scored.kv -o whole.kv
	run -0 answer whole.kv --retrieve 'fier budget=64'
	assert_output ' L047'
}

@test "a document with its index, asked twice: what is appended is found through the index, too" {
	head -c -70 "$ROOT/examples/prompts/harbour.txt" >book.txt
	tail -c 70 "$ROOT/examples/prompts/harbour.txt" >question.txt
	kv-prefill -m "$DEMO" book.txt | kv-quantize1b | kv-index --pages --clusters -z -o book.kv
	kv-prefill -m "$DEMO" -r book.kv question.txt -o asked.kv
	kv-check asked.kv
	kv-prefill -m "$DEMO" -r book.kv question.txt | kv-quantize1b | kv-index --pages -o anew.kv
	assert_equal "$(kv-info --json asked.kv | grep logical)" "$(kv-info --json anew.kv | grep logical)"
	for method in fier quest quest-eval cluster; do
		run -0 answer asked.kv --retrieve "$method budget=64"
		assert_output ' L047'
	done
}

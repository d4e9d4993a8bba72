#!/usr/bin/env bats
# bats file_tags=slow
# A retrieval head with latent attention: rows for each query head, against numpy; what a step reads, and what goes with it

load helper

setup_file() {
	cd "$BATS_FILE_TMPDIR" || exit 1
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" deepseek_v2 v2 "$DEMO/tokenizer.json" deepseek_v3 v3 "$DEMO/tokenizer.json"
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" two --model v2 --heads 6 --kv-heads 2 --head-dim 12 --layers 0,1,3 --seed 3
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" alone --model v2 --heads 3 --kv-heads 1 --head-dim 20 --alone --seed 4
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" three --model v3 --heads 3 --kv-heads 3 --head-dim 12 --layers 0,1,3
	"$PYTHON" -c 'import random
r = random.Random(7)
print(*[r.randrange(8, 1500) for _ in range(120)])' >text
	cut -d ' ' -f 1-70 text >front
	local text
	for text in text front; do
		kv-prefill -q -m v2 --retrieval-head two --ids --dtype f32 -o $text.kv $text
	done
	kv-prefill -q -m v2 --retrieval-head alone --ids --dtype f32 -o alone.kv text
	kv-score --method knorm text.kv | kv-evict -q --budget 60 -o even.kv
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# say HEAD WORDS OPTION ... SNAPSHOT ...: 20 tokens
say() {
	kv-decode -q -m v2 --retrieve "specontext head=$1 $2" --ids --ignore-eos -n 20 "${@:3}"
}

# tried HEAD IN WORDS OPTION ...: noted for agree
tried() {
	n=$((${n:-0} + 1))
	say "$1" "$3" -o "$BATS_TEST_TMPDIR/$n.kv" --stats "$BATS_TEST_TMPDIR/$n.json" "${@:4}" "$2" >"$BATS_TEST_TMPDIR/$n.ids"
	printf '%s\t%s\t%s\t%s\t%s\n' v2 "$1" "$2" "$BATS_TEST_TMPDIR/$n.kv" "$BATS_TEST_TMPDIR/$n.json" >>"$BATS_TEST_TMPDIR/tried"
}

# What numpy makes of the same tokens differs by less than 1e-5, in rows, logits, report, and the keys of the head.
agree() {
	run -0 "$PYTHON" "$ORACLE/latent_retrieve.py" --limit 1e-5 <"$BATS_TEST_TMPDIR/tried"
	assert_equal "${#lines[@]}" "$n"
}

@test "each query head reads its own rows, and with per=kv-head all read the same" {
	tried two text.kv 'budget=20' --audit
	tried two text.kv 'budget=30 sink=2 recent=3 dense=1' --audit
	tried two text.kv 'budget=12 reduce=sum' --audit
	tried two text.kv 'budget=16 reduce=sum per=kv-head' --audit
	tried alone alone.kv 'budget=16' --audit
	tried two even.kv 'budget=15'
	agree
	assert_equal "$(json "$BATS_TEST_TMPDIR/1.json" 'o["per"], o["all"]["head_rows"], 20 < o["all"]["rows"] < 60')" "('query-head', 60.0, True)"
	assert_equal "$(json "$BATS_TEST_TMPDIR/4.json" 'o["per"], o["all"]["rows"], "head_rows" in o["all"]')" "('kv-head', 16.0, False)"
	# attention computes with the rows of each query head: 19 steps of 4 layers, 3 x 20 rows of 288 bytes
	say two 'budget=20' --report report.json text.kv
	assert_equal "$(json report.json 'o["traffic"]["rows_read"], o["flops"]["attention"]')" "($((19 * 4 * 60 * 288)), $((19 * 4 * 60 * 4 * 72)))"
	assert_equal "$(json "$BATS_TEST_TMPDIR/1.json" '[l["index_bytes"] > 0 for l in o["layers"]]')" "[True, False, False, False]"
}

@test "rows that stay in the file give the bytes of rows in memory, and what any query head chooses is fetched once" {
	local how
	for how in 'budget=20' 'budget=9 per=kv-head' 'budget=7 dense=2'; do
		tried two text.kv "$how" --offload
		say two "$how" -o memory.kv text.kv | cmp - "$BATS_TEST_TMPDIR/$n.ids"
		cmp memory.kv "$BATS_TEST_TMPDIR/$n.kv"
	done
	tried two even.kv 'budget=15' --offload
	agree
	say two 'budget=15' even.kv | cmp - "$BATS_TEST_TMPDIR/$n.ids"
	say two 'budget=10' text.kv >memory
	say two 'budget=10' -v --device-memory 1800k text.kv 2>said | cmp - memory
	grep -q 'are in the file, mapped$' said
}

@test "1, 2 and 3 threads give the same bytes" {
	local j
	for j in 1 2 3; do say two 'budget=20' -j $j -o $j.kv text.kv >/dev/null; done
	cmp 1.kv 2.kv
	cmp 1.kv 3.kv
}

@test "a budget for all rows gives the text of full attention, also with eviction, and of deepseek_v3" {
	kv-decode -q -m v2 --ids --ignore-eos -n 20 text.kv >full
	say two 'budget=1000' text.kv | cmp - full
	say two 'budget=20' --draft text.kv text.kv | cmp - full
	kv-decode -q -m v2 --ids --ignore-eos -n 20 --score knorm --evict budget=50 --every 3 text.kv >full
	say two 'budget=1000' --score knorm --evict budget=50 --every 3 text.kv | cmp - full
	kv-decode -q -m v2 --retrieve 'specontext head=two budget=20' --score knorm --evict budget=50 --every 3 --json -n 9 text.kv >said.json
	assert_equal "$(json said.json '20 <= o["retrieval"]["all"]["rows"] <= 52')" True
	kv-prefill -q -m v3 --retrieval-head three --ids -o three.kv text
	kv-decode -q -m v3 --ids --ignore-eos -n 20 three.kv >full
	kv-decode -q -m v3 --ids --ignore-eos -n 20 --retrieve 'specontext head=three budget=1000' three.kv | cmp - full
	kv-decode -q -m v3 --ids --ignore-eos -n 20 --retrieve 'specontext head=three budget=12' three.kv >few
	kv-decode -q -m v3 --ids --ignore-eos -n 20 --retrieve 'specontext head=three budget=12' --offload three.kv | cmp - few
	run ! cmp -s full few
}

@test "several texts at once say what each says alone" {
	local f
	for f in text front; do say two 'budget=20' $f.kv | as_line --ids; done >each
	say two 'budget=20' text.kv front.kv | cmp - each
	say two 'budget=20' --offload text.kv front.kv | cmp - each
}

@test "quantised rows are read as the numbers that they stand for" {
	kv-quantize -q --keys int8 -o q.kv text.kv
	kv-quantize -q --keys f32 -o numbers.kv q.kv
	echo 77 99 >two.ids
	local f
	for f in q numbers; do
		kv-decode -q -m v2 --retrieve 'specontext head=two budget=20' --ids --force two.ids --logits $f.npy $f.kv >/dev/null
	done
	say two 'budget=20' q.kv >memory
	say two 'budget=20' --offload q.kv | cmp - memory
	"$PYTHON" -c 'import numpy as np
a, b = np.load("q.npy"), np.load("numbers.npy")
assert len(a) == 2 and np.abs(a - b).max() / np.abs(b).max() < 0.02'
}

@test "a head without features goes with a store and with rows that are reused" {
	local m=v2
	kv-prefill -q -m $m --retrieval-head alone --ids --dtype f32 --reuse front.kv -o reused.kv text
	kv-prefill -q -m $m --ids --dtype f32 --store store -o /dev/null front
	kv-prefill -q -m $m --retrieval-head alone --ids --dtype f32 --store store -o stored.kv text
	assert_equal "$(see stored.kv s.head_keys.n)" 120
	say alone 'budget=20' alone.kv >cold
	say alone 'budget=20' reused.kv | cmp - cold
	say alone 'budget=20' stored.kv | cmp - cold
}

# refused STATUS WORDS COMMAND ...: ends so, saying these words
refused() {
	run "-$1" --separate-stderr "${@:3}"
	[[ "$stderr" == *"$2"* ]] || fail "$stderr"
}

@test "heads that do not fit, and choices that no model has, are refused with the reason" {
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" four --model v2 --heads 4 --kv-heads 2 --head-dim 12 --alone
	refused 4 'a retrieval head of 4 query heads for the 3 query heads of v2: want a multiple, or per=kv-head' say four 'budget=9' text.kv
	say four 'budget=9 per=kv-head' text.kv
	kv-prefill -q -m "$DEMO" --retrieval-head "$DEMO/retrieval-head" --ids -o demo.kv front
	refused 5 'per=query-head is for models with latent attention: here the query heads of a KV head read the same rows' \
		kv-decode -m "$DEMO" --retrieve "specontext head='$DEMO/retrieval-head' budget=9 per=query-head" --ids -n 1 demo.kv
	refused 2 'per=head: want query-head or kv-head' say two 'budget=9 per=head' text.kv
	refused 2 '--retrieve fier: per= is for specontext' kv-decode -m v2 --retrieve 'fier budget=9 per=query-head' -n 1 text.kv
	kv-score --method knorm text.kv | kv-evict -q --budget 60 --positions compact -o compact.kv
	refused 5 'a retrieval head needs rows at their positions in the text' say two 'budget=9' compact.kv
	refused 2 '--stream does not go with --retrieve' say two 'budget=9' --stream text.kv
	local how
	for how in --store --reuse; do
		refused 5 "this head has features, and does not go with $how" kv-prefill -m v2 --retrieval-head two --ids $how text.kv -o x.kv text
	done
}

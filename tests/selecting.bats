#!/usr/bin/env bats
# bats file_tags=slow
# kv-prefill --select: token-selective propagation, GemFilter, PyramidInfer, against a forward pass in double precision

load helper

# The demo model has 4 layers, 4 query heads and 2 KV heads.

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	cp "$ROOT/examples/prompts/harbour.txt" prompt.txt
	kv-tokenize -m "$DEMO" prompt.txt >all.ids
	n=$(wc -l <all.ids)
	export PYTHONPATH=$FORMAT
}

five_layers() {
	random_model random --layers 5 --hidden 48 --heads 6 --kv-heads 2 --head-dim 10 --ffn 72 --dtype f32 --seed 5 --std 0.3
}

# agrees LIMIT KIND MODEL SNAPSHOT OPTION ...: rows as expected, values within LIMIT
agrees() {
	errors_below "$1" "$PYTHON" "$ORACLE/selecting.py" "${@:2}"
}

prefill() {
	kv-prefill --dtype f32 --ids "$@"
}

# rows SNAPSHOT: of each layer's first KV head
rows() {
	see "$1" '[l.rows[0] for l in s.layers]'
}

# events SNAPSHOT: kind, next position, n, l0, l1 of each
events() {
	see "$1" "['%d:%d:%d:%d-%d' % tuple(e[:5]) for e in s.events]"
}

@test "TSP: rows, keys, values, queries and logits are those of a double-precision forward pass" {
	prefill -m "$DEMO" --select 'tsp layer=1' -w 8 -o max.kv all.ids
	agrees 1e-5 tsp "$DEMO" max.kv 1 0.2 8 7 max
	assert_equal "$(rows max.kv)" "$n $n $((n / 5)) $((n / 5))"
	prefill -m "$DEMO" --select 'tsp layer=0 rate=0.3 window=16 kernel=5 pool=avg' -w 5 -o avg.kv all.ids
	agrees 1e-5 tsp "$DEMO" avg.kv 0 0.3 16 5 avg
	five_layers
	prefill -m random --select 'tsp layer=2' -w 8 -o random.kv all.ids
	agrees 5e-5 tsp random random.kv 2 0.2 8 7 max
}

@test "TSP: a text that continues a snapshot is selected from, the snapshot's rows stay" {
	five_layers
	head -n 300 all.ids >first.ids
	tail -n +301 all.ids >second.ids
	prefill -m random -o first.kv first.ids
	prefill -m random --select 'tsp layer=2' -w 8 -r first.kv -o out.kv second.ids
	agrees 5e-5 tsp random out.kv 2 0.2 8 7 max 300
	kv-score --method random first.kv | kv-evict --budget 100 -o small.kv
	prefill -m random --select 'tsp layer=2' -w 8 -r small.kv -o out.kv second.ids
	m=$(wc -l <second.ids)
	assert_equal "$(rows out.kv)" "$((100 + m)) $((100 + m)) $((100 + m)) $((100 + m / 5)) $((100 + m / 5))"
	for head in 0 1; do
		kept=$(positions small.kv 4 $head)
		assert_equal "$(positions out.kv 4 $head | cut -d ' ' -f 1-100)" "$kept"
	done
	assert_equal "$(positions out.kv 3 0 | cut -d ' ' -f 101-)" "$(positions out.kv 4 1 | cut -d ' ' -f 101-)"
}

@test "TSP at the last layer changes nothing, neither does a rate of 1" {
	prefill -m "$DEMO" -o full.kv all.ids
	prefill -m "$DEMO" --select 'tsp layer=3' -o last.kv all.ids
	prefill -m "$DEMO" --select 'tsp layer=1 rate=1' -o one.kv all.ids
	for name in last one; do
		assert_equal "$(see $name.kv '[l.positions for l in s.layers]')" "$(see full.kv '[l.positions for l in s.layers]')"
		assert_equal "$(see $name.kv 's.logits')" "$(see full.kv 's.logits')"
	done
}

@test "tokens are selected alike whatever the chunk and the number of threads" {
	for words in 'tsp layer=1' 'gemfilter layer=1 rate=0.2' 'pyramidinfer decay=0.5'; do
		prefill -m "$DEMO" --select "$words" -c 512 -o whole.kv all.ids
		prefill -m "$DEMO" --select "$words" -c 33 -j 1 -o parts.kv all.ids
		assert_equal "$(see parts.kv '[l.positions for l in s.layers]')" "$(see whole.kv '[l.positions for l in s.layers]')"
	done
}

@test "GemFilter: the selected tokens are a prompt of their own, all ids are kept" {
	prefill -m "$DEMO" --select 'gemfilter layer=2 budget=150' -w 20 -o gem.kv all.ids
	agrees 1e-5 gemfilter "$DEMO" gem.kv 2 150
	assert_equal "$(positions gem.kv 3 1)" "$(seq -s ' ' 0 149)"
	assert_equal "$(see gem.kv 's.head["next_position"], len(s.tokens)')" "150 $n"
	five_layers
	prefill -m random --select 'gemfilter layer=2 rate=0.15' -o gem.kv all.ids
	agrees 5e-5 gemfilter random gem.kv 2 $((n * 15 / 100))
}

@test "PyramidInfer: each layer has the rows that the one before lets through" {
	prefill -m "$DEMO" --select 'pyramidinfer decay=0.5 recent=0.1' -w 20 -o p.kv all.ids
	agrees 1e-5 pyramidinfer "$DEMO" p.kv 0.5 1 0.1 1.2 64
	prefill -m "$DEMO" --select 'pyramidinfer decay=0.5 interval=2 weight=3 min=10' -o p.kv all.ids
	agrees 1e-5 pyramidinfer "$DEMO" p.kv 0.5 2 0.2 3 10
	five_layers
	prefill -m random --select 'pyramidinfer decay=0.6' -o p.kv all.ids
	agrees 5e-5 pyramidinfer random p.kv 0.6 1 0.2 1.2 64
	run -0 see p.kv '[l.rows for l in s.layers] == sorted((l.rows for l in s.layers), reverse=True) and s.layers[4].rows[0] < s.layers[1].rows[0]'
	assert_output True
	prefill -m "$DEMO" --select 'pyramidinfer decay=0.5 min=10000' -o p.kv all.ids
	assert_equal "$(rows p.kv)" "$n $n $n $n"
}

@test "attention received counts the rows that ran" {
	prefill -m "$DEMO" --select 'tsp layer=1' --mass -o m.kv all.ids
	run -0 see m.kv '[round(float(sum(list_)), 2) - l.rows[0] for l in s.layers for lists in l.mass for list_ in lists]'
	assert_equal "$(tr ' ' '\n' <<<"$output" | sort -u)" 0.0
	prefill -m "$DEMO" --select 'gemfilter layer=1 budget=100' --mass -o m.kv all.ids
	run -0 see m.kv '[round(float(sum(list_)), 2) for l in s.layers for lists in l.mass for list_ in lists]'
	assert_equal "$(tr ' ' '\n' <<<"$output" | sort -u)" 100.0
}

@test "the log has what ran in which layers, and GemFilter's first run" {
	prefill -m "$DEMO" --select 'tsp layer=1' -c 600 -o t.kv all.ids
	assert_equal "$(events t.kv)" "1:$n:600:0-2 1:$n:$((n - 600)):0-2 1:$n:$((n / 5)):2-4"
	prefill -m "$DEMO" --select 'gemfilter layer=0 budget=100' -c 10k -o g.kv all.ids
	assert_equal "$(events g.kv)" "1:$n:$n:0-1 3:0:0:0-4 1:100:100:0-4"
	prefill -m "$DEMO" --select 'pyramidinfer decay=0.5' -o p.kv all.ids
	kv-check t.kv g.kv p.kv
}

@test "FastKV as a pipeline finds the answer" {
	run -0 bash -c 'kv-prefill -m "$0" --select "tsp layer=2" --observe 8 prompt.txt | kv-score --method snapkv --kernel 7 |
	    kv-evict --rate 0.1 --of tokens | kv-decode -m "$0" --stop . -o after.kv' "$DEMO"
	assert_output " L047"
	assert_equal "$(see after.kv 's.events[0].l0, s.events[0].l1, s.events[-1].kind')" "0 3 2"
}

# refused STATUS PATTERN OPTION ...: with the prompt of $n tokens
refused() {
	local pattern=$1
	shift
	run -2 --separate-stderr kv-prefill -m "$DEMO" -o no.kv --ids "$@" all.ids
	assert_regex "$stderr" "$pattern"
	[ ! -e no.kv ]
}

@test "what cannot be is refused with 2" {
	refused "there is no rule 'tps', only tsp, gemfilter, pyramidinfer: did you mean tsp" --select 'tps layer=1'
	refused "there is no rule 'fastkv', .*: FastKV is kv-prefill --select tsp" --select fastkv
	refused 'which layer selects' --select tsp
	refused 'which layer selects' --select 'gemfilter budget=5'
	refused "no option 'layer'" --select 'pyramidinfer layer=3'
	refused 'the model has layers 0 to 3' --select 'tsp layer=4'
	refused 'the model has layers 0 to 3' --select 'gemfilter layer=4 budget=5'
	refused "tsp: window=100000, and the prompt has $n tokens" --select 'tsp layer=1 window=100000'
	refused 'less than the window of 8' --select 'tsp layer=1 rate=0.001'
	refused 'not a share' --select 'tsp layer=1 rate=1.5'
	refused 'want an odd number' --select 'tsp layer=1 kernel=4'
	refused 'want avg or max' --select 'tsp layer=1 pool=sum'
	refused 'and not both' --select 'gemfilter layer=1'
	refused 'and not both' --select 'gemfilter layer=1 budget=10 rate=0.1'
	refused "'0' is not a whole number from 1" --select 'gemfilter layer=1 budget=0'
	refused 'is none' --select 'gemfilter layer=1 rate=0.0001'
	refused 'only the last 8 tokens' --select 'tsp layer=1' --observe 9
	refused 'only the last 10 tokens' --select 'gemfilter layer=1 budget=10' --observe 11
	refused "interval: '0' is not a whole number from 1" --select 'pyramidinfer interval=0'
	refused 'weight=-1' --select 'pyramidinfer weight=-1'
	refused "no option 'size'" --select 'pyramidinfer size=3'
	refused 'too many operands' prompt.txt
	refused 'cannot be evicted without scores' --select 'tsp layer=1' --evict budget=10
	kv-prefill -m "$DEMO" -o first.kv prompt.txt
	refused 'resume does not go with --select' --select 'gemfilter layer=1 budget=10' -r first.kv
	refused 'resume does not go with --select' --select 'pyramidinfer decay=0.5' -r first.kv
}

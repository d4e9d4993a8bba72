#!/usr/bin/env bats
# kv-decode --evict: a budget that holds at every step. The oracle is a loop of the programs: one token, score, evict.

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || exit 1
	random_model gqa --layers 3 --heads 8 --kv-heads 2 --head-dim 12 --hidden 96 --dtype f32 --std 0.2 --seed 5
	seq 3 2 120 >text.ids
	kv-prefill -m gqa --ids --observe 4 --mass -o text.kv text.ids
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# by_hand STEPS METHOD BUDGET_OPTIONS...: the loop; ids in loop.ids, the last snapshot in loop.kv
by_hand() {
	local steps=$1 method=$2 step
	shift 2
	# shellcheck disable=SC2086
	kv-score --method $method text.kv | kv-evict --keep-queries "$@" -o loop.kv
	: >loop.ids
	for ((step = 0; step < steps; step++)); do
		kv-decode -m gqa -n 1 --ids --ignore-eos --observe "${OBSERVE:-4}" --mass -o step.kv loop.kv >>loop.ids
		# shellcheck disable=SC2086
		kv-score --method $method step.kv | kv-evict --keep-queries "$@" -o loop.kv
	done
}

# same METHOD_WORDS METHOD_OPTIONS EVICT_WORDS EVICT_OPTIONS...: both ways give the same ids, rows and events
same() {
	local words=$1 method=$2 evict=$3
	shift 3
	by_hand 9 "$method" "$@"
	kv-decode -m gqa -n 9 --ids --ignore-eos --observe "${OBSERVE:-4}" --mass --score "$words" --evict "$evict" -o once.kv text.kv >once.ids
	diff loop.ids once.ids
	[ "$(logical loop.kv)" = "$(logical once.kv)" ]
	[ "$(events loop.kv)" = "$(events once.kv)" ]
}

# events FILE: the event log as bytes in hexadecimal
events() {
	see "$1" "s.events" 2>/dev/null
}

@test "StreamingLLM, H2O, TOVA while decoding are a loop of one token, kv-score, kv-evict" {
	same "recent sink=3" "recent --sink 3" "budget=20" --budget 20
	same h2o h2o "budget=20 recent=10" --budget 20 --recent 10
	same "meanmass reduce=max" "meanmass --reduce max" "budget=20" --budget 20
	same "tova" tova "budget=17" --budget 17
}

@test "--every N evicts before the first token and after every N tokens, in a batch as alone" {
	kv-decode -m gqa -n 10 --ids --ignore-eos --score knorm --evict budget=20 --every 4 -o x.kv text.kv >ids
	# two evictions behind the first, and two tokens since then
	assert_equal "$(see x.kv '{p for l in s.layers for p in l.rows}')" '{22}'
	assert_equal "$(see x.kv '[e.position for e in s.events if e.kind == 3]')" "59 63 67"
	kv-prefill -m gqa --ids --observe 4 --mass -o other.kv <(seq 3 3 90)
	mkdir together
	kv-decode -m gqa -n 10 --ignore-eos --ids --score knorm --evict budget=20 --every 4 --batch 2 -o together text.kv other.kv >/dev/null
	cmp together/text.kv x.kv
	kv-decode -m gqa -n 10 --ids --ignore-eos --score knorm --evict budget=20 --every 1 -o each.kv text.kv >ids
	kv-decode -m gqa -n 10 --ids --ignore-eos --score knorm --evict budget=20 -o y.kv text.kv >ids
	same_values each.kv y.kv s.logical_digest
	run -2 --separate-stderr kv-decode -m gqa --every 4 text.kv
	assert_equal "$stderr" "kv-decode: --every: what is evicted then? Give --evict, too"
}

@test "so are methods that nobody has proposed for it" {
	same "keydiff" keydiff "budget=12 sink=2" --budget 12 --sink 2
	same "snapkv window=3 kernel=3 pool=max" "snapkv --window 3 --kernel 3 --pool max" "budget=15" --budget 15
	same "snapkv window=3 weight=visible" "snapkv --window 3 --weight visible" "budget=15" --budget 15
	same "knorm" knorm "rate=0.5" --rate 0.5
	same "knorm" knorm "threshold=-1.5 recent=3" --threshold -1.5 --recent 3
	same "cur norms=mean" "cur --norms mean" "budget=12" --budget 12
	same "keydiff" keydiff "budget=20 select='chunk=6 spiky=2'" --budget 20 --select 'chunk=6 spiky=2'
	same "leverage" leverage "budget=15" --budget 15
	same "rkv window=3" "rkv --window 3" "budget=15" --budget 15
	same "cake window=3" "cake --window 3" "budget=15" --budget 15
	same "lagkv lag=4 sink=1" "lagkv --lag 4 --sink 1" "budget=15" --budget 15
}

@test "a window that nobody asked for is at most what there is, and grows, with a warning" {
	OBSERVE=12 same snapkv snapkv "budget=15" --budget 15
	run -0 --separate-stderr kv-decode -m gqa -n 9 --ids --ignore-eos --observe 12 --score snapkv --evict budget=15 -o x.kv text.kv
	assert_equal "$output" "$(cat once.ids)"
	assert_equal "$stderr" 'kv-decode: text.kv: 4 observation queries: the method uses these and later ones, up to 12'
	run -0 --separate-stderr kv-decode -m gqa -n 9 --ids --ignore-eos --score snapkv --evict budget=15 text.kv
	assert_equal "$stderr" 'kv-decode: text.kv: 4 observation queries: the method uses these and later ones, up to 32'
	run -1 --separate-stderr kv-decode -m gqa -n 9 --score 'snapkv window=5' --evict budget=15 text.kv
	assert_regex "$stderr" 'text.kv: 4 observation queries, and the method looks at 5: .*kv-prefill --observe'
}

@test "the budget holds after every token, in every layer and head" {
	kv-decode -m gqa -n 8 --ids --ignore-eos --score h2o --evict "budget=20 recent=10" -o kept.kv text.kv >/dev/null
	run see kept.kv "[len(p) for l in s.layers for p in l.positions]"
	assert_output "20 20 20 20 20 20"
	# one eviction of the prompt; then a token, which grows every head by one, and an eviction each
	run see kept.kv "[(e.kind, e.counts and e.counts[2][1][1]) for e in s.events[1:]]"
	assert_output "(3, 20)$(for ((i = 0; i < 8; i++)); do printf ' (2, None) (3, 20)'; done)"
}

@test "StreamingLLM keeps the sinks and the last rows" {
	kv-decode -m gqa -n 8 --ids --ignore-eos --score "recent sink=3" --evict "budget=10" -o kept.kv text.kv >/dev/null
	# 59 tokens of the text, 8 more
	assert_equal "$(positions kept.kv 1 1)" "0 1 2 60 61 62 63 64 65 66"
}

@test "a budget that is never reached changes nothing" {
	kv-decode -m gqa -n 8 --ids --ignore-eos -o all.kv text.kv >all.ids
	kv-decode -m gqa -n 8 --ids --ignore-eos --score tova --evict "budget=1000" -o kept.kv text.kv >kept.ids
	diff all.ids kept.ids
	[ "$(logical all.kv)" = "$(logical kept.kv)" ]
}

@test "queries and attention are carried on as a prefill would have it" {
	kv-decode -m gqa -n 5 --ids --ignore-eos --observe 4 --mass -o decoded.kv text.kv >more.ids
	cat text.ids more.ids >all.ids
	kv-prefill -m gqa --ids --observe 4 --mass -o whole.kv all.ids
	for method in "snapkv --kernel 1" h2o; do
		# shellcheck disable=SC2086
		kv-score --method $method whole.kv -o a.kv
		# shellcheck disable=SC2086
		kv-score --method $method decoded.kv -o b.kv
		scores a.kv 2 1 >a
		scores b.kv 2 1 >b
		"$PYTHON" -c 'import numpy as n; a, b = (n.array(open(f).read().split(), float) for f in "ab"); n.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)'
	done
}

@test "what eviction needs and is not there is refused before anything is printed" {
	kv-prefill -m gqa --ids -o bare.kv text.ids
	run -1 --separate-stderr kv-decode -m gqa --score tova --evict budget=20 bare.kv
	assert_regex "$stderr" 'bare.kv: 0 observation queries, and the method looks at 1: .*kv-prefill --observe'
	assert_equal "$output" ""
	run -1 --separate-stderr kv-decode -m gqa --score h2o --evict budget=20 bare.kv
	assert_regex "$stderr" 'layer 0 has rows without attention mass: .*kv-prefill --mass'
	assert_equal "$output" ""
}

@test "options that do not fit are refused with 2" {
	run -2 --separate-stderr kv-decode -m gqa --score tova text.kv
	assert_regex "$stderr" '--score: which rows go\?'
	run -2 --separate-stderr kv-decode -m gqa --score 'tova kernel=3' --evict budget=20 text.kv
	assert_regex "$stderr" '--kernel: method tova does not use it'
	run -2 --separate-stderr kv-decode -m gqa --score 'snapkv kernle=3' --evict budget=20 text.kv
	assert_regex "$stderr" "--score: there is no option 'kernle'"
	run -2 --separate-stderr kv-decode -m gqa --score tova --evict 'budget' text.kv
	assert_regex "$stderr" '--evict: budget needs a value: budget=N'
	run -2 --separate-stderr kv-decode -m gqa --score tova --evict 'budget=many' text.kv
	assert_regex "$stderr" "--evict: budget: 'many' is not a whole number"
	run -2 --separate-stderr kv-decode -m gqa --score h2o --evict 'budget=5 recent=6 small=refuse' text.kv
	assert_regex "$stderr" 'a budget of 5 of 59 rows is too small: 6 are always kept'
	assert_equal "$output" ""
	run -2 --separate-stderr kv-decode -m gqa --score knorm --evict 'rate=0.1 policy=global' text.kv
	assert_regex "$stderr" 'global'
	run -2 --separate-stderr kv-decode -m gqa --score knorm --evict 'rate=0.1 policy=composite' text.kv
	assert_regex "$stderr" '--policy composite .* use kv-evict'
	run -2 --separate-stderr kv-decode -m gqa --observe 4 text.kv
	assert_regex "$stderr" '--observe: no snapshot is kept without -o'
}

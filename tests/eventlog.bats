#!/usr/bin/env bats
# the event log: what each program that adds or drops rows writes into it, read by the other reader

load helper

# The demo model has 4 layers and 2 KV heads.

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# ids FIRST LAST: a prompt of these token ids
ids() {
	seq $((100 + $1)) $((100 + $2))
}

prefill() {
	kv-prefill -m "$DEMO" --ids "$@"
}

# events SNAPSHOT: kind, next position, n, l0, l1 of each, and c with counts
events() {
	see "$1" "['%d:%d:%d:%d-%d%s' % (*e[:5], '' if e.counts is None else 'c') for e in s.events or []]"
}

@test "each chunk of a prefill is an event, decoding is one for all its tokens" {
	ids 1 100 | prefill --chunk 40 -o full.kv
	assert_equal "$(events full.kv)" "1:40:40:0-4 1:80:40:0-4 1:100:20:0-4"
	kv-decode -m "$DEMO" --ids --ignore-eos -n 7 -o more.kv full.kv >/dev/null
	kv-decode -m "$DEMO" --ids --ignore-eos -n 2 -o most.kv more.kv >/dev/null
	assert_equal "$(events more.kv)" "$(events full.kv) 2:107:7:0-4"
	assert_equal "$(events most.kv)" "$(events full.kv) 2:109:9:0-4"
	ids 101 105 >next
	prefill --resume most.kv -o c.kv next
	assert_equal "$(events c.kv)" "$(events most.kv) 1:114:5:0-4"
}

@test "kv-evict logs the rows before and after, kv-score passes the log on, nothing dropped is no event" {
	ids 1 50 | prefill -o full.kv
	kv-score --method random full.kv -o scored.kv
	assert_equal "$(see scored.kv s.events)" "$(see full.kv s.events)"
	kv-evict -q --budget 20 --sink 3 -z scored.kv -o small.kv
	run -0 see small.kv '[s.events[-1].counts == [[(50, n) for n in l.rows] for l in s.layers], len(s.events)]'
	assert_output "True 2"
	kv-evict --rate 1 scored.kv -o same.kv
	assert_equal "$(see same.kv s.events)" "$(see full.kv s.events)"
	kv-decode -m "$DEMO" --ids --ignore-eos -n 3 -o more.kv small.kv >/dev/null
	run -0 see more.kv '[e.kind for e in s.events]'
	assert_output "1 3 2"
}

@test "a snapshot without a log gets none" {
	ids 1 50 | prefill -o full.kv
	strip eVNt full.kv bare.kv
	assert_equal "$(see bare.kv s.events) $(logical bare.kv)" "None $(logical full.kv)"
	ids 51 55 >next
	kv-score --method random bare.kv | kv-evict -q --budget 20 | prefill -r - next |
	    kv-decode -m "$DEMO" --ids -n 2 -o c.kv - >/dev/null
	assert_equal "$(see c.kv s.events)" None
}

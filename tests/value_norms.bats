#!/usr/bin/env bats
# Norms of value outputs (kv-snapshot(5), vNRM), and rows that are chosen by them: kv-evict --first-stage

load helper

setup_file() {
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || return
	seq 5 204 >200.ids
	kv-prefill -m "$DEMO" --ids --observe 8 --value-norms -o 200.kv 200.ids
	kv-score --method snapkv -o scored.kv 200.kv
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	ln -s "$BATS_FILE_TMPDIR"/* .
}

norms() {
	"$PYTHON" "$ORACLE/value_norms.py" "$@"
}

@test "the norms are those of the values behind the output projection, in every family and type of values, with any number of threads" {
	local name type
	norms made 1e-6 "$DEMO" 200.kv
	kv-prefill -m "$DEMO" --ids --observe 8 --value-norms -j 1 -o one.kv 200.ids
	cmp one.kv 200.kv
	for name in qwen3 granite phi3-partial olmo2 gemma3 mistral-window; do
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name $name "$DEMO/tokenizer.json"
		kv-prefill -m $name --ids --value-norms -o x.kv <(seq 5 60)
		norms made 2e-6 $name x.kv
	done
	for type in q8_0 q4_0-hadamard int8; do
		kv-prefill -m "$DEMO" --ids --values $type --value-norms -o x.kv 200.ids
		norms made 2e-6 "$DEMO" x.kv
	done
	# more than a tile of rows
	kv-prefill -m "$DEMO" --ids --value-norms -o x.kv <(seq 5 604)
	norms made 1e-6 "$DEMO" x.kv
}

@test "they are made anew for a text that goes on, and dropped without the option" {
	kv-prefill -m "$DEMO" --ids -o plain.kv 200.ids
	kv-prefill -m "$DEMO" --ids --value-norms -r plain.kv -o x.kv <(seq 205 220)
	norms made 1e-6 "$DEMO" x.kv
	kv-prefill -m "$DEMO" --ids -r 200.kv -o x.kv <(seq 205 220)
	assert_equal "$(see x.kv '[l.value_norms for l in s.layers]')" 'None None None None'
}

@test "they belong to the values: kept with other keys, dropped with values of another type" {
	kv-quantize --keys q8_0 -o x.kv 200.kv
	norms made 1e-6 "$DEMO" x.kv
	run -0 --separate-stderr kv-quantize --values q8_0 -o x.kv 200.kv
	assert_equal "$stderr" "kv-quantize: norms of value outputs are dropped: they are of the values before"
	assert_equal "$(see x.kv '[l.value_norms for l in s.layers]')" 'None None None None'
}

@test "--first-stage chooses a share by score and the others by score and norm, under every policy" {
	local policy share
	for policy in uniform ada ada-kvpress pyramid-exact global; do
		for share in 0.001 0.3 0.5 1; do
			kv-evict --policy $policy --budget 60 --first-stage $share --epsilon 0.01 -o kept.kv scored.kv
			norms chosen $share 0.01 scored.kv kept.kv
		done
		# as many rows in each KV head as without it
		kv-evict --policy $policy --budget 60 -o plain.kv scored.kv
		assert_equal "$(see kept.kv '[l.rows for l in s.layers]')" "$(see plain.kv '[l.rows for l in s.layers]')"
	done
	kv-evict --budget 60 --first-stage 1 -o kept.kv scored.kv
	kv-evict --budget 60 -o plain.kv scored.kv
	same_values kept.kv plain.kv '[[list(p) for p in l.positions] for l in s.layers]'
	kv-evict --budget 60 --first-stage 0.5 -o kept.kv scored.kv
	run ! same_values kept.kv plain.kv '[[list(p) for p in l.positions] for l in s.layers]'
	# ragged heads keep the norms of their rows: once more
	kv-score --method knorm kept.kv >again.kv
	kv-evict --rate 0.5 --first-stage 0.5 --epsilon 20 -o twice.kv again.kv
	norms chosen 0.5 20 again.kv twice.kv
	norms made 1e-6 "$DEMO" twice.kv
	kv-check -q twice.kv
}

@test "sinks, recent rows, rows before --since and streaming heads are those of one stage" {
	kv-evict --budget 60 --first-stage 0.5 --sink 3 --recent 20 -o kept.kv scored.kv
	assert_equal "$(see kept.kv '{tuple(p)[:3] + tuple(p)[-20:] == (0, 1, 2) + tuple(range(180, 200)) and len(p) == 60 for l in s.layers for p in l.positions}')" '{True}'
	kv-evict --budget 30 --first-stage 0.5 --since 100 -o kept.kv scored.kv
	assert_equal "$(see kept.kv '{len(p) == 130 and list(p)[:100] == list(range(100)) for l in s.layers for p in l.positions}')" '{True}'
	printf '1 0\n0 1\n1 1\n0 0\n' >mask
	kv-evict --budget 60 --first-stage 0.5 --head-mask mask --sink 2 --recent 10 -o kept.kv scored.kv
	kv-evict --budget 60 --head-mask mask --sink 2 --recent 10 -o plain.kv scored.kv
	assert_equal "$(see kept.kv '[list(s.layers[0].positions[1]), list(s.layers[3].positions[0])]')" "$(see plain.kv '[list(s.layers[0].positions[1]), list(s.layers[3].positions[0])]')"
}

@test "kv-prefill --evict makes the norms itself: the snapshot is that of a pipe, also in chunks" {
	kv-evict --policy ada-kvpress --budget 60 --first-stage 0.5 -o pipe.kv scored.kv
	kv-prefill -m "$DEMO" --ids --score "snapkv window=8" --evict "policy=ada-kvpress budget=60 first-stage=0.5" --value-norms --observe 8 -o fused.kv 200.ids
	same_values fused.kv pipe.kv '[[list(p) for p in l.positions] for l in s.layers]'
	kv-prefill -m "$DEMO" --ids --score knorm --evict "budget=60 first-stage=0.5 epsilon=20" -c 100 -o fused.kv 200.ids
	kv-prefill -m "$DEMO" --ids --value-norms -c 100 <(head -n 100 200.ids) | kv-score --method knorm | kv-evict --budget 60 --first-stage 0.5 --epsilon 20 -o 1.kv
	kv-prefill -m "$DEMO" --ids --value-norms -c 100 -r 1.kv <(tail -n 100 200.ids) | kv-score --method knorm | kv-evict --budget 60 --first-stage 0.5 --epsilon 20 -o pipe.kv
	same_values fused.kv pipe.kv '[[list(p) for p in l.positions] for l in s.layers]'
}

@test "what has no norms, or no budget to share, is refused with the way on" {
	kv-prefill -m "$DEMO" --ids --observe 8 200.ids | kv-score --method snapkv -o plain.kv
	run -1 --separate-stderr kv-evict --budget 60 --first-stage 0.5 -o no.kv plain.kv
	assert_equal "$stderr" "kv-evict: plain.kv: layer 0 has no norms of value outputs, which --first-stage needs: make the snapshot with kv-prefill --value-norms"
	run -2 --separate-stderr kv-evict --threshold 1 --first-stage 0.5 -o no.kv scored.kv
	assert_equal "$stderr" "kv-evict: --first-stage: not with --threshold, which leaves no budget to share"
	run -2 --separate-stderr kv-evict --budget 9 --select layer --first-stage 0.5 -o no.kv scored.kv
	assert_equal "$stderr" "kv-evict: --first-stage: not with --select layer: the norms of KV heads differ"
	run -2 --separate-stderr kv-evict --budget 9 --epsilon 1 -o no.kv scored.kv
	assert_equal "$stderr" "kv-evict: --epsilon: what for? Give --first-stage"
	run -2 --separate-stderr kv-evict --budget 9 --first-stage 0.5 --epsilon=-1 -o no.kv scored.kv
	assert_equal "$stderr" "kv-evict: --epsilon -1: want 0 or more"
	run -2 --separate-stderr kv-decode -m "$DEMO" --score knorm --evict "budget=9 first-stage=0.5" 200.kv
	assert_regex "$stderr" '^kv-decode: --evict first-stage: after each token'
	mksnapshot -L 2 -H 4 -G 2 -E 16 -N 20 --value-norms l2 --scores random -o l2.kv
	run -1 --separate-stderr kv-evict --budget 9 --first-stage 0.5 -o no.kv l2.kv
	assert_equal "$stderr" "kv-evict: l2.kv: layer 0: norms of value outputs are l2, and --first-stage weighs by l1"
	kv-quantize --keys kivi4 --values kivi4 -o kivi.kv 200.kv
	run --separate-stderr kv-prefill -m "$DEMO" --ids --value-norms -r kivi.kv -o no.kv <(seq 5 9)
	[ "$status" -ne 0 ]
	assert_regex "$stderr" 'leave out --value-norms'
	[ ! -e no.kv ]
}

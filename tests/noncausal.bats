#!/usr/bin/env bats
# Non-causal attention (kv-snapshot(5), nCAU): what kv-prefill --noncausal makes, who passes it on, and the methods noncausal and
# compactor

load helper

setup_file() {
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || return
	seq 5 704 >700.ids
	seq 705 764 >60.ids
	cat 700.ids 60.ids >760.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 8 -o 8.kv 700.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 -o plain.kv 700.ids
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# mass FIRST FILE [CUT ...]: is its non-causal attention that of the formula?
mass() {
	"$PYTHON" "$ORACLE/noncausal_mass.py" 2e-5 "$DEMO" "$@"
}

# numbers FILE: of all layers, with positions
numbers() {
	see "$1" '[([list(p) for p in l.positions], l.noncausal.label, [list(x) for x in l.noncausal.values]) for l in s.layers]' | sha256sum
}

@test "it is the attention within chunks of 256 rows without a mask, from any row on, whatever runs at once" {
	mass 8 8.kv
	assert_equal "$(see 8.kv 's.layers[3].noncausal.label')" 'chunk=256 first=8'
	for first in 0 100 699 700 5000; do
		kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal $first -o x.kv 700.ids
		mass $first x.kv
	done
	# tiles that do not end with a chunk, and such that a chunk does not fit in twice
	for chunk in 256 300 699; do
		kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 8 -c $chunk -o x.kv 700.ids
		mass 8 x.kv
	done
	kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 8 -j 1 -o one.kv 700.ids
	cmp one.kv 8.kv
	kv-prefill -m "$DEMO" --ids --noncausal 8 -o x.kv <(head -n 5 700.ids)
	assert_equal "$(see x.kv '[v for v in s.layers[0].noncausal.values[0]]')" '0.0 0.0 0.0 0.0 0.0'
}

@test "a text that goes on has its own parts of a chunk; rows are reused with their numbers" {
	kv-prefill -m "$DEMO" --ids --noncausal 8 -r 8.kv -o later.kv 60.ids
	mass 8 later.kv 700
	kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 8 --reuse 8.kv -o reused.kv 760.ids
	mass 8 reused.kv 700
	kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 8 -o part.kv <(head -n 264 700.ids; cat 60.ids)
	kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 8 --reuse 8.kv -o reused.kv <(head -n 264 700.ids; cat 60.ids)
	mass 8 part.kv
	mass 8 reused.kv
}

@test "programs that drop, move, quantise, index, observe or score rows pass it on; a decoded text has it no more" {
	kv-score --method random 8.kv | kv-evict --budget 50 --policy ada -o small.kv
	mass 8 small.kv
	kv-score --method recent small.kv | kv-evict --positions compact --budget 40 -o moved.kv
	passed_on numbers moved.kv
	kv-observe -m "$DEMO" --repeat-context -o observed.kv 8.kv
	assert_equal "$(numbers observed.kv)" "$(numbers 8.kv)"
	kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 8 --score "lookahead='$DEMO/lookahead'" --evict budget=70 -o x.kv 700.ids
	mass 8 x.kv
	kv-decode -m "$DEMO" -n 2 -o after.kv 8.kv
	assert_equal "$(see after.kv '[l.noncausal for l in s.layers]')" 'None None None None'
}

@test "what kv-evict decides by noncausal and compactor is what one process decides, on the prompt and in chunks" {
	kv-score --method compactor --blend 0.5 8.kv | kv-evict --policy ada-kvpress --budget 90 -o pipe.kv
	kv-prefill -m "$DEMO" --ids --dtype f32 --score "compactor blend=0.5" --evict "budget=90 policy=ada-kvpress" -o fused.kv 700.ids
	same_values fused.kv pipe.kv s.logical_digest
	assert_equal "$(numbers fused.kv)" "$(numbers pipe.kv)"
	kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 0 -c 256 -o 1.kv <(head -n 256 700.ids)
	kv-score --method noncausal 1.kv | kv-evict --budget 50 -o 2.kv
	kv-prefill -m "$DEMO" --ids --noncausal 0 -c 256 -r 2.kv -o 3.kv <(sed -n 257,512p 700.ids)
	kv-score --method noncausal 3.kv | kv-evict --budget 50 -o pipe.kv
	kv-prefill -m "$DEMO" --ids --dtype f32 -c 256 --score noncausal --evict budget=50 -o fused.kv <(head -n 512 700.ids)
	same_values fused.kv pipe.kv s.logical_digest
	# rows that are quantised, and layers with a sliding window
	kv-prefill -m "$DEMO" --ids --keys q8_0 --values q4_0 --score compactor --evict rate=0.2 -o x.kv 700.ids
	kv-check -q x.kv
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" gemma3 gemma3 "$DEMO/tokenizer.json"
	kv-prefill -m gemma3 --ids --dtype f32 --noncausal 0 -o x.kv <(seq 5 60)
	kv-score --method noncausal x.kv | kv-evict --rate 0.5 | kv-check -q
}

@test "what it does not go with is refused, with the way on" {
	refused() {
		run -2 --separate-stderr kv-prefill -m "$DEMO" --ids -o no.kv "${@:2}" 700.ids
		assert_equal "$stderr" "kv-prefill: $1"
	}
	refused "--noncausal, and methods that need it, do not go with --select: chunks of tokens that are not selected would have holes" \
		--noncausal 0 --select "tsp layer=1 rate=0.5"
	refused "--noncausal, and methods that need it, do not go with --store: it keeps no non-causal attention; use --reuse, or run the whole prompt" \
		--score noncausal --evict rate=0.5 --store .
	refused "--chunk 255: non-causal attention is within chunks of 256 tokens, which run together: want at least as many" \
		--noncausal 0 -c 255
	refused "--chunk 300 with --evict would cut chunks of non-causal attention, which begin at row 0: want a multiple of 256" \
		--score noncausal --evict rate=0.5 -c 300
	refused "--chunk 512 with --evict would cut chunks of non-causal attention, which begin at row 8: want a multiple of 256, and --noncausal 0" \
		--score compactor --evict rate=0.5 -c 512
	kv-quantize --keys kivi4 --values kivi4 -o kivi.kv 8.kv
	run -5 --separate-stderr kv-prefill -m "$DEMO" --ids --noncausal 8 -r kivi.kv -o no.kv 60.ids
	assert_regex "$stderr" "^kv-prefill: kivi.kv has .*: its tokens run one by one, and attend to no chunk: leave out --noncausal; or dequantise it"
	run -2 --separate-stderr kv-decode -m "$DEMO" --score compactor --evict budget=40 8.kv
	assert_equal "$stderr" "kv-decode: --score compactor: a token that runs alone attends to no chunk: evict the prompt so, and decode without it"
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --noncausal 0 -r 8.kv -o no.kv 60.ids
	assert_equal "$stderr" "kv-prefill: 8.kv: layer 0 has no non-causal attention (chunk=256 first=0): make the snapshot with kv-prefill --noncausal from its first token"
	run -1 --separate-stderr kv-prefill -m "$DEMO" --ids --dtype f32 --noncausal 8 --reuse plain.kv -o no.kv 760.ids
	assert_equal "$stderr" "kv-prefill: plain.kv: layer 0 has no non-causal attention (chunk=256 first=8), and --noncausal cannot add it later"
	run -1 --separate-stderr kv-score --method noncausal -o no.kv plain.kv
	assert_equal "$stderr" "kv-score: plain.kv: layer 0 has no non-causal attention, which method noncausal needs: make the snapshot with kv-prefill --noncausal"
	run -2 --separate-stderr kv-score --method compactor --blend=-1 -o no.kv 8.kv
	assert_equal "$stderr" "kv-score: --blend -1: want 0 or more"
	[ ! -e no.kv ]
}

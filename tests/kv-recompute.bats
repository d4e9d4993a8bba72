#!/usr/bin/env bats
# kv-recompute: rows of a merged snapshot are computed again, as CacheBlend and EPIC choose them

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	random_model gqa --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype f32 --seed 3 --std 0.1
	seq 5 60 >a.ids
	seq 100 170 >b.ids
	seq 30 90 >c.ids
	for model in demo gqa; do
		for x in a b c; do
			kv-prefill -q -m "$(folder $model)" --ids --dtype f32 -o $model.$x.kv $x.ids
		done
		kv-merge -q -o $model.kv $model.a.kv $model.b.kv $model.c.kv
	done
	cp demo.kv x.kv
}

# folder NAME: the model folder
folder() {
	[ "$1" = demo ] && echo "$DEMO" || echo "$BATS_FILE_TMPDIR/$1"
}

# again MODEL SNAPSHOT OPTION ...: runs it, to out.kv
again() {
	kv-recompute -q -m "$(folder "$1")" --products f32 "${@:3}" -o out.kv "$2"
	kv-check out.kv
}

# agrees MODEL OPTION ...: out.kv is what NumPy makes of the merged snapshot
agrees() {
	again "$1" "$BATS_FILE_TMPDIR/$1.kv" "${@:2}"
	"$PYTHON" "$ORACLE/recomputed.py" 2e-5 "$(folder "$1")" "$BATS_FILE_TMPDIR/$1.kv" out.kv "${@:2}" >ran
	assert_equal "$(see out.kv 's.provenance[-1]["options"]["chosen"]')" "$(wc -w <ran)"
}

# refused STATUS MESSAGE ARGUMENT ...
refused() {
	run -"$1" --separate-stderr kv-recompute -m "$DEMO" "${@:3}" -o no.kv
	assert_equal "$stderr" "kv-recompute: $2"
	[ ! -e no.kv ]
}

@test "CacheBlend: the tokens that deviate most run again, and see all documents, as computed in double precision" {
	for model in demo gqa; do
		for rate in 0.05 0.3 0.9; do
			for how in "" "--by values" "--layer 3" "--layer 2 --by values" "--first 3"; do
				# shellcheck disable=SC2086 # words
				sampled agrees $model --rate $rate $how
			done
		done
	done
}

@test "EPIC: the first tokens of each later document run again, no others but the last" {
	for model in demo gqa; do
		agrees $model --first 4
		assert_equal "$(cat ran)" "56 57 58 59 127 128 129 130 187"
		agrees $model --first 1
		agrees $model --first 70
		assert_equal "$(wc -w <ran)" 131
	done
}

@test "all tokens again: the snapshot of the whole text, to the byte where it ran with the same cuts" {
	cat "$BATS_FILE_TMPDIR/b.ids" "$BATS_FILE_TMPDIR/c.ids" >bc.ids
	for model in demo gqa; do
		local d=$BATS_FILE_TMPDIR
		kv-prefill -q -m "$(folder $model)" --ids --dtype f32 --products f32 -r "$d/$model.a.kv" -o whole.kv bc.ids
		for how in "--rate 1" "--first 1000" "--rate 1 --by random" "--rate 1 --first 3"; do
			# shellcheck disable=SC2086 # words
			again $model "$d/$model.kv" $how
			same_values out.kv whole.kv 's.logits, s.tokens, [[bytes(s.head_rows(l, name, g)) for l in range(len(s.layers)) for g in range(len(s.layers[l].positions))] for name in ("keys", "values")]'
		done
	done
}

@test "the first tokens of the second document are those of a text that continues the first" {
	local d=$BATS_FILE_TMPDIR
	kv-merge -q "$d/demo.a.kv" "$d/demo.b.kv" -o m.kv
	again demo m.kv --first 9
	kv-prefill -q -m "$DEMO" --ids --products f32 -r "$d/demo.a.kv" -o part.kv <(head -n 9 "$d/b.ids")
	"$PYTHON" -c '
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import kvread
out, part, merged = (kvread.read(open(name, "rb")) for name in ("out.kv", "part.kv", "m.kv"))
for l in range(4):
    for g in range(2):
        for name in "keys", "values":
            new, want, old = (s.array(l, name, g) for s in (out, part, merged))
            assert abs(new[:65] - want).max() <= 1e-5 * abs(want).max()
            assert (new[65:-1] == old[65:-1]).all()' "$FORMAT"
}

@test "any number of threads and any tile give the same bytes, and --by random depends on its seed" {
	again demo "$BATS_FILE_TMPDIR/x.kv" --rate 0.3 -j 1
	mv out.kv one.kv
	again demo "$BATS_FILE_TMPDIR/x.kv" --rate 0.3 -j 3
	same_values out.kv one.kv s.logical_digest
	kv-recompute -q -m "$DEMO" --products f32 --rate 0.3 - <"$BATS_FILE_TMPDIR/x.kv" >piped.kv
	same_values piped.kv one.kv s.logical_digest
	for seed in 0 1; do
		again demo "$BATS_FILE_TMPDIR/x.kv" --rate 0.3 --by random --seed $seed
		mv out.kv seed$seed.kv
	done
	again demo "$BATS_FILE_TMPDIR/x.kv" --rate 0.3 --by random
	same_values out.kv seed0.kv s.logical_digest
	assert_not_equal "$(logical seed0.kv)" "$(logical seed1.kv)"
}

@test "rows that were evicted stay evicted, and the tokens see what there is" {
	local d=$BATS_FILE_TMPDIR
	for x in a b c; do
		kv-score --method keydiff "$d/demo.$x.kv" | kv-evict -q --rate 0.4 --policy ada -o small.$x.kv
	done
	kv-merge -q small.a.kv small.b.kv small.c.kv -o m.kv
	for how in "--rate 0.2" "--rate 0.5 --by values" "--first 7" "--rate 1"; do
		# shellcheck disable=SC2086 # words
		again demo m.kv $how
		# shellcheck disable=SC2086 # words
		"$PYTHON" "$ORACLE/recomputed.py" 2e-5 "$DEMO" m.kv out.kv $how >ran
		same_values out.kv m.kv '[[list(p) for p in l.positions] for l in s.layers]'
	done
}

@test "quantised rows, rows of each query head, f16 and bf16: what runs again is stored in their types" {
	local d=$BATS_FILE_TMPDIR
	cp "$d/demo.a.kv" "$d/demo.b.kv" .
	for type in q8_0 int8; do
		kv-merge -q demo.a.kv demo.b.kv | kv-quantize -q --keys $type --values $type -o m.kv
		again demo m.kv --rate 1
		assert_equal "$(see out.kv "s.head['row_types']['keys'][0]")" $type
		kv-prefill -q -m "$DEMO" --ids --products f32 -r <(kv-quantize -q --keys $type --values $type demo.a.kv) -o whole.kv "$d/b.ids"
		same_values out.kv whole.kv 's.logits, [bytes(s.head_rows(l, "keys", 1)) for l in range(4)]'
	done
	kv-merge -q demo.a.kv demo.b.kv | kv-convert --per-query-head -o m.kv
	again demo m.kv --rate 1
	kv-prefill -q -m "$DEMO" --ids --dtype f32 --products f32 -r demo.a.kv -o whole.kv "$d/b.ids"
	assert_equal "$(see out.kv 'bytes(s.head_rows(3, "keys", 1))' | sha256sum)" "$(see whole.kv 'bytes(s.head_rows(3, "keys", 0))' | sha256sum)"
	for dtype in f16 bf16; do
		for x in a b; do kv-prefill -q -m "$DEMO" --ids --dtype $dtype -o $x.kv "$d/$x.ids"; done
		kv-merge -q a.kv b.kv -o m.kv
		again demo m.kv --rate 1
		kv-prefill -q -m "$DEMO" --ids --products f32 -r a.kv -o whole.kv "$d/b.ids"
		same_values out.kv whole.kv 's.logits, [bytes(s.head_rows(l, "keys", 1)) for l in range(4)]'
	done
}

@test "a text goes on behind it, with the logits of its last token" {
	again demo "$BATS_FILE_TMPDIR/x.kv" --rate 1
	run -0 kv-decode -q -m "$DEMO" --ids -n 5 out.kv
	cat "$BATS_FILE_TMPDIR"/[abc].ids | kv-prefill -q -m "$DEMO" --ids --dtype f32 --products f32 -o whole.kv -
	assert_output "$(kv-decode -q -m "$DEMO" --ids -n 5 whole.kv)"
	kv-prefill -q -m "$DEMO" --ids -r out.kv -o asked.kv <(seq 7 20)
	assert_equal "$(see asked.kv "s.head['documents']")" "56 127"
	# what was asked runs again, too
	again demo asked.kv --first 2
	run -0 --separate-stderr kv-recompute -v -m "$DEMO" --rate 0.5 -o /dev/null "$BATS_FILE_TMPDIR/x.kv"
	assert_regex "$stderr" "kv-recompute: 67 of 132 tokens of the later documents ran again, in"
}

@test "sections that belonged to the old rows are left out" {
	kv-quantize1b -g 16 "$BATS_FILE_TMPDIR/x.kv" | kv-score --method knorm -o scored.kv
	run -0 --separate-stderr kv-recompute -m "$DEMO" --rate 0.5 -o out.kv scored.kv
	assert_equal "$(see out.kv '[(l.bits, l.scores) for l in s.layers][2]')" "None None"
	assert_equal "$stderr" "kv-recompute: left behind: sCOR, bITS"
}

@test "what cannot be is refused, with the way on" {
	local x=$BATS_FILE_TMPDIR/x.kv
	refused 2 "which tokens run again? Give --rate or --first, or both" "$x"
	refused 2 "--by: 'queries' is neither keys, values nor random" --rate 0.1 --by queries "$x"
	refused 2 "--seed: of what? Give --by random, too" --rate 0.1 --seed 2 "$x"
	refused 2 "--layer: no deviation is measured without --rate" --first 1 --layer 2 "$x"
	refused 2 "--layer: no deviation is measured with --by random" --rate 0.1 --by random --layer 2 "$x"
	refused 2 "--layer 4: $x has the layers 0 to 3" --rate 0.1 --layer 4 "$x"
	run -2 kv-recompute -m "$DEMO" --rate 1.5 "$x"
	run -2 kv-recompute -m "$DEMO" --first 0 "$x"
	local a=$BATS_FILE_TMPDIR/demo.a.kv
	refused 1 "$a: no documents that were prefilled apart: merge some with kv-merge" --rate 0.1 "$a"
	kv-score --method keydiff "$x" | kv-evict -q --rate 0.5 --positions compact -o compact.kv
	refused 1 "compact.kv: no documents that were prefilled apart: merge some with kv-merge" --rate 0.1 compact.kv
	kv-score --method keydiff "$a" | kv-evict -q --rate 0.5 --positions compact | kv-merge -q - "$a" -o m.kv
	refused 5 "m.kv: it has 112 tokens, and the next one is at position 84: its rows were renumbered, or are of selected tokens" --rate 0.1 m.kv
	kv-quantize -q --keys kivi2 --values kivi2 "$x" -o kivi.kv
	run -5 --separate-stderr kv-recompute -m "$DEMO" --rate 0.1 kivi.kv -o no.kv
	assert_regex "$stderr" "no single row of theirs can be replaced: recompute before kv-quantize"
	run -4 --separate-stderr kv-recompute -m "$BATS_FILE_TMPDIR/gqa" --rate 0.1 -o no.kv "$x"
	head -c 9999 "$x" >cut.kv
	run -3 kv-recompute -m "$DEMO" --rate 0.1 -o no.kv cut.kv
	run -1 kv-recompute -m "$DEMO" --rate 0.1 -o /dev/full "$x"
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" mistral-window windows "$DEMO/tokenizer.json"
	seq 20 29 | kv-prefill -q -m windows --ids -o w.kv -
	kv-merge -q w.kv w.kv -o m.kv
	run -5 --separate-stderr kv-recompute -m windows --rate 0.1 -o no.kv m.kv
	assert_equal "$stderr" "kv-recompute: m.kv: layers with a sliding window of 7 positions have not kept the rows that tokens of a text of 20 would see: prefill the text as a whole"
	[ ! -e no.kv ]
}

@test "a weight that is not finite is found" {
	cp -r "$DEMO" broken
	"$PYTHON" "$ROOT/tests/bin/setweight.py" broken/model.safetensors model.layers.2.mlp.down_proj.weight 5 nan
	"$PYTHON" "$ROOT/tests/bin/reweigh.py" broken "$BATS_FILE_TMPDIR/x.kv" x.kv
	run -1 --separate-stderr kv-recompute -q -m broken --rate 0.5 -o no.kv x.kv
	assert_regex "$stderr" "^kv-recompute: layer 3: keys or values at position 187 are not finite .*: value 5 of model.layers.2.mlp.down_proj.weight is not"
	[ ! -e no.kv ]
}

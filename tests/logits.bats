#!/usr/bin/env bats
# bats file_tags=slow
# kv-prefill --logits: a row for every token that is run, against kv-decode --force, parts of the text, and snapshots of its beginnings

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	for family in gemma2 granite; do
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $family $family "$DEMO/tokenizer.json"
	done
	window_model window 60 sfss --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype f32 --seed 3 --std 0.1
	"$PYTHON" "$ROOT/tests/bin/mkmodel.py" words --layers 1 --hidden 16 --heads 2 --kv-heads 1 --head-dim 8 --ffn 16 --vocab 200000 --std 0.1 --dtype f16
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" adapter --model "$DEMO" --tokens 9 --rank 4 --dtype bf16 --std 0.1
	kv-tokenize -m "$DEMO" "$ROOT/examples/prompts/harbour.txt" | head -n 300 >text
	head -n 1 text >first
	tail -n +2 text >rest
	seq 5 104 >100.ids
	seq 100 199 >next.ids
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
	ln -s "$DEMO" demo
}

# numpy CODE [ARGUMENT ...]: with np, and far(a, b): the error of a, relative in the L2 norm, where shapes are the same
numpy() {
	"$PYTHON" -c '
import sys
import numpy as np
def far(a, b):
    assert a.shape == b.shape, (a.shape, b.shape)
    return np.linalg.norm(np.float64(a) - b) / np.linalg.norm(b)
'"$1" "${@:2}"
}

# same A B: two files of logits, but for the order of rounding
same() {
	numpy 'a, b = map(np.load, sys.argv[1:]); assert far(a, b) < 1e-5, far(a, b)' "$@"
}

# last FILE SNAPSHOT [LIMIT]: the last row is what the snapshot has
last() {
	numpy '
sys.path.insert(0, sys.argv[1])
import kvread
a, b = np.load(sys.argv[2])[-1], np.array(kvread.read(open(sys.argv[3], "rb")).logits)
assert far(a, b) < float(sys.argv[4]), far(a, b)' "$FORMAT" "$1" "$2" "${3:-1e-5}"
}

@test "the rows are those that kv-decode --force finds token after token, in models with windows, caps and scales, too" {
	for m in demo gemma2 granite window; do
		kv-prefill -m $m --ids --dtype f32 --logits all.npy -o all.kv text
		kv-prefill -m $m --ids --dtype f32 -o first.kv first
		kv-decode -q -m $m --ids --force rest --logits forced.npy first.kv
		numpy '
a, f = np.load("all.npy"), np.load("forced.npy")
assert a.dtype == np.float32 and len(a) == 300, (a.dtype, a.shape)
assert far(a[:-1], f) < 1e-4, far(a[:-1], f)'
		last all.npy all.kv
	done
}

@test "the snapshot is the same with and without, byte for byte" {
	for how in "" "-c 64" "--score snapkv --evict rate=0.2" "-c 64 --score keydiff --evict budget=50"; do
		# shellcheck disable=SC2086 # words
		kv-prefill -m demo --ids $how -o plain.kv text
		# shellcheck disable=SC2086 # words
		kv-prefill -m demo --ids $how --logits x.npy -o x.kv text
		same_but_provenance plain.kv x.kv
		assert_equal "$(kv-info --json plain.kv | json - 'o["provenance"]')" "$(kv-info --json x.kv | json - 'o["provenance"]')"
	done
}

@test "chunks, and eviction layer by layer behind what a layer has computed, give the rows of a whole prefill; learned tokens have none" {
	for m in demo gemma2 window; do
		kv-prefill -m $m --ids --dtype f32 --logits whole.npy -o x.kv text
		for how in "-c 7" "-c 1" "--score recent --evict rate=0.1" "--mass --score h2o --evict rate=0.3"; do
			in_sample 4 || continue
			# shellcheck disable=SC2086 # words
			kv-prefill -m $m --ids --dtype f32 $how --logits part.npy -o x.kv text
			same part.npy whole.npy || fail "$m $how"
			last part.npy x.kv
		done
	done
	kv-prefill -m demo --ids --dtype f32 --logits whole.npy -o x.kv text
	kv-prefill -m demo --ids --dtype f32 --score lookahead=adapter --evict rate=0.1 --logits x.npy -o x.kv text
	same x.npy whole.npy
	kv-prefill -m demo --ids --dtype f32 -c 100 --score lookahead=adapter --evict rate=0.1 --logits x.npy -o x.kv text
	numpy 'x, w = np.load("x.npy"), np.load("whole.npy"); assert len(x) == 300 and far(x[:100], w[:100]) < 1e-5'
	last x.npy x.kv
}

@test "where chunks are evicted the rows are those of a loop of the shell, and a patch has none" {
	split -l 100 text piece.
	for once in "" --once; do
		rm -f loop.kv
		at=0
		for piece in piece.aa piece.ab piece.ac; do
			# shellcheck disable=SC2046,SC2086 # words
			kv-prefill -m demo --ids $([ $at = 0 ] || echo -r loop.kv) --logits $piece.npy $piece |
			    kv-score --method keydiff ${once:+--since $at} | kv-evict -q --rate 0.3 ${once:+--since $at} -o next.kv
			mv next.kv loop.kv
			at=$((at + 100))
		done
		# shellcheck disable=SC2086 # words
		kv-prefill -m demo --ids -c 100 $once --score keydiff --evict rate=0.3 --logits x.npy -o x.kv text
		numpy '
x, loop = np.load("x.npy"), np.concatenate([np.load(f"piece.a{c}.npy") for c in "abc"])
assert far(x, loop) < 1e-5, far(x, loop)'
	done
	kv-prefill -m demo --ids --logits whole.npy -o whole.kv text
	run ! same x.npy whole.npy
	kv-prefill -q -m demo --ids -c 100 --patch 16 --score snapkv --evict rate=0.3 --logits x.npy -o x.kv text
	numpy 'x, w = np.load("x.npy"), np.load("whole.npy"); assert far(x[:100], w[:100]) < 1e-5 and len(x) == 300'
	last x.npy x.kv
}

@test "a resumed text has rows of its own tokens: ragged, compact or windowed, those of kv-decode --force" {
	kv-prefill -m demo --ids --logits a.npy -w 16 -o full.kv 100.ids
	kv-prefill -m demo --ids -r full.kv --logits b.npy -o both.kv next.ids
	cat 100.ids next.ids | kv-prefill -m demo --ids --logits whole.npy -o x.kv -
	numpy 'a, b, w = (np.load(f + ".npy") for f in ("a", "b", "whole"))
assert len(a) == len(b) == 100 and far(np.concatenate([a, b]), w) < 1e-5'
	last b.npy both.kv
	kv-score --method snapkv full.kv | kv-evict --rate 0.3 --policy ada --alpha 0.1 -o ragged.kv
	kv-score --method knorm full.kv | kv-evict --rate 0.3 --positions compact -o compact.kv
	kv-prefill -m window --ids -o window.kv 100.ids
	while read -r m kv; do
		kv-prefill -m $m --ids -r $kv --logits r.npy -o x.kv next.ids
		kv-decode -q -m $m --ids --force next.ids --logits f.npy $kv
		numpy 'r, f = np.load("r.npy"), np.load("f.npy"); assert far(r[:-1], f[1:]) < 1e-3, far(r[:-1], f[1:])'
	done <<-'END'
		demo ragged.kv
		demo compact.kv
		window window.kv
	END
}

@test "a vocabulary of which few rows are a block: each row is what a prefill of the text up to there has" {
	kv-prefill -m words --ids --dtype f32 --logits x.npy -o x.kv 100.ids
	numpy 'assert np.load("x.npy").shape == (100, 200000)'
	for n in 1 41 42 43 84 85 99; do
		in_sample 4 || continue
		head -n $n 100.ids | kv-prefill -m words --ids --dtype f32 --logits part.npy -o part.kv -
		numpy 'a, b = np.load("x.npy")[:int(sys.argv[1])], np.load("part.npy"); assert far(a, b) < 1e-5' $n
		last part.npy part.kv
	done
}

@test "memory does not grow with the file" {
	not_under_sanitizers "programs hold memory of their own"
	peak() {
		"$PYTHON" "$ROOT/tests/bin/peak.py" kv-prefill -q -j 1 -m words --ids -c 40 -o x.kv "$@" 2>&1 | tail -n 1
	}
	seq 5 404 >400.ids
	few=$(peak --logits x.npy 100.ids)
	many=$(peak --logits x.npy 400.ids)
	echo "100 tokens: $few bytes, 400: $many, file: $(stat -c %s x.npy)"
	((many - few < 8 << 20))
	(($(stat -c %s x.npy) == 128 + 400 * 200000 * 4))
}

@test "on a GPU, in every schedule, the rows are nearly those of the CPU" {
	PATH=$O/emulated:$PATH
	head -n 120 text >short
	for how in "" "-c 50" "--score keydiff --evict rate=0.5" "-c 50 --score recent --evict budget=40"; do
		for device in cpu cuda; do
			# shellcheck disable=SC2086 # words
			kv-prefill -m demo --device $device --ids $how --logits $device.npy -o $device.kv short
		done
		numpy 'a, b = np.load("cpu.npy"), np.load("cuda.npy"); assert len(a) == 120 and far(b, a) < 0.02, far(b, a)'
		last cpu.npy cpu.kv
		last cuda.npy cuda.kv 0.01
	done
}

@test "tokens that have no logits: the options are refused, with the reason" {
	refused() {
		run -2 --separate-stderr kv-prefill -m demo --ids --logits x.npy "${@:2}" 100.ids
		# shellcheck disable=SC2154 # bats sets it
		[[ "$stderr" == *"$1"* ]] || fail "${*:2}: $stderr"
	}
	kv-prefill -m demo --ids -o full.kv 100.ids
	for how in 'tsp layer=1' 'gemfilter layer=1 budget=50' 'pyramidinfer min=9'; do
		refused "--logits does not go with --select" --select "$how" -o x.kv
	done
	refused "--logits does not go with --reuse: tokens whose rows are there already are not run" --reuse full.kv -o x.kv
	refused "--logits does not go with --store" --store folder -o x.kv
	run -2 --separate-stderr kv-prefill -m demo --ids --logits - -o x.kv 100.ids
	[[ "$stderr" == *"--logits -: standard output is for the snapshot"* ]]
	run -2 --separate-stderr kv-prefill -m demo --ids --logits x.kv -o x.kv 100.ids
	[[ "$stderr" == *"--logits names a file that is also the output, x.kv"* ]]
	refused "--logits names a file that is also read, full.kv" --logits full.kv -r full.kv -o x.kv
	refused "--logits names a file that is also read, 100.ids" --logits 100.ids -o x.kv
	[ ! -e x.npy ] && [ ! -e x.kv ] && [ ! -e folder ]
}

@test "a file appears only when it is complete" {
	run -1 --separate-stderr kv-prefill -m demo --ids --logits none/x.npy -o x.kv 100.ids
	[[ "$stderr" == *"none/x.npy: "* ]]
	echo old >x.npy
	"$PYTHON" "$ROOT/tests/bin/mkmodel.py" bad --layers 1 --hidden 16 --heads 2 --kv-heads 1 --head-dim 8 --ffn 16 --vocab 1536 --dtype f32
	"$PYTHON" "$ROOT/tests/bin/setweight.py" bad/model.safetensors lm_head.weight $((16 * 700)) nan
	for how in "" "-c 40" "--score recent --evict rate=0.5"; do
		# shellcheck disable=SC2086 # words
		run -1 --separate-stderr kv-prefill -m bad --ids $how --logits x.npy -o x.kv 100.ids
		[[ "$stderr" == *"position 0: the logit of token 700 is not finite (NaN or infinite): value 11200 of lm_head.weight is not"* ]] || fail "$stderr"
	done
	assert_equal "$(cat x.npy)" old
	[ -z "$(compgen -G 'x.npy?*')$(compgen -G 'x.kv*')" ]
	kv-prefill -m demo --ids --logits /dev/full -o x.kv 100.ids 2>err && fail "a full disk"
	grep -q '/dev/full: No space left' err
	[ ! -e x.kv ]
}

#!/usr/bin/env bats
# kv-quantize: rows are those that the document defines, go back to the same bytes, and what it copies, drops and refuses. How other programs compute on
# such rows: quantised.bats

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	kv-prefill -m "$DEMO" --dtype f32 -w 8 --mass -o full.kv "$ROOT/examples/prompts/harbour.txt"
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/*.kv .
}

TYPES="q8_0 q4_0 q4_1 q5_0 int8 fp8 q8_0-hadamard q4_0-hadamard q4_1-hadamard q5_0-hadamard int8-hadamard fp8-hadamard"

@test "rows are the bytes that the package kvsnapshot makes from the document, of every type" {
	local type
	for type in $TYPES; do
		kv-quantize --keys $type --values q8_0 -o $type.kv full.kv
		kv-check -q $type.kv
		in_sample 3 || continue
		PYTHONPATH=$ROOT/python "$PYTHON" - full.kv $type.kv <<-'END'
			import sys
			import kvsnapshot
			from kvsnapshot import rowtypes
			full, small = (kvsnapshot.read(f) for f in sys.argv[1:])
			for a, b in zip(full.layers, small.layers):
			    for keys, stored in zip(a.keys, b.stored_keys):
			        assert rowtypes.stored(keys, b.key_type).tobytes() == stored.tobytes(), b.key_type
		END
	done
}

@test "back in f32 the numbers are those that the document defines, and quantising them again changes no byte" {
	local type
	for type in $TYPES; do
		in_sample 3 || continue
		kv-quantize --keys $type --values $type -o small.kv full.kv
		kv-quantize --keys f32 --values f32 -o back.kv small.kv
		same_numbers back.kv small.kv
	done
	# without rounding of the transform, and with one scale for each block, codes are the same again
	for type in q8_0 q4_0 q5_0 int8; do
		kv-quantize --keys $type --values $type -o small.kv full.kv
		kv-quantize --keys f32 --values f32 small.kv | kv-quantize --keys $type --values $type -o again.kv
		same_values again.kv small.kv s.logical_digest
	done
}

@test "keys, values and layers are chosen apart; what is not changed is copied" {
	kv-quantize --keys q8_0 -o k.kv full.kv
	kv-quantize --values q4_0 --skip-layers 0,2-3 k.kv >kv.kv
	assert_equal "$(kv-info --json kv.kv | json - '" ".join(o["key_types"] + o["value_types"])')" "q8_0 q8_0 q8_0 q8_0 f32 q4_0 f32 f32"
	same_values kv.kv k.kv '[l.keys for l in s.layers]' 's.layers[0].values' '[l.queries for l in s.layers]' '[l.mass for l in s.layers]' s.logits
	kv-quantize --keys q4_0 --rotate -o a.kv full.kv
	kv-quantize --keys q4_0-hadamard -o b.kv full.kv
	same_values a.kv b.kv s.logical_digest
	run kv-info kv.kv
	assert_line --regexp '^row types +rows of several types$'
	run kv-info k.kv
	assert_line --regexp '^row types +q8_0 keys and f32 values$'
	# nothing is left to say
	kv-quantize --keys f32 --values f32 kv.kv >plain.kv
	run kv-info plain.kv
	refute_line --partial 'row types'
}

@test "indexes of keys in another type are dropped with a warning, those of the same keys stay" {
	kv-quantize1b -g 16 full.kv | kv-index --pages -o indexed.kv
	run --separate-stderr kv-quantize --keys q8_0 -o small.kv indexed.kv
	assert_success
	assert_equal "$stderr" "kv-quantize: indexes of the keys before are dropped: make them again with kv-quantize1b, kv-index --pages"
	assert_equal "$(see small.kv '[l.bits is None and l.pages is None for l in s.layers]')" "True True True True"
	kv-quantize --values q8_0 indexed.kv | kv-check -q -
	run --separate-stderr kv-quantize --values q8_0 -o small.kv indexed.kv
	assert_equal "$stderr" ""
	same_values small.kv indexed.kv '[l.bits for l in s.layers]' '[l.pages for l in s.layers]'
}

@test "the relative error is what it says, and threads change no byte" {
	run --separate-stderr kv-quantize -v -j 1 --keys q4_0 --values q8_0 -o one.kv full.kv
	assert_regex "$stderr" 'keys [0-9.]+ MiB, now [0-9.]+ MiB, relative error 0\.0[0-9]+'
	said=${stderr#*relative error }
	said=${said%%$'\n'*}
	want=$(PYTHONPATH=$ROOT/python "$PYTHON" -c '
import kvsnapshot, numpy as np
a, b = (kvsnapshot.read(f) for f in ("full.kv", "one.kv"))
x, y = (np.concatenate([h.astype(float).ravel() for l in s.layers for h in l.keys]) for s in (a, b))
print(((x - y) ** 2).sum() ** .5 / (x ** 2).sum() ** .5)')
	less "$(awk -v a="$said" -v b="$want" 'BEGIN { print a < b ? b - a : a - b }')" 0.001
	kv-quantize -j 3 --keys q4_0 --values q8_0 -o three.kv full.kv
	same_values one.kv three.kv s.logical_digest
}

@test "types, widths and layers that cannot be are refused, with a way on" {
	refused() {
		local status=$1 text=$2
		shift 2
		run -"$status" --separate-stderr kv-quantize "$@" -o x.kv
		assert_equal "$stderr" "kv-quantize: $text"
		assert [ ! -e x.kv ]
	}
	refused 2 "--keys or --values is needed" full.kv
	refused 2 "--keys q9_0: want q8_0, q4_0, q4_1, q5_0, int8 or fp8, each also with -hadamard, kivi2 or kivi4, or bf16, f16 or f32" --keys q9_0 full.kv
	refused 2 "--values bf16: rows that are not quantised are f32 here (--dtype)" --values bf16 full.kv
	refused 2 "--skip-layers: '1-' is not a list of layers such as 0,1,30-31" --keys q8_0 --skip-layers 1- full.kv
	mksnapshot -H 4 -G 2 -E 80 -N 9 -o wide.kv
	refused 5 "--keys q8_0-hadamard: the heads of this model have 80 channels, which is no multiple of 32: use int8 or fp8" --keys q8_0-hadamard wide.kv
	refused 5 "--keys int8: the heads of this model have 80 channels, which is no power of 2: use int8 or fp8" --keys int8 --rotate wide.kv
	kv-quantize --keys int8 --values fp8 wide.kv | kv-check -q -
}

@test "a row that a type cannot store is named, and leaves no file" {
	# 1e9 has no scale in f16; -8 of it is beyond 65504
	"$PYTHON" -c 'for i in range(8): print(*([1e9 if i == 5 else 1] + [0] * 31))' >keys
	mksnapshot -H 1 -G 1 -E 32 -N 8 -L 1 -d f32 --keys keys -o big.kv
	run -1 --separate-stderr kv-quantize --keys q4_0 -o x.kv big.kv
	assert_equal "$stderr" "kv-quantize: KEYS layer 0 head 0 row 5: q4_0 cannot store it: a number is not finite, or too large"
	assert [ ! -e x.kv ]
	kv-quantize --keys int8 big.kv | kv-check -q -
}

@test "damaged input leaves no output" {
	kv-quantize --keys q8_0 --values q4_0 -o small.kv full.kv
	head -c 100000 small.kv >cut.kv
	run -3 kv-quantize --keys f32 --values f32 -o x.kv cut.kv
	assert_output --partial 'truncated'
	assert [ ! -e x.kv ]
	run -3 kv-decode -m "$DEMO" -n 1 cut.kv
	assert_output --partial 'truncated'
}

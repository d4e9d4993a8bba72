#!/usr/bin/env bats
# A GGUF file with weights in blocks (Q4_0 to Q8_0, MXFP4, Q4_K to Q6_K): computed from as they are stored, beside a folder that has the numbers of the same blocks in f32

load helper

setup_file() {
	load helper
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || exit 1
	random_model random --heads 8 --kv-heads 2 --head-dim 32 --hidden 256 --ffn 512 --seed 5 --layers 2 --dtype f32
	seq 3 2 240 >text.ids
	seq 7 5 200 >next.ids
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# blocks TYPE: TYPE.gguf and the folder TYPE, once
blocks() {
	[ -e "$1.gguf" ] || "$PYTHON" "$ROOT/tests/bin/mkblocks.py" random "$1" "$1.gguf" "$1"
}

# nearness A B: the distance of two files of logits, relative to the second
nearness() {
	"$PYTHON" -c 'import sys, numpy as np
a, b = (np.load(f).astype(float) for f in sys.argv[1:])
print(np.linalg.norm(a - b) / np.linalg.norm(b))' "$@"
}

@test "with --products f32 the logits are bit for bit those of the numbers in f32, for every type" {
	local type
	for type in q4_0 q4_1 q5_0 q5_1 q8_0 mxfp4 q4_k q5_k q6_k mixed; do
		blocks $type
		kv-prefill -m $type --ids --dtype f32 -o folder.kv text.ids
		kv-prefill -m $type.gguf --products f32 --ids --dtype f32 -o file.kv text.ids
		kv-decode -m $type --ids --force next.ids --logits folder.npy folder.kv >folder.nll
		kv-decode -m $type.gguf --products f32 --ids --force next.ids --logits file.npy file.kv >file.nll
		cmp folder.npy file.npy
	done
}

@test "experts in blocks are those of the numbers in f32, and a row alone is what it is among others" {
	local type
	[ -d experts ] || { cp -r random experts && "$PYTHON" "$ROOT/tests/bin/addexperts.py" experts 5 2 256; }
	for type in q4_0 q8_0 q4_k q6_k mixed; do
		"$PYTHON" "$ROOT/tests/bin/mkblocks.py" experts $type moe-$type.gguf moe-$type
		kv-prefill -m moe-$type --ids --dtype f32 -o folder.kv text.ids
		kv-prefill -m moe-$type.gguf --products f32 --ids --dtype f32 -o file.kv text.ids
		kv-decode -m moe-$type --ids --force next.ids --logits folder.npy folder.kv >folder.nll
		kv-decode -m moe-$type.gguf --products f32 --ids --force next.ids --logits file.npy file.kv >file.nll
		cmp folder.npy file.npy
		kv-decode -m moe-$type.gguf --products auto --ids --force next.ids --logits rounded.npy file.kv >file.nll
		far=$(nearness rounded.npy folder.npy)
		echo "$type: $far"
		# further than in a model without experts: where two are nearly equal the other one may be taken
		awk -v far="$far" 'BEGIN { exit !(far > 1e-5 && far < 0.2) }'
	done
	head -n 60 text.ids | kv-prefill -m moe-mixed.gguf --products auto --ids -o two.kv
	kv-prefill -m moe-mixed.gguf --products auto --ids -w 8 -o one.kv text.ids
	kv-score --method snapkv one.kv | kv-evict -q --rate 0.2 -o small.kv
	for f in one two; do
		kv-decode -m moe-mixed.gguf --products auto --ids --ignore-eos -n 20 -o $f.out.kv $f.kv >$f.ids
	done
	rm -rf both && mkdir both
	kv-decode -m moe-mixed.gguf --products auto --ids --ignore-eos -n 20 -o both one.kv two.kv >both.ids
	cmp both/one.kv one.out.kv
	cmp both/two.kv two.out.kv
	kv-decode -m moe-mixed.gguf --products auto --ids --ignore-eos -n 20 --draft small.kv one.kv | cmp - one.ids
}

@test "without it steps round activations to 8 bits, which moves logits by less than a twentieth" {
	local type far
	for type in q4_0 q5_1 q8_0 mxfp4 q4_k q6_k mixed; do
		blocks $type
		kv-prefill -m $type --ids --dtype f32 -o folder.kv text.ids
		kv-prefill -m $type.gguf --products f32 --ids --dtype f32 -o file.kv text.ids
		kv-decode -m $type --ids --force next.ids --logits folder.npy folder.kv >folder.nll
		kv-decode -m $type.gguf --products auto --ids --force next.ids --logits file.npy file.kv >file.nll
		far=$(nearness file.npy folder.npy)
		echo "$type: $far"
		awk -v far="$far" 'BEGIN { exit !(far > 1e-5 && far < 0.05) }'
	done
}

@test "batches, drafts and threads give the bytes of a text that is decoded alone" {
	export KV_PRODUCTS=auto
	blocks mixed
	kv-prefill -m mixed.gguf --ids -w 8 -o one.kv text.ids
	head -n 60 text.ids | kv-prefill -m mixed.gguf --ids -o two.kv
	kv-score --method snapkv one.kv | kv-evict -q --rate 0.2 -o small.kv
	for f in one two; do
		kv-decode -m mixed.gguf --ids --ignore-eos -n 30 -o $f.out.kv $f.kv >$f.ids
		kv-decode -m mixed.gguf --ids --ignore-eos -n 30 -j 1 $f.kv | cmp - $f.ids
	done
	rm -rf both && mkdir both
	kv-decode -m mixed.gguf --ids --ignore-eos -n 30 -o both one.kv two.kv >both.ids
	cmp both/one.kv one.out.kv
	cmp both/two.kv two.out.kv
	kv-decode -m mixed.gguf --ids --ignore-eos -n 30 --draft small.kv one.kv | cmp - one.ids
}

@test "methods that read weights read blocks: values behind the output projection, and a repeated context" {
	blocks q8_0
	for m in q8_0 q8_0.gguf; do
		kv-prefill -m $m --products f32 --ids --dtype f32 -w 8 --value-norms -o $m.kv text.ids
		kv-observe -m $m --products f32 --repeat-context -o $m.seen.kv $m.kv
		kv-score --method kvzip -o $m.scored.kv $m.seen.kv
	done
	same_values q8_0.scored.kv q8_0.gguf.scored.kv '[l.scores for l in s.layers]'
	same_values q8_0.kv q8_0.gguf.kv '[l.positions for l in s.layers]' '[l.value_norms for l in s.layers]'
}

@test "products of prompts are in bf16 where the processor has them, and -v says how products are rounded" {
	blocks q4_k
	run --separate-stderr kv-prefill -v -m q4_k.gguf --products auto --ids -o v.kv text.ids
	assert_regex "$stderr" 'products of up to 64 rows with weights in blocks: in int8'
	run --separate-stderr kv-prefill -v -m q4_k.gguf --products f32 --ids -o v.kv text.ids
	assert_regex "$stderr" 'products of up to 64 rows with weights in blocks: in f32'
	assert_regex "$stderr" 'products of prompts: in f32'
}

@test "a GPU refuses weights in blocks, and says what computes with them" {
	blocks q4_0
	PATH=$O/emulated:$PATH
	run -5 --separate-stderr kv-prefill -m q4_0.gguf --device cuda --ids text.ids
	assert_regex "$stderr" 'weights of type Q4_0: a GPU computes with F32, F16 and BF16 only \(--device cpu computes with them\)'
}

#!/usr/bin/env bats
# --products: activations rounded to bf16 in products with weights in bf16

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	small_talk 40 | kv-tokenize -m "$DEMO" | head -n 700 >doc.ids
	random_model m --layers 3 --hidden 96 --heads 6 --kv-heads 2 --head-dim 16 --ffn 200 --dtype bf16 --seed 5
	if has_bf16; then
		kv-prefill -m m --device cpu --ids --observe 20 -o f32.kv doc.ids
		kv-prefill -m m --device cpu --ids --observe 20 --products bf16 -o bf16.kv doc.ids
	fi
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	[ ! -e "$BATS_FILE_TMPDIR/bf16.kv" ] || ln -s "$BATS_FILE_TMPDIR"/*.kv .
	ln -s "$BATS_FILE_TMPDIR/doc.ids" "$BATS_FILE_TMPDIR/m" .
}

has_bf16() {
	grep -qw avx512_bf16 /proc/cpuinfo
}

want_bf16() {
	has_bf16 || skip "this processor has no AVX512-BF16"
}

options() {
	kv-info --json "$1" | json - 'o["provenance"][-1]["options"].get("products")'
}

@test "products in bf16 change keys by what rounding explains, and the provenance says so" {
	want_bf16
	run ! cmp -s f32.kv bf16.kv
	errors_below 2e-2 "$PYTHON" "$ORACLE/same.py" f32.kv bf16.kv
	assert_equal "$(options bf16.kv)" bf16
	assert_equal "$(options f32.kv)" None
}

@test "without the option prompts are in bf16 where weights are and the processor can, else in f32" {
	unset KV_PRODUCTS
	local best=f32
	! has_bf16 || best=bf16
	kv-prefill -m m --device cpu --ids --observe 20 -o none.kv doc.ids
	kv-prefill -m m --device cpu --ids --observe 20 --products auto -o auto.kv doc.ids
	kv-prefill -m m --device cpu --ids --observe 20 --products $best -o $best.kv doc.ids
	cmp none.kv $best.kv
	cmp auto.kv $best.kv
	random_model single --layers 2 --hidden 96 --heads 6 --kv-heads 2 --head-dim 16 --ffn 200 --dtype f32 --seed 5
	run -0 --separate-stderr kv-prefill -v -m single --device cpu --ids -o x.kv doc.ids
	assert_regex "$stderr" 'products of prompts: in f32'
	assert_equal "$(options x.kv)" None
}

@test "KV_PRODUCTS says it for all programs, and an option wins over it" {
	want_bf16
	KV_PRODUCTS=bf16 kv-prefill -m m --device cpu --ids --observe 20 -o environment.kv doc.ids
	cmp environment.kv bf16.kv
	KV_PRODUCTS=bf16 kv-prefill -m m --device cpu --ids --products f32 -o option.kv doc.ids
	assert_equal "$(options option.kv)" None
	KV_PRODUCTS=f16 run -2 kv-observe -m m --device cpu --ids-from doc.ids -o x.kv environment.kv
	assert_output --partial "products: 'f16' is not auto, f32 or bf16"
}

@test "products in bf16 are the same bytes with any number of threads" {
	want_bf16
	for j in 1 2 3; do
		kv-prefill -m m --device cpu --ids --observe 20 --products bf16 -j $j -o $j.kv doc.ids
		cmp $j.kv bf16.kv
	done
}

@test "-v says what computes products" {
	want_bf16
	run -0 --separate-stderr kv-prefill -v -m m --device cpu --ids --products bf16 -o x.kv doc.ids
	assert_regex "$stderr" 'avx512bf16, oneDNN'
	assert_regex "$stderr" 'products of prompts: in bf16'
	run -0 --separate-stderr kv-prefill -v -m m --device cpu --ids -o x.kv doc.ids
	assert_regex "$stderr" 'products of prompts: in f32'
}

@test "a processor without the instructions is named, and nothing is written" {
	! has_bf16 || skip "this processor has AVX512-BF16"
	run -1 --separate-stderr kv-prefill -m m --device cpu --ids --products bf16 -o x.kv doc.ids
	assert_regex "$stderr" 'products bf16: this processor has no AVX512-BF16'
	[ ! -e x.kv ]
}

@test "another type than f32 and bf16 is wrong usage, for each program that runs a model" {
	run -2 --separate-stderr kv-prefill -m m --device cpu --ids --products f16 -o x.kv doc.ids
	assert_regex "$stderr" "products: 'f16' is not auto, f32 or bf16"
	kv-prefill -m m --device cpu --ids --observe 4 -o x.kv doc.ids
	run -2 --separate-stderr kv-decode -m m --device cpu --ids -n 1 --products int8 x.kv
	assert_regex "$stderr" "products: 'int8' is not auto, f32 or bf16"
	run -2 --separate-stderr kv-observe -m m --device cpu --repeat-context --products '' -o y.kv x.kv
	assert_regex "$stderr" "products: '' is not auto, f32 or bf16"
}

@test "one token at a time is computed as ever, whatever is asked for" {
	want_bf16
	assert_equal "$(kv-decode -m m --device cpu --ids --ignore-eos -n 20 --products bf16 bf16.kv)" \
	    "$(kv-decode -m m --device cpu --ids --ignore-eos -n 20 bf16.kv)"
}

@test "a store keeps rows of both kinds apart" {
	want_bf16
	kv-prefill -q -m m --device cpu --ids --store S -o x.kv doc.ids
	run -0 --separate-stderr kv-prefill -v -m m --device cpu --ids --store S --products bf16 -o y.kv doc.ids
	assert_regex "$stderr" '0 of 700 tokens from S'
	run -0 --separate-stderr kv-prefill -v -m m --device cpu --ids --store S --products bf16 -o y.kv doc.ids
	assert_regex "$stderr" '512 of 700 tokens from S'
}

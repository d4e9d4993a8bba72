/* simd_table.c - the inner loops of one instruction set, as a table for dispatch.c */
#include "cpu/simd.h"

#define STR_(x) #x
#define STR(x) STR_(x)

const struct simd FN(simd) = {
	.name = STR(ISA),
	.widen = FN(widen),
	.arrange = FN(arrange),
	.dots = FN(dots),
	.add_rows = FN(add_rows),
	.attend = FN(attend),
	.mass = FN(mass),
	.key_scores = FN(key_scores),
	.dequantise = FN(dequantise),
	.pack_bits = FN(pack_bits),
	.pack_page = FN(pack_page),
	.bits_scores = FN(bits_scores),
	.page_scores = FN(page_scores),
	.lse = FN(lse),
	.group_reduce = FN(group_reduce),
	.topk = FN(topk),
	.add_products = FN(add_products),
	.rmsnorm = FN(rmsnorm),
	.layernorm = FN(layernorm),
	.cos_sin = FN(cos_sin),
	.rotate = FN(rotate),
	.transform = FN(transform),
	.swiglu = FN(swiglu),
	.cap = FN(cap),
	.geglu = FN(geglu),
	.round_x = FN(round_x),
	.block_dots = FN(block_dots),
	.widen_blocks = FN(widen_blocks),
	.gelu_tanh = FN(gelu_tanh),
};

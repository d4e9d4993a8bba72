/* cpu_blocks.h - products with weights in blocks (ops/weight_type.h): the order of codes and scales
 * that all block types are brought into, and that of a rounded row of x
 *
 * Weights and x meet in chunks of 256 channels. A chunk of weights is 256 codes of 8 bits, and a
 * scale and a minimum for each 16 of them, whatever the type: weight = scale * code + minimum. x is
 * rounded to codes of 8 bits with a scale for each 32 channels, as llama.cpp rounds it for its
 * Q8_0; sums of products of codes are exact, and are multiplied by both scales in f32. */
#ifndef CPU_BLOCKS_H
#define CPU_BLOCKS_H

#include "cpu/cpu_internal.h"

#define CHUNK 256
#define SCALES (CHUNK / 16)

/* A chunk of weights */
struct chunk {
	uint8_t code[CHUNK];         /* 128 more than the codes */
	float scale[SCALES], min[SCALES];
} __attribute__((aligned(64)));

/* A chunk of a row of x; channels behind the end are 0 */
struct x_chunk {
	int8_t code[CHUNK];
	int32_t bias[CHUNK / 4];     /* -128 times the sum of each four codes */
	float scale[SCALES];         /* the same number twice */
	float sum[SCALES];           /* of each 16 channels */
} __attribute__((aligned(64)));

/* y[n][r] <- x[n] . w[r], as dots() of struct simd, with rows of blocks */
struct block_product {
	float *y;
	size_t ldy;
	const struct x_chunk *x;     /* [N][chunks_of(in)] */
	size_t N;
	const void *w;
	size_t rows, in;
	const float *bias;           /* NULL: none */
	int add;
	struct chunk *decoded;       /* scratch [chunks_of(in)], of use with N > 1 */
};

static inline size_t
chunks_of(size_t in)
{
	return (in + CHUNK - 1) / CHUNK;
}

static inline int
has_min(enum weight_type type)
{
	return type == WEIGHT_Q4_1 || type == WEIGHT_Q5_1 || type == WEIGHT_Q4_K ||
	    type == WEIGHT_Q5_K;
}

#endif

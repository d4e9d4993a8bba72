/* weight_type.h - the types that weights are stored in: elements, and blocks of ggml
 *
 * A block type stores 32 or 256 numbers of a row in a block, with one or two scales: the types of
 * llama.cpp's GGUF files, whose layouts are those of ggml-common.h. A row is a whole number of
 * blocks. */
#ifndef KVPIPE_WEIGHT_TYPE_H
#define KVPIPE_WEIGHT_TYPE_H

#include "libkvfile/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum weight_type {
	WEIGHT_F32 = KV_F32, WEIGHT_F16 = KV_F16, WEIGHT_BF16 = KV_BF16,
	/* 32 numbers: an f16 scale d and codes q, x = d q; with _1 an f16 minimum m, x = d q + m */
	WEIGHT_Q4_0, WEIGHT_Q4_1, WEIGHT_Q5_0, WEIGHT_Q5_1, WEIGHT_Q8_0,
	/* 32 numbers: a scale 2^(e - 127), and codes of 4 bits, e2m1 (OCP Microscaling) */
	WEIGHT_MXFP4,
	/* 256 numbers in groups of 16 or 32, with scales of 6 bits for each group, which an f16
	 * scales; Q4_K and Q5_K have minima, too */
	WEIGHT_Q4_K, WEIGHT_Q5_K, WEIGHT_Q6_K,
	WEIGHT_TYPES                    /* how many there are, and 0 */
};

/* Numbers of a block: 1 for elements; 0 for an invalid type. */
uint32_t weight_block(enum weight_type);
/* "bf16", "q4_0", "q4_k"; NULL for an invalid type. */
const char *weight_type_name(enum weight_type);

/* dst[n] f32 <- n numbers, whole blocks, exactly as ggml's dequantize_row functions: f32
 * arithmetic, each step rounded. src may be unaligned. */
void weight_to_f32(float *dst, const void *src, enum weight_type, size_t n);

/* Returns the bytes of a row of `in` numbers, a whole number of blocks; 0 for an invalid type.
 * Inline, because loops over blocks know their type when they are compiled. */
static inline size_t
weight_row_bytes(enum weight_type type, size_t in)
{
	switch (type) {
	case WEIGHT_F32:
		return in * 4;
	case WEIGHT_F16:
	case WEIGHT_BF16:
		return in * 2;
	case WEIGHT_Q4_0:
		return in / 32 * 18;
	case WEIGHT_Q4_1:
		return in / 32 * 20;
	case WEIGHT_Q5_0:
		return in / 32 * 22;
	case WEIGHT_Q5_1:
		return in / 32 * 24;
	case WEIGHT_Q8_0:
		return in / 32 * 34;
	case WEIGHT_MXFP4:
		return in / 32 * 17;
	case WEIGHT_Q4_K:
		return in / 256 * 144;
	case WEIGHT_Q5_K:
		return in / 256 * 176;
	case WEIGHT_Q6_K:
		return in / 256 * 210;
	default:
		return 0;
	}
}

/* Of a block of MXFP4: half of 2^(e - 127), by which twice the codes are multiplied: these are
 * integers. */
static inline float
weight_mxfp4_scale(uint8_t e)
{
	const uint32_t bits = e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23;
	float d;

	memcpy(&d, &bits, sizeof d);
	return d;
}

/* Of a block of Q4_K or Q5_K: the scales and minima of its eight groups, of 6 bits each, as bytes,
 * that of the first group lowest. */
static inline void
weight_k_scales(const uint8_t packed[12], uint64_t *scales, uint64_t *mins)
{
	const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
	uint32_t w[3];

	memcpy(w, packed, sizeof w);
	*scales = (w[0] & six) | (uint64_t)((w[2] & four) | (w[0] >> 6 & two) << 4) << 32;
	*mins = (w[1] & six) | (uint64_t)((w[2] >> 4 & four) | (w[1] >> 6 & two) << 4) << 32;
}

static inline enum weight_type
weight_type_of(enum kv_dtype elements)
{
	return (enum weight_type)elements;
}

static inline int
weight_is_block(enum weight_type type)
{
	return type > WEIGHT_BF16;
}

#ifdef __cplusplus
}
#endif
#endif

/* simd_quantised.h - rows of any type (libkvfile/rowtype.h) as vectors of f32
 *
 * For cpu/simd_*.c: a row is read where it lies and widened in registers. The numbers are those of
 * kv_rows_to_f32(), to the bit, but before the Walsh-Hadamard transform is undone: the callers pass
 * types without KV_ROW_HADAMARD, and transform queries and outputs instead of rows.
 *
 * The types with blocks of 32 channels have channel i and channel i + 16 in one byte, or at least
 * under one scale. So loops over channels load both together: COLUMNS(type) vectors, COLUMN_STEP
 * channels apart.
 *
 *	for (b = 0; b < E; b += BLOCK(type))
 *		for (e = b; e < b + COLUMN(type); e += VL)
 *			load_columns(x, row, e, type);
 *
 * Types other than these have one vector for each column. Callers pass type as a constant. */
#ifndef SIMD_QUANTISED_H
#define SIMD_QUANTISED_H

#include "cpu/simd.h"

#define COLUMN_STEP 16
#define IS_KIVI(type) ((type) == KV_ROW_KIVI2 || (type) == KV_ROW_KIVI4)
#define HAS_BLOCKS(type) (((type) >= KV_ROW_Q8_0 && (type) <= KV_ROW_Q5_0) || IS_KIVI(type))
#define COLUMNS(type) (HAS_BLOCKS(type) ? 2 : 1)
#define COLUMN(type) (HAS_BLOCKS(type) ? COLUMN_STEP : VL)
#define BLOCK(type) (HAS_BLOCKS(type) ? 2 * COLUMN_STEP : VL)

/* CALL(type) with a type that is a constant */
#define FOR_ROW_TYPE(type, CALL) do { \
	switch (type) { \
	case KV_ROW_BF16: CALL(KV_ROW_BF16); break; \
	case KV_ROW_F16: CALL(KV_ROW_F16); break; \
	case KV_ROW_Q8_0: CALL(KV_ROW_Q8_0); break; \
	case KV_ROW_Q4_0: CALL(KV_ROW_Q4_0); break; \
	case KV_ROW_Q4_1: CALL(KV_ROW_Q4_1); break; \
	case KV_ROW_Q5_0: CALL(KV_ROW_Q5_0); break; \
	case KV_ROW_INT8: CALL(KV_ROW_INT8); break; \
	case KV_ROW_FP8: CALL(KV_ROW_FP8); break; \
	case KV_ROW_KIVI2: CALL(KV_ROW_KIVI2); break; \
	case KV_ROW_KIVI4: CALL(KV_ROW_KIVI4); break; \
	default: CALL(KV_ROW_F32); \
	} \
} while (0)

typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint8_t vb_any __attribute__((vector_size(VL), aligned(1), may_alias));
typedef int8_t vc_any __attribute__((vector_size(VL), aligned(1), may_alias));

/* Bytes of a block, of which a scale, and a minimum or fifth bits, come before the codes */
INLINE size_t
block_bytes(const enum kv_row_type type)
{
	return type == KV_ROW_Q8_0 ? 34 : type == KV_ROW_Q4_0 ? 18 : type == KV_ROW_Q5_0 ? 22 :
	    type == KV_ROW_KIVI2 ? 12 : 20;
}

/* VL bytes as numbers of 32 bits, without a sign and with */
INLINE vu
vload_u8(const unsigned char *p)
{
#if VL == 16
	return (vu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
#elif VL == 8
	return (vu)_mm256_cvtepu8_epi32(_mm_loadu_si64(p));
#else
	return __builtin_convertvector(*(const vb_any *)p, vu);
#endif
}

INLINE vi
vload_i8(const unsigned char *p)
{
#if VL == 16
	return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
#elif VL == 8
	return (vi)_mm256_cvtepi8_epi32(_mm_loadu_si64(p));
#else
	return __builtin_convertvector(*(const vc_any *)p, vi);
#endif
}

/* The f16 at p in all lanes */
INLINE vf
vhalf(const unsigned char *p)
{
	uint16_t half;

	memcpy(&half, p, sizeof half);
#if VL > 4
	return vset(_cvtsh_ss(half));
#else
	{
		const uint16_t all[VL] = { half, half, half, half };

		return vload_f16(all);
	}
#endif
}

/* e4m3 is the upper bits of an f32 without the upper bits of its exponent: 2^120 too small, also
 * where it is subnormal. A NaN, which no writer makes, becomes 480. */
INLINE vf
e4m3(vi code)
{
	return (vf)((vu)code << 20 & 0x87f00000) * 0x1p120f;
}

/* Codes i .. i+VL-1 of a block of KIVI's, as numbers; i is a multiple of VL. A code of 2 bits, or
 * with 16 lanes of 4, is looked up by a permutation that ignores the bits above it: no mask, no
 * conversion. */
INLINE vf
kivi_codes(const unsigned char *block, const size_t i, const enum kv_row_type type)
{
	const unsigned bits = type == KV_ROW_KIVI2 ? 2 : 4;
	uint32_t word;
#if VL == 16
	const __m512i shift = bits == 2 ?
	    _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) :
	    _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
	const __m512 twos = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
	const __m512 fours = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
	__m512i words;

	if (bits == 2) {
		memcpy(&word, block + 4 + i / 4, sizeof word);
		words = _mm512_set1_epi32((int)word);
	} else
		words = _mm512_permutexvar_epi32(halves, _mm512_castsi128_si512(
		    _mm_loadu_si64(block + 4 + i / 2)));
	return _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shift), bits == 2 ? twos : fours);
#else
	vu words, shift;
	unsigned lane;

	memcpy(&word, block + 4 + i * bits / 32 * 4, sizeof word);
	words = (vu){ 0 } + word;
	for (lane = 0; lane < VL; lane++)
		shift[lane] = (uint32_t)(i * bits % 32) + lane * bits;
#if VL == 8
	if (bits == 2)
		return _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 1, 2, 3, 0, 1, 2, 3),
		    (__m256i)(words >> shift));
#endif
	return __builtin_convertvector((vi)(words >> shift & ((1u << bits) - 1)), vf);
#endif
}

/* Scale and minimum of a block of KIVI's, in all lanes each */
INLINE void
kivi_scale(vf *scale, vf *least, const unsigned char *block)
{
#if VL > 4
	int both;

	memcpy(&both, block, sizeof both);
#endif
#if VL == 16
	*least = _mm512_cvtph_ps(_mm256_set1_epi32(both));
	*scale = _mm512_moveldup_ps(*least);
	*least = _mm512_movehdup_ps(*least);
#elif VL == 8
	*least = _mm256_cvtph_ps(_mm_set1_epi32(both));
	*scale = _mm256_moveldup_ps(*least);
	*least = _mm256_movehdup_ps(*least);
#else
	*scale = vhalf(block);
	*least = vhalf(block + 2);
#endif
}

/* Channels 16 upper + at .. of a block, at + VL <= 16 */
INLINE vf
load_in_block(const unsigned char *block, size_t at, const int upper, const enum kv_row_type type)
{
	const unsigned char *code = block + block_bytes(type) - 16 + at;
	const vf d = vhalf(block);
	uint32_t fifth;
	vu four, bit;
	int i;

	if (IS_KIVI(type))
		return kivi_codes(block, 16 * (size_t)upper + at, type) * d + vhalf(block + 2);
	if (type == KV_ROW_Q8_0)
		return __builtin_convertvector(vload_i8(block + 2 + 16 * upper + at), vf) * d;
	four = vload_u8(code);
	four = upper ? four >> 4 : four & 15;
	if (type == KV_ROW_Q4_0)
		return __builtin_convertvector((vi)four - 8, vf) * d;
	if (type == KV_ROW_Q4_1)
		return __builtin_convertvector((vi)four, vf) * d + vhalf(block + 2);
	memcpy(&fifth, block + 2, sizeof fifth);
	for (i = 0; i < VL; i++)
		bit[i] = 1u << i;
	bit &= (vu){ 0 } + (fifth >> (at + 16 * upper));
	return __builtin_convertvector((vi)(four | ((vu)(bit != 0) & 16)) - 16, vf) * d;
}

/* Codes at p of the types that have a scale for the whole row, as numbers */
INLINE vf
load_codes(const unsigned char *p, const enum kv_row_type type)
{
	return type == KV_ROW_INT8 ? __builtin_convertvector(vload_i8(p), vf) : e4m3(vload_i8(p));
}

INLINE vf
row_scale(const char *row)
{
	float scale;

	memcpy(&scale, row, sizeof scale);
	return vset(scale);
}

/* Channels e .. e+VL-1 of a row; e is a multiple of VL. */
INLINE vf
load_channels(const char *row, size_t e, const enum kv_row_type type)
{
	if (!HAS_BLOCKS(type) && type < KV_ROW_INT8)
		return vload_as(row, e, (enum kv_dtype)type);
	if (!HAS_BLOCKS(type))
		return load_codes((const unsigned char *)row + 4 + e, type) * row_scale(row);
	row += e / 32 * block_bytes(type);
	return e % 32 < 16 ? load_in_block((const unsigned char *)row, e % 16, 0, type) :
	    load_in_block((const unsigned char *)row, e % 16, 1, type);
}

/* As load_channels(), of n <= VL channels, the other lanes 0; nothing after them is read. */
INLINE vf
load_channels_part(const char *row, size_t e, size_t n, const enum kv_row_type type)
{
	unsigned char code[VL] = { 0 };

	if (n == VL || HAS_BLOCKS(type))       /* blocks are whole */
		return load_channels(row, e, type);
	if (type < KV_ROW_Q8_0)
		return vload_part(row, e, n, (enum kv_dtype)type);
	memcpy(code, row + 4 + e, n);
	return load_codes(code, type) * row_scale(row);
}

/* x[COLUMNS(type)] <- channels e .. and those COLUMN_STEP after them */
INLINE void
load_columns(vf *x, const char *row, size_t e, const enum kv_row_type type)
{
	const unsigned char *block = (const unsigned char *)row + e / 32 * block_bytes(type);
	vf scale, least;

	if (!HAS_BLOCKS(type)) {
		x[0] = load_channels(row, e, type);
		return;
	}
	if (IS_KIVI(type)) {
		kivi_scale(&scale, &least, block);
		x[0] = vmadd(kivi_codes(block, e % 16, type), scale, least);
		x[1] = vmadd(kivi_codes(block, 16 + e % 16, type), scale, least);
		return;
	}
	x[0] = load_in_block(block, e % 16, 0, type);
	x[1] = load_in_block(block, e % 16, 1, type);
}

/* to[width] <- a row, then zeros; width is E, or more */
INLINE void
widen_row(float *to, size_t width, const char *row, const enum kv_row_type type, size_t E)
{
	size_t e, n;
	vf v;

	for (e = 0; e + VL <= E; e += VL)
		vstore(to + e, load_channels(row, e, type));
	for (; e < width; e += n) {
		n = width - e < VL ? width - e : VL;
		v = e < E ? load_channels_part(row, e, E - e, type) : vset(0);
		memcpy(to + e, &v, n * sizeof *to);
	}
}

#endif

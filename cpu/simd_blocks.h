/* simd_blocks.h - block types, as chunks of codes and scales (cpu_blocks.h)
 *
 * Included by simd_blocks.c, which is compiled for each instruction set, and by vnni_blocks.c. The
 * layouts are those of ops/weight_type.c, which says them plainly. */
#ifndef SIMD_BLOCKS_H
#define SIMD_BLOCKS_H

#include <float.h>

#include "cpu/cpu_blocks.h"
#include "cpu/simd.h"

#define BLOCK_TYPES(X) X(WEIGHT_Q4_0) X(WEIGHT_Q4_1) X(WEIGHT_Q5_0) X(WEIGHT_Q5_1) \
	X(WEIGHT_Q8_0) X(WEIGHT_MXFP4) X(WEIGHT_Q4_K) X(WEIGHT_Q5_K) X(WEIGHT_Q6_K)

/* Returns the number to add to a stored code, so that the sum is 128 more than the signed code. */
INLINE int
code_base(const enum weight_type type)
{
	switch (type) {
	case WEIGHT_Q4_0:
		return 128 - 8;
	case WEIGHT_Q5_0:
		return 128 - 16;
	case WEIGHT_Q6_K:
		return 128 - 32;
	default:
		return 128;
	}
}

/* Bytes of a block of 32 in front of its four lower bits, or of its codes */
INLINE size_t
codes_at(const enum weight_type type)
{
	switch (type) {
	case WEIGHT_MXFP4:
		return 1;
	case WEIGHT_Q4_1:
		return 4;
	case WEIGHT_Q5_0:
		return 6;
	case WEIGHT_Q5_1:
		return 8;
	default:
		return 2;
	}
}

/* ---- codes ---- */

#if defined(__AVX2__)
INLINE __m256i
vbyte(int x)
{
	return _mm256_set1_epi8((char)x);
}

/* The bytes 0x10 where a bit is set: of 32 */
INLINE __m256i
fifth_bits(const uint8_t *p)
{
	const __m256i which = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
	    0x0303030303030303);
	const __m256i mask = _mm256_set1_epi64x((long long)0x8040201008040201);
	uint32_t bits;
	__m256i all;

	memcpy(&bits, p, sizeof bits);
	all = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), which);
	return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(all, mask), mask),
	    vbyte(0x10));
}

/* to[64] <- a, b. One store, where a load takes as much: two cannot be forwarded to it. */
INLINE void
store_codes(uint8_t *to, __m256i a, __m256i b)
{
#if defined(__AVX512F__)
	_mm512_store_si512(to, _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
#else
	_mm256_store_si256((void *)to, a);
	_mm256_store_si256((void *)(to + 32), b);
#endif
}

/* to[16] <- a, b */
INLINE void
store_floats(float *to, __m256 a, __m256 b)
{
	store_codes((uint8_t *)to, _mm256_castps_si256(a), _mm256_castps_si256(b));
}

/* The codes of a block of 32 */
INLINE __m256i
block_codes(const uint8_t *b, const enum weight_type type)
{
	const int8_t twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
	const uint8_t *at = b + codes_at(type);
	__m256i q;
	__m128i low;

	if (type == WEIGHT_Q8_0) {
		q = _mm256_loadu_si256((const void *)at);
	} else {
		low = _mm_loadu_si128((const void *)at);
		q = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(low, 4), low), vbyte(15));
	}
	if (type == WEIGHT_Q5_0 || type == WEIGHT_Q5_1)
		q = _mm256_or_si256(q, fifth_bits(at - 4));
	if (type == WEIGHT_MXFP4)
		q = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(
		    _mm_loadu_si128((const void *)twice)), q);
	return _mm256_add_epi8(q, vbyte(code_base(type)));
}

/* The codes of two blocks of 32 */
INLINE void
pair_codes(uint8_t *to, const uint8_t *b, const enum weight_type type)
{
	store_codes(to, block_codes(b, type), block_codes(b + weight_row_bytes(type, 32), type));
}

/* The codes of groups 2p and 2p + 1 of Q4_K and Q5_K */
INLINE void
k_codes(uint8_t *to, const uint8_t *b, const int p, const enum weight_type type)
{
	const __m256i q = _mm256_loadu_si256((const void *)(b + (type == WEIGHT_Q5_K ? 48 : 16) +
	    32 * p));
	__m256i even = _mm256_and_si256(q, vbyte(15)), high;
	__m256i odd = _mm256_and_si256(_mm256_srli_epi16(q, 4), vbyte(15));

	if (type == WEIGHT_Q5_K) {
		high = _mm256_srl_epi16(_mm256_loadu_si256((const void *)(b + 16)),
		    _mm_cvtsi32_si128(2 * p));
		even = _mm256_or_si256(even, _mm256_slli_epi16(
		    _mm256_and_si256(high, vbyte(1)), 4));
		odd = _mm256_or_si256(odd, _mm256_slli_epi16(
		    _mm256_and_si256(high, vbyte(2)), 3));
	}
	store_codes(to, _mm256_or_si256(even, vbyte(0x80)), _mm256_or_si256(odd, vbyte(0x80)));
}

INLINE __m256i
q6_k_run(const uint8_t *b, const int h, const int r)
{
	const __m256i low = _mm256_srl_epi16(_mm256_loadu_si256((const void *)(b + 64 * h +
	    r % 2 * 32)), _mm_cvtsi32_si128(r / 2 * 4));
	const __m256i high = _mm256_srl_epi16(_mm256_loadu_si256((const void *)(b + 128 + 32 * h)),
	    _mm_cvtsi32_si128(2 * r));
	const __m256i code = _mm256_or_si256(_mm256_and_si256(low, vbyte(15)),
	    _mm256_slli_epi16(_mm256_and_si256(high, vbyte(3)), 4));

	return _mm256_add_epi8(code, vbyte(code_base(WEIGHT_Q6_K)));
}

/* The codes of runs r and r + 1 of 32 of half h of Q6_K */
INLINE void
q6_k_codes(uint8_t *to, const uint8_t *b, const int h, const int r)
{
	store_codes(to, q6_k_run(b, h, r), q6_k_run(b, h, r + 1));
}
#else
INLINE void
pair_codes(uint8_t *to, const uint8_t *b, const enum weight_type type)
{
	static const int8_t twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8,
		-12 };
	const uint8_t *at = b + codes_at(type);
	int i, q, n;

	for (n = 0; n < 2; n++, at += weight_row_bytes(type, 32))
		for (i = 0; i < 32; i++) {
			q = type == WEIGHT_Q8_0 ? at[i] : i < 16 ? at[i] & 15 : at[i - 16] >> 4;
			if (type == WEIGHT_Q5_0 || type == WEIGHT_Q5_1)
				q |= (at[i / 8 - 4] >> i % 8 & 1) << 4;
			if (type == WEIGHT_MXFP4)
				q = twice[q];
			to[32 * n + i] = (uint8_t)(q + code_base(type));
		}
}

INLINE void
k_codes(uint8_t *to, const uint8_t *b, const int p, const enum weight_type type)
{
	const uint8_t *at = b + (type == WEIGHT_Q5_K ? 48 : 16) + 32 * p;
	int i, g, q;

	for (g = 0; g < 2; g++)
		for (i = 0; i < 32; i++) {
			q = at[i] >> 4 * g & 15;
			if (type == WEIGHT_Q5_K)
				q |= (b[16 + i] >> (2 * p + g) & 1) << 4;
			to[32 * g + i] = (uint8_t)(q + 128);
		}
}

INLINE void
q6_k_codes(uint8_t *to, const uint8_t *b, const int h, const int r)
{
	int i, q;

	for (i = 0; i < 64; i++) {
		q = b[64 * h + i] >> r / 2 * 4 & 15;
		q |= (b[128 + 32 * h + i % 32] >> 2 * (r + i / 32) & 3) << 4;
		to[i] = (uint8_t)(q + code_base(WEIGHT_Q6_K));
	}
}
#endif

/* ---- chunks ---- */

INLINE float
half_at(const uint8_t *p)
{
#if defined(__F16C__)
	uint16_t h;

	memcpy(&h, p, sizeof h);
	return _cvtsh_ss(h);
#else
	float x;

	kv_to_f32(&x, p, KV_F16, 1);
	return x;
#endif
}

#if defined(__AVX2__)
/* to[16] <- eight numbers, each twice */
INLINE void
store_twice(float *to, __m256 x)
{
	const __m256 low = _mm256_unpacklo_ps(x, x), high = _mm256_unpackhi_ps(x, x);

	store_floats(to, _mm256_permute2f128_ps(low, high, 0x20),
	    _mm256_permute2f128_ps(low, high, 0x31));
}
#endif

#if defined(__F16C__)
/* Eight halves, `bytes` apart */
INLINE __m128i
eight_halves(const uint8_t *w, size_t bytes)
{
	uint16_t h[8];
	int g;

UNROLL	for (g = 0; g < 8; g++)
		memcpy(&h[g], w + g * bytes, sizeof h[g]);
	return _mm_set_epi16((short)h[7], (short)h[6], (short)h[5], (short)h[4], (short)h[3],
	    (short)h[2], (short)h[1], (short)h[0]);
}
#endif

/* to[16] <- eight halves, `bytes` apart, each of them twice */
INLINE void
halves_twice(float *to, const uint8_t *w, size_t bytes)
{
#if defined(__F16C__)
	store_twice(to, _mm256_cvtph_ps(eight_halves(w, bytes)));
#else
	int g;

	for (g = 0; g < 8; g++)
		to[2 * g] = to[2 * g + 1] = half_at(w + g * bytes);
#endif
}

/* to[16] <- the scales of eight blocks of MXFP4, each twice: weight_mxfp4_scale() */
INLINE void
mxfp4_scales(float *to, const uint8_t *w)
{
#if defined(__AVX2__)
	const __m256i one = _mm256_set1_epi32(1), e = _mm256_setr_epi32(w[0], w[17], w[34], w[51],
	    w[68], w[85], w[102], w[119]);
	const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
	const __m256i less = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);

	store_twice(to, _mm256_castsi256_ps(_mm256_blendv_epi8(less, normal,
	    _mm256_cmpgt_epi32(e, one))));
#else
	int g;

	for (g = 0; g < 8; g++)
		to[2 * g] = to[2 * g + 1] = weight_mxfp4_scale(w[17 * g]);
#endif
}

/* Eight blocks of 32 */
INLINE void
decode_blocks(struct chunk *c, const uint8_t *w, const enum weight_type type)
{
	const size_t bytes = weight_row_bytes(type, 32);
	size_t g;

	if (type != WEIGHT_MXFP4)
		halves_twice(c->scale, w, bytes);
	if (has_min(type))
		halves_twice(c->min, w + 2, bytes);
	if (type == WEIGHT_MXFP4)
		mxfp4_scales(c->scale, w);
UNROLL	for (g = 0; g < CHUNK / 32; g += 2)
		pair_codes(c->code + 32 * g, w + g * bytes, type);
}

/* to[16] <- by times eight bytes, each twice */
INLINE void
bytes_twice(float *to, uint64_t bytes, float by)
{
#if defined(__AVX2__)
	store_twice(to, _mm256_mul_ps(_mm256_set1_ps(by), _mm256_cvtepi32_ps(
	    _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes)))));
#else
	int g;

	for (g = 0; g < 8; g++)
		to[2 * g] = to[2 * g + 1] = by * (float)(bytes >> 8 * g & 255);
#endif
}

INLINE void
decode_k(struct chunk *c, const uint8_t *w, const enum weight_type type)
{
	const float d = half_at(w), m = half_at(w + 2);
	uint64_t scales, mins;
	int g;

	weight_k_scales(w + 4, &scales, &mins);
	bytes_twice(c->scale, scales, d);
	bytes_twice(c->min, mins, -m);
UNROLL	for (g = 0; g < 4; g++)
		k_codes(c->code + 64 * g, w, g, type);
}

#if defined(__AVX2__)
/* by times eight bytes */
INLINE __m256
signed_bytes(const uint8_t *b, float by)
{
	return _mm256_mul_ps(_mm256_set1_ps(by), _mm256_cvtepi32_ps(
	    _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)b))));
}
#endif

INLINE void
decode_q6_k(struct chunk *c, const uint8_t *w)
{
	const float d = half_at(w + 208);
	int g;

#if defined(__AVX2__)
	store_floats(c->scale, signed_bytes(w + 192, d), signed_bytes(w + 200, d));
#else
	for (g = 0; g < SCALES; g++)
		c->scale[g] = d * (float)(int8_t)w[192 + g];
#endif
UNROLL	for (g = 0; g < 8; g += 2)
		q6_k_codes(c->code + 32 * g, w, g / 4, g % 4);
}

INLINE void
decode(struct chunk *c, const uint8_t *w, const enum weight_type type)
{
	if (type == WEIGHT_Q6_K)
		decode_q6_k(c, w);
	else if (type == WEIGHT_Q4_K || type == WEIGHT_Q5_K)
		decode_k(c, w, type);
	else
		decode_blocks(c, w, type);
}

/* As decode(), for the first n channels of blocks of 32 only: the others, and their scales, are
 * anything. What is behind them is read, up to a whole chunk. */
INLINE void
decode_begin(struct chunk *c, const uint8_t *w, const enum weight_type type, size_t n)
{
	const size_t bytes = weight_row_bytes(type, 32);
	size_t g;

	if (type == WEIGHT_MXFP4)
		mxfp4_scales(c->scale, w);
	else
		halves_twice(c->scale, w, bytes);
	if (has_min(type))
		halves_twice(c->min, w + 2, bytes);
	for (g = 0; 32 * g < n; g += 2)
		pair_codes(c->code + 32 * g, w + g * bytes, type);
}

/* As decode(), for the first n channels only, whole blocks; the others are 0. Nothing behind them
 * is read. */
INLINE void
decode_part(struct chunk *c, const uint8_t *w, const enum weight_type type, size_t n)
{
	uint8_t part[(CHUNK / 32) * 34];

	if (n == CHUNK) {
		decode(c, w, type);
		return;
	}
	memset(part, 0, sizeof part);
	memcpy(part, w, weight_row_bytes(type, n));
	decode(c, part, type);
}

#endif

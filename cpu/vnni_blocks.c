/* vnni_blocks.c - products of a few rows of x with weights in blocks, with the instructions of
 * AVX512-VNNI: the sums of four products of 64 codes at once
 *
 * The instruction wants codes of weights without a sign. For one row of x they are the stored
 * codes, which stay in registers, and a bias takes away what they are more than the signed ones;
 * for several rows they are decoded to memory once (cpu_blocks.h). Both give the same integers, and
 * the sums in f32 have the same order. */
#if defined(__AVX512VNNI__)
#include "cpu/simd_blocks.h"

typedef __m512 sums;

INLINE sums
no_sum(void)
{
	return _mm512_setzero_ps();
}

/* The scales `by` of the 16 channels of each fourth of 64 v on */
INLINE __m512
scales_at(__m512 by, int v)
{
	const __m512i fours = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);

	return _mm512_permutexvar_ps(_mm512_add_epi32(fours, _mm512_set1_epi32(4 * v)), by);
}

/* sum + the products of a chunk, of which there are the sums of fours, the scales of each 16
 * channels, and a minimum. They are added up before they meet the sum, for which the next chunk
 * waits. */
INLINE sums
add_fours(sums sum, const __m512i four[CHUNK / 64], __m512 by, const int with_min, __m512 min,
    __m512 x)
{
	sums even = _mm512_mul_ps(_mm512_cvtepi32_ps(four[0]), scales_at(by, 0));
	sums odd = _mm512_mul_ps(_mm512_cvtepi32_ps(four[1]), scales_at(by, 1));

	even = _mm512_fmadd_ps(_mm512_cvtepi32_ps(four[2]), scales_at(by, 2), even);
	odd = _mm512_fmadd_ps(_mm512_cvtepi32_ps(four[3]), scales_at(by, 3), odd);
	if (with_min)
		even = _mm512_fmadd_ps(min, x, even);
	return _mm512_add_ps(sum, _mm512_add_ps(even, odd));
}

INLINE sums
add_chunk(sums sum, const struct chunk *w, const struct x_chunk *x, const enum weight_type type)
{
	__m512i four[CHUNK / 64];
	size_t v;

UNROLL	for (v = 0; v < CHUNK / 64; v++)
		four[v] = _mm512_dpbusd_epi32(_mm512_load_si512(x->bias + 16 * v),
		    _mm512_load_si512(w->code + 64 * v), _mm512_load_si512(x->code + 64 * v));
	return add_fours(sum, four, _mm512_mul_ps(_mm512_load_ps(w->scale),
	    _mm512_load_ps(x->scale)), has_min(type), _mm512_load_ps(w->min),
	    _mm512_load_ps(x->sum));
}

/* ---- codes, for one row of x: 64 of them, of channels 64 v on ---- */

INLINE __m512i
both(__m256i low, __m256i high)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

INLINE __m512i
vbytes(int x)
{
	return _mm512_set1_epi8((char)x);
}

/* x >> even in the first 32 bytes, and >> odd in the others; bits come over from the next byte */
INLINE __m512i
shift_halves(__m512i x, int even, int odd)
{
	return _mm512_srlv_epi16(x, both(_mm256_set1_epi16((short)even),
	    _mm256_set1_epi16((short)odd)));
}

/* Four bits of each code of two blocks of 32 */
INLINE __m512i
pair_nibbles(const uint8_t *a, const uint8_t *b)
{
	const __m512i four = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
	    0x0004000400040004, 0x0004000400040004, 0, 0);
	const __m512i twice = _mm512_mask_broadcast_i32x4(
	    _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)a)), 0xff00,
	    _mm_loadu_si128((const void *)b));

	return _mm512_and_si512(_mm512_srlv_epi16(twice, four), vbytes(15));
}

INLINE __m512i
pair_of(const uint8_t *w, const size_t v, const enum weight_type type)
{
	const __m512i twice = _mm512_broadcast_i32x4(_mm_setr_epi8((char)128, (char)129, (char)130,
	    (char)131, (char)132, (char)134, (char)136, (char)140, (char)128, 127, 126, 125, 124,
	    122, 120, 116));
	const size_t block = weight_row_bytes(type, 32);
	const uint8_t *a = w + 2 * v * block + codes_at(type), *b = a + block;
	uint32_t fifth[2];
	__m512i q;

	if (type == WEIGHT_Q8_0)
		return _mm512_xor_si512(both(_mm256_loadu_si256((const void *)a),
		    _mm256_loadu_si256((const void *)b)), vbytes(0x80));
	q = pair_nibbles(a, b);
	if (type == WEIGHT_MXFP4)
		q = _mm512_shuffle_epi8(twice, q);
	if (type == WEIGHT_Q5_0 || type == WEIGHT_Q5_1) {
		memcpy(&fifth[0], a - 4, 4);
		memcpy(&fifth[1], b - 4, 4);
		q = _mm512_mask_add_epi8(q, fifth[0] | (__mmask64)fifth[1] << 32, q, vbytes(16));
	}
	return q;
}

INLINE __m512i
k_of(const uint8_t *w, const size_t v, const enum weight_type type)
{
	const __m512i low = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(w +
	    (type == WEIGHT_Q5_K ? 48 : 16) + 32 * v)));
	const __m512i q = _mm512_and_si512(shift_halves(low, 0, 4), vbytes(15));

	if (type == WEIGHT_Q4_K)
		return q;
	return _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(
	    _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(w + 16))),
	    both(vbyte(1 << 2 * v), vbyte(2 << 2 * v))), q, vbytes(16));
}

INLINE __m512i
q6_k_of(const uint8_t *w, const size_t v)
{
	const int half = (int)v / 2, upper = v % 2;
	const __m512i low = _mm512_loadu_si512(w + 64 * half);
	const __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(w + 128 +
	    32 * half)));

	return _mm512_or_si512(
	    _mm512_and_si512(upper ? _mm512_srli_epi16(low, 4) : low, vbytes(15)),
	    _mm512_and_si512(_mm512_slli_epi16(shift_halves(high, 4 * upper, 4 * upper + 2), 4),
	    vbytes(0x30)));
}

INLINE __m512i
codes_of(const uint8_t *w, const size_t v, const enum weight_type type)
{
	if (type == WEIGHT_Q6_K)
		return q6_k_of(w, v);
	if (type == WEIGHT_Q4_K || type == WEIGHT_Q5_K)
		return k_of(w, v, type);
	return pair_of(w, v, type);
}

/* Minus the sums of each four codes of x, times what codes_of() is more than the signed codes */
INLINE __m512i
bias_of(const struct x_chunk *x, const size_t v, const enum weight_type type)
{
	const __m512i bias = _mm512_load_si512(x->bias + 16 * v);

	switch (type) {
	case WEIGHT_Q4_0:
		return _mm512_srai_epi32(bias, 4);              /* 8 */
	case WEIGHT_Q5_0:
		return _mm512_srai_epi32(bias, 3);              /* 16 */
	case WEIGHT_Q6_K:
		return _mm512_srai_epi32(bias, 2);              /* 32 */
	case WEIGHT_Q8_0:
	case WEIGHT_MXFP4:
		return bias;
	default:
		return _mm512_setzero_si512();
	}
}

/* ---- scales and minima of a chunk, each for 16 channels ---- */

INLINE __m512
eight_scales(const uint8_t *w, const size_t block)
{
	const __m128i x = eight_halves(w, block);

	return _mm512_cvtph_ps(_mm256_set_m128i(_mm_unpackhi_epi16(x, x),
	    _mm_unpacklo_epi16(x, x)));
}

INLINE __m512
all_half(const uint8_t *w)
{
	short h;

	memcpy(&h, w, sizeof h);
	return _mm512_cvtph_ps(_mm256_set1_epi16(h));
}

/* Sixteen bytes without a sign, times `by` */
INLINE __m512
scaled_bytes(__m128i x, __m512 by)
{
	return _mm512_mul_ps(by, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(x)));
}

/* The scales and minima of Q4_K and Q5_K, 6 bits each (weight_k_scales), every one twice */
INLINE __m256i
k_scales(const uint8_t *w)
{
	const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)w));
	const __m256i at = _mm256_setr_epi8(4, 4, 5, 5, 6, 6, 7, 7, 12, 12, 13, 13, 14, 14, 15, 15,
	    8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15);
	const __m256i upper_at = _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 4, 4, 5, 5, 6, 6,
	    7, 7, -1, -1, -1, -1, -1, -1, -1, -1, 8, 8, 9, 9, 10, 10, 11, 11);
	const __m256i shift = _mm256_setr_epi64x(0, 0, 0, 0x0004000400040004);
	const __m256i low = _mm256_setr_epi64x(0x3f3f3f3f3f3f3f3f, 0x0f0f0f0f0f0f0f0f,
	    0x3f3f3f3f3f3f3f3f, 0x0f0f0f0f0f0f0f0f);

	return _mm256_or_si256(
	    _mm256_and_si256(_mm256_srlv_epi16(_mm256_shuffle_epi8(all, at), shift), low),
	    _mm256_and_si256(_mm256_srli_epi16(_mm256_shuffle_epi8(all, upper_at), 2),
	    vbyte(0x30)));
}

/* min: for types that have one */
INLINE __m512
scale_and_min(const uint8_t *w, const enum weight_type type, __m512 *min)
{
	const size_t block = weight_row_bytes(type, 32);
	struct chunk c;
	__m256i k;

	if (type == WEIGHT_MXFP4) {
		mxfp4_scales(c.scale, w);
		return _mm512_load_ps(c.scale);
	}
	if (type == WEIGHT_Q6_K)
		return _mm512_mul_ps(all_half(w + 208), _mm512_cvtepi32_ps(
		    _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(w + 192)))));
	if (type == WEIGHT_Q4_K || type == WEIGHT_Q5_K) {
		k = k_scales(w);
		*min = scaled_bytes(_mm256_extracti128_si256(k, 1),
		    _mm512_sub_ps(_mm512_set1_ps(-0.0f), all_half(w + 2)));
		return scaled_bytes(_mm256_castsi256_si128(k), all_half(w));
	}
	if (has_min(type))
		*min = eight_scales(w + 2, block);
	return eight_scales(w, block);
}

/* ---- one row of x ---- */

INLINE __m512i
fours_of(const uint8_t *w, const struct x_chunk *x, const enum weight_type type, const size_t v)
{
	return _mm512_dpbusd_epi32(bias_of(x, v, type), codes_of(w, v, type),
	    _mm512_load_si512(x->code + 64 * v));
}

/* As add_chunk(), of the first n channels of a chunk. What is behind them is read, up to a whole
 * chunk. */
INLINE sums
add_blocks(sums sum, const uint8_t *w, const struct x_chunk *x, const enum weight_type type,
    const size_t n)
{
	const __mmask16 some = (__mmask16)((1u << n / 16) - 1);
	const __m512i none = _mm512_setzero_si512();
	__m512 min = _mm512_setzero_ps(), by = scale_and_min(w, type, &min);
	const __m512i four[CHUNK / 64] = { fours_of(w, x, type, 0),
		n > 64 ? fours_of(w, x, type, 1) : none,
		n > 128 ? fours_of(w, x, type, 2) : none,
		n > 192 ? fours_of(w, x, type, 3) : none };

	return add_fours(sum, four, _mm512_maskz_mul_ps(some, by, _mm512_load_ps(x->scale)),
	    has_min(type), _mm512_maskz_mov_ps(some, min), _mm512_load_ps(x->sum));
}

INLINE float
total(sums s)
{
	return vsum(s);
}

#define BLOCK_DOTS block_dots_vnni
void block_dots_vnni(const struct block_product *, enum weight_type);
#include "cpu/simd_blockdots.h"
#else
typedef int no_vnni_here;            /* a file has at least a declaration */
#endif

/* vnni_blocks.c - products of a few rows of x with weights in blocks, with the instructions of
 * AVX512-VNNI: the sums of four products of 64 codes at once, from 128 more than the weights' codes
 * and a bias that takes that away */
#if defined(__AVX512VNNI__)
#include "cpu/simd_blocks.h"

typedef __m512 sums;

INLINE sums
no_sum(void)
{
	return _mm512_setzero_ps();
}

/* n: channels that count */
INLINE sums
add_chunk(sums sum, const struct chunk *w, const struct x_chunk *x, const enum weight_type type,
    const size_t n)
{
	const __m512i fours = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
	const __mmask16 some = (__mmask16)((1u << n / 16) - 1);
	const __m512 by = _mm512_maskz_mul_ps(some, _mm512_load_ps(w->scale),
	    _mm512_load_ps(x->scale));
	__m512i four;
	size_t v;

UNROLL	for (v = 0; 64 * v < n; v++) {
		four = _mm512_dpbusd_epi32(_mm512_load_si512(x->bias + 16 * v),
		    _mm512_load_si512(w->code + 64 * v), _mm512_load_si512(x->code + 64 * v));
		sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(four), _mm512_permutexvar_ps(
		    _mm512_add_epi32(fours, _mm512_set1_epi32(4 * (int)v)), by), sum);
	}
	return has_min(type) ? _mm512_mask3_fmadd_ps(_mm512_load_ps(w->min),
	    _mm512_load_ps(x->sum), sum, some) : sum;
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

/* simd.h - the vector of one instruction set, and the operations that C has no operator for
 *
 * Included by cpu/simd_*.c, which are compiled once with -DISA=base, avx2 and avx512, and by
 * cpu/bf16_avx512.c. The source is the same for all; what differs is VL, the floats in one vector,
 * and that base rounds a product before it is added, where the others do not (fused multiply-add).
 * Vectors wider than the processor's would keep the order of sums the same everywhere, but gcc 12
 * keeps such variables in memory.
 *
 * Everything here is static: objects for different instruction sets are linked together and
 * must not share a function. */
#ifndef SIMD_H
#define SIMD_H

#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "cpu/cpu_internal.h"

#ifndef ISA
#define ISA base
#endif
#define CAT_(a, b) a##_##b
#define CAT(a, b) CAT_(a, b)
#define FN(name) CAT(name, ISA)          /* widen -> widen_avx2 */

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX2__)
#define VL 8
#else
#define VL 4
#endif

#define INLINE static inline __attribute__((always_inline))

/* Loops over registers must be unrolled. Not under clang's sanitizers: with a check at
 * every access it then compiles for minutes. */
#if !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 16")
#elif __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define UNROLL _Pragma("nounroll")
#else
#define UNROLL _Pragma("unroll")
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef float vf_any __attribute__((vector_size(4 * VL), aligned(4), may_alias));
typedef uint16_t vh_any __attribute__((vector_size(2 * VL), aligned(2), may_alias));

extern const struct simd FN(simd);

void FN(widen)(float *, const void *, enum kv_dtype, size_t);
void FN(arrange)(float *, const float *, size_t, size_t, enum kv_dtype);
void FN(dots)(float *, size_t, const float *, size_t, const void *, enum kv_dtype, size_t,
    size_t, const float *, int);
void FN(add_rows)(float *, size_t, const float *, size_t, size_t, const void *, enum kv_dtype,
    size_t, size_t);
void FN(attend)(const struct attend_job *);
void FN(mass)(const struct attend_job *, float *, size_t, size_t);
void FN(key_scores)(const struct attend_job *, float *, size_t);
void FN(dequantise)(float *, const void *, enum kv_row_type, size_t, size_t);
void FN(pack_bits)(void *, const void *, enum kv_dtype, size_t, size_t);
void FN(pack_page)(void *, const void *, enum kv_dtype, size_t, size_t);
void FN(bits_scores)(const struct entries_job *);
void FN(page_scores)(const struct entries_job *);
float FN(lse)(const float *, size_t);
void FN(group_reduce)(float *, const float *, size_t, const float *, size_t, size_t, enum reduce);
void FN(topk)(uint32_t *, const float *, size_t, size_t, uint32_t *);
void FN(rmsnorm)(float *, const float *, const float *, size_t, float);
void FN(layernorm)(float *, const float *, const float *, const float *, size_t, float);
void FN(cos_sin)(float *, float *, uint32_t, const double *, size_t);
void FN(rotate)(float *, const float *, const float *, size_t, size_t);
void FN(transform)(float *, size_t, size_t);
void FN(swiglu)(float *, const float *, const float *, size_t);
void FN(cap)(float *, size_t, float);
void FN(add_products)(double *, const double *, size_t, size_t, size_t);
void FN(geglu)(float *, const float *, const float *, size_t);
void FN(round_x)(struct x_chunk *, const float *, size_t, size_t);
void FN(block_dots)(const struct block_product *, enum weight_type);
void FN(widen_blocks)(float *, const void *, enum weight_type, size_t);
void FN(gelu_tanh)(float *, size_t);

INLINE vf
vset(float x)
{
	return x - (vf){ 0 };
}

INLINE vf
vload(const float *p)
{
	return *(const vf_any *)p;
}

INLINE void
vstore(float *p, vf v)
{
	*(vf_any *)p = v;
}

/* a*b + c */
INLINE vf
vmadd(vf a, vf b, vf c)
{
#if VL == 16
	return _mm512_fmadd_ps(a, b, c);
#elif VL == 8
	return _mm256_fmadd_ps(a, b, c);
#else
	return a * b + c;
#endif
}

/* The larger one; b where either is a NaN */
INLINE vf
vmax(vf a, vf b)
{
#if VL == 16
	return _mm512_max_ps(a, b);
#elif VL == 8
	return _mm256_max_ps(a, b);
#else
	vu m = (vu)(a > b);

	return (vf)(((vu)a & m) | ((vu)b & ~m));
#endif
}

/* The smaller one; b where either is a NaN */
INLINE vf
vmin(vf a, vf b)
{
#if VL == 16
	return _mm512_min_ps(a, b);
#elif VL == 8
	return _mm256_min_ps(a, b);
#else
	vu m = (vu)(a < b);

	return (vf)(((vu)a & m) | ((vu)b & ~m));
#endif
}

/* ROTATE(v, n): lane i <- lane i + n.  LOW, HIGH: lanes of the lower, upper halves of a and
 * b in turn, a0 b0 a1 b1 ... */
#define SHUFFLE __builtin_shufflevector
#if VL == 16
#define ROTATE(v, n) SHUFFLE(v, v, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, \
    n + 9, n + 10, n + 11, n + 12, n + 13, n + 14, n + 15)
#define LOW(a, b) SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VL == 8
#define ROTATE(v, n) SHUFFLE(v, v, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7)
#define LOW(a, b) SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define ROTATE(v, n) SHUFFLE(v, v, n, n + 1, n + 2, n + 3)
#define LOW(a, b) SHUFFLE(a, b, 0, 4, 1, 5)
#define HIGH(a, b) SHUFFLE(a, b, 2, 6, 3, 7)
#endif

/* Sum of the lanes, by halves */
INLINE float
vsum(vf v)
{
#if VL >= 16
	v += ROTATE(v, 8);
#endif
#if VL >= 8
	v += ROTATE(v, 4);
#endif
	v += ROTATE(v, 2);
	v += ROTATE(v, 1);
	return v[0];
}

/* Largest lane */
INLINE float
vlargest(vf v)
{
#if VL >= 16
	v = vmax(v, ROTATE(v, 8));
#endif
#if VL >= 8
	v = vmax(v, ROTATE(v, 4));
#endif
	v = vmax(v, ROTATE(v, 2));
	v = vmax(v, ROTATE(v, 1));
	return v[0];
}

/* Adds the upper half of the lanes of a and b to the lower, and interleaves what is left. */
INLINE vf
fold2(vf a, vf b)
{
	return LOW(a, b) + HIGH(a, b);
}

INLINE vf
fold4(vf a, vf b, vf c, vf d)
{
	return fold2(fold2(a, c), fold2(b, d));
}

/* r[VL] <- its transpose. Interleaving row i with row i + VL/2 moves the top bit of the row number
 * below the bits of the column number; after log2(VL) rounds they have changed places. */
INLINE void
vtranspose(vf r[VL])
{
	vf t[VL];
	int n, i;

UNROLL	for (n = 1; n < VL; n *= 2) {
UNROLL		for (i = 0; i < VL / 2; i++) {
			t[2 * i] = LOW(r[i], r[i + VL / 2]);
			t[2 * i + 1] = HIGH(r[i], r[i + VL / 2]);
		}
UNROLL		for (i = 0; i < VL; i++)
			r[i] = t[i];
	}
}

/* bf16 is the upper half of an f32 */
INLINE vf
vload_bf16(const uint16_t *p)
{
#if VL == 16
	return (vf)_mm512_slli_epi32(
	    _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16);
#elif VL == 8
	return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16);
#else
	return (vf)(__builtin_convertvector(*(const vh_any *)p, vu) << 16);
#endif
}

/* Without an instruction: exponent and fraction moved to their places make a float that is
 * 2^112 too small, also where the half is subnormal; infinities and NaNs then need the rest
 * of the exponent. */
INLINE vf
vload_f16(const uint16_t *p)
{
#if VL == 16
	return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif VL == 8
	return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#else
	vu h = __builtin_convertvector(*(const vh_any *)p, vu);
	vf f = (vf)((h & 0x7fff) << 13) * 0x1p112f;

	return (vf)((vu)f | ((vu)(f >= 65536.0f) & 0x7f800000) | (h & 0x8000) << 16);
#endif
}

/* Elements i .. i+VL-1 of src as f32. type is a constant wherever this is used. */
INLINE vf
vload_as(const void *src, size_t i, const enum kv_dtype type)
{
	switch (type) {
	case KV_BF16:
		return vload_bf16((const uint16_t *)src + i);
	case KV_F16:
		return vload_f16((const uint16_t *)src + i);
	case KV_F32:
		break;
	}
	return vload((const float *)src + i);
}

/* The same for n < VL elements, the other lanes 0; nothing after them is read. */
INLINE vf
vload_part(const void *src, size_t i, size_t n, const enum kv_dtype type)
{
	float buf[VL] = { 0 };
	size_t size = type == KV_F32 ? 4 : 2;

	memcpy(buf, (const char *)src + i * size, n * size);
	return vload_as(buf, 0, type);
}

/* Where exp() is 0 and infinity */
#define EXP_LEAST (-0x1.601e68p+6f)
#define EXP_MOST 0x1.62e43p+6f

/* exp(x) = *scale (1 + the result), EXP_LEAST <= x <= EXP_MOST; the result to 1e-7 relative. As in
 * Cephes expf: *scale is 2^n, the result a polynomial in x - n ln 2, |x - n ln 2| <= ln(2)/2.
 * Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits; shifted into the exponent,
 * n = -127 gives 0 and n = 128 infinity. */
INLINE vf
vexp_parts(vf x, vf *scale)
{
	const vf magic = vset(0x1.8p23f);
	vf t, n, r, p;

	t = vmadd(x, vset(0x1.715476p0f), magic);
	n = t - magic;
	r = vmadd(n, vset(-0x1.63p-1f), x);
	r = vmadd(n, vset(0x1.bd0106p-13f), r);
	*scale = (vf)(((vu)t << 23) + 0x3f800000);
	p = vset(1.9875691500e-4f);
	p = vmadd(p, r, vset(1.3981999507e-3f));
	p = vmadd(p, r, vset(8.3334519073e-3f));
	p = vmadd(p, r, vset(4.1665795894e-2f));
	p = vmadd(p, r, vset(1.6666665459e-1f));
	p = vmadd(p, r, vset(5.0000001201e-1f));
	return vmadd(p, r * r, r);
}

/* exp(x) to 1e-7 relative, EXP_LEAST <= x <= EXP_MOST */
INLINE vf
vexp_between(vf x)
{
	vf scale, p = vexp_parts(x, &scale) + 1.0f;

	return p * scale;
}

/* exp(x) of any x; 0 below -87.7, infinity above 88.4, NaN stays NaN */
INLINE vf
vexp(vf x)
{
	return vexp_between(vmin(vset(EXP_MOST), vmax(vset(EXP_LEAST), x)));
}

/* tanh(x) of any x to 3e-7 relative; NaN stays NaN. With e = exp(2|x|) - 1, of which no digits are
 * lost where it is small, it is e / (e + 2), and from |x| = 10 on 1. */
INLINE vf
vtanh(vf x)
{
	const vu sign = (vu)x & 0x80000000;
	const vf a = vmin(vset(10), (vf)((vu)x ^ sign));
	vf scale, e = vexp_parts(a + a, &scale);

	e = vmadd(e, scale, scale - 1.0f);
	return (vf)((vu)(e / (e + 2.0f)) | sign);
}

/* c tanh(x / c), by = 1/c */
INLINE vf
vcap(vf x, vf c, vf by)
{
	return c * vtanh(x * by);
}

#endif

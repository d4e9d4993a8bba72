/* simd_dot.c - conversion to f32, and GEMV and skinny GEMM: dot products of a few rows of x with
 * many weight rows
 *
 * Decoding spends most of its time in dots(). Every weight is read once, so the limit is memory
 * bandwidth, as long as little else is done for each. A vector of bf16 is widened as it lies: the
 * channels with even numbers by a shift, the odd ones by a mask. So x is arranged before, evens and
 * odds apart, once for all weight rows.
 *
 * For several rows of x four weight rows are taken side by side, because each piece of x is then
 * loaded once for four rows. One row of x goes with one weight row after the other: memory is
 * faster where it is read in one stream. When x is too long for the L1 cache it comes from L2, as
 * many bytes as weights do for two rows, and eight rows side by side are faster. Rows side by side
 * are prefetched into L2: where they are 4 KiB apart they share a set of L1, which has too few
 * places for those that are read, those to come, and x. */
#include "cpu/simd.h"

#define WROWS 4                      /* weight rows side by side */
#define XROWS (VL == 16 ? 4 : 2)     /* rows of x: WROWS * XROWS sums fit the registers */
#define LONG_ROWS 8                  /* weight rows side by side with one long row of x */
#define LONG 4096                    /* channels of more than half of the L1 cache */
#define STREAM_AHEAD 4096            /* bytes between a read and its prefetch, in one stream .. */
#define LONG_AHEAD 512               /* .. and in eight */
#define PAIR (2 * VL)                /* channels that are taken at a time */

INLINE void
widen(float *dst, const void *src, const enum kv_dtype type, size_t n)
{
	size_t i;
	vf v;

	for (i = 0; i + VL <= n; i += VL)
		vstore(dst + i, vload_as(src, i, type));
	if (i < n) {
		v = vload_part(src, i, n - i, type);
		memcpy(dst + i, &v, (n - i) * sizeof *dst);
	}
}

void
FN(widen)(float *dst, const void *src, enum kv_dtype type, size_t n)
{
	switch (type) {
	case KV_BF16:
		widen(dst, src, KV_BF16, n);
		break;
	case KV_F16:
		widen(dst, src, KV_F16, n);
		break;
	case KV_F32:
		memcpy(dst, src, n * sizeof *dst);
		break;
	}
}

/* PAIR channels, in the order of arrange() */
struct pair {
	vf v[2];
};

/* Those from channel i of weights on; type is a constant wherever this is used. */
INLINE struct pair
load_pair(const void *w, size_t i, const enum kv_dtype type)
{
	vu two;

	if (type != KV_BF16)
		return (struct pair){ { vload_as(w, i, type), vload_as(w, i + VL, type) } };
	memcpy(&two, (const uint16_t *)w + i, sizeof two);
	return (struct pair){ { (vf)(two << 16), (vf)(two & 0xffff0000) } };
}

/* The same for the last n < PAIR channels; nothing after them is read. */
INLINE struct pair
load_rest(const void *w, size_t i, size_t n, const enum kv_dtype type)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	float buf[PAIR] = { 0 };

	memcpy(buf, (const char *)w + i * size, n * size);
	return load_pair(buf, 0, type);
}

INLINE struct pair
load_x(const float *x)
{
	return (struct pair){ { vload(x), vload(x + VL) } };
}

void
FN(arrange)(float *dst, const float *x, size_t N, size_t in, enum kv_dtype type)
{
	const size_t ld = DOTS_LD(in), whole = in / PAIR * PAIR;
	size_t n, i, j;

	for (n = 0; n < N; n++, dst += ld, x += in) {
		memset(dst + whole, 0, (ld - whole) * sizeof *dst);
		if (type != KV_BF16) {
			memcpy(dst, x, in * sizeof *x);
			continue;
		}
		for (i = 0; i < whole; i += PAIR)
			for (j = 0; j < VL; j++) {
				dst[i + j] = x[i + 2 * j];
				dst[i + VL + j] = x[i + 2 * j + 1];
			}
		for (; i < in; i++)
			dst[whole + i % 2 * VL + i % PAIR / 2] = x[i];
	}
}

/* sum += PAIR channels of nw weight rows and nx rows of x */
INLINE void
madd_pairs(vf sum[][XROWS], const struct pair *x, const int nx, const struct pair *w, const int nw)
{
	int r, n;

UNROLL	for (r = 0; r < nw; r++)
UNROLL		for (n = 0; n < nx; n++)
			sum[r][n] = vmadd(w[r].v[1], x[n].v[1],
			    vmadd(w[r].v[0], x[n].v[0], sum[r][n]));
}

enum level { INTO_L1, INTO_L2 };

INLINE void
prefetch(const void *p, const enum level level)
{
	if (level == INTO_L1)
		__builtin_prefetch(p, 0, 3);
	else
		__builtin_prefetch(p, 0, 2);
}

/* One block of nw x nx products. Each sum has VL lanes: to lane j channels are added in one order,
 * whatever block it is computed in. What is `ahead` bytes behind the weights is prefetched into the
 * cache of that level. */
INLINE void
dot_block(float *y, size_t ldy, const float *x, const int nx, const void *w,
    const enum kv_dtype type, const int nw, size_t in, const float *bias, int add, size_t ahead,
    const enum level level)
{
	const size_t size = type == KV_F32 ? 4 : 2, ldx = DOTS_LD(in);
	vf sum[LONG_ROWS][XROWS];
	struct pair wv[LONG_ROWS], xv[XROWS];
	float dot;
	size_t i;
	int r, n;

UNROLL	for (r = 0; r < nw; r++)
UNROLL		for (n = 0; n < nx; n++)
			sum[r][n] = vset(0);
	for (i = 0; i + PAIR <= in; i += PAIR) {
UNROLL		for (n = 0; n < nx; n++)
			xv[n] = load_x(x + n * ldx + i);
UNROLL		for (r = 0; r < nw; r++) {
			prefetch((const char *)w + (r * in + i) * size + ahead, level);
			wv[r] = load_pair(w, r * in + i, type);
			madd_pairs(&sum[r], xv, nx, &wv[r], 1);
		}
	}
	if (i < in) {
UNROLL		for (n = 0; n < nx; n++)
			xv[n] = load_x(x + n * ldx + i);
UNROLL		for (r = 0; r < nw; r++)
			wv[r] = load_rest(w, r * in + i, in - i, type);
		madd_pairs(sum, xv, nx, wv, nw);
	}
UNROLL	for (r = 0; r < nw; r++)
UNROLL		for (n = 0; n < nx; n++) {
			dot = vsum(sum[r][n]);
			if (bias != NULL)
				dot += bias[r];
			y[n * ldy + r] = add ? y[n * ldy + r] + dot : dot;
		}
}

/* nw weight rows, all N activation rows: the weights come from memory for the first of them
 * only. */
INLINE void
dot_rows(float *y, size_t ldy, const float *x, size_t N, const void *w,
    const enum kv_dtype type, const int nw, size_t in, const float *bias, int add)
{
	const size_t ahead = WROWS * in * (type == KV_F32 ? 4 : 2), ldx = DOTS_LD(in);

	for (; N >= XROWS; N -= XROWS, x += XROWS * ldx, y += XROWS * ldy)
		dot_block(y, ldy, x, XROWS, w, type, nw, in, bias, add, ahead, INTO_L2);
	for (; N >= 2; N -= 2, x += 2 * ldx, y += 2 * ldy)
		dot_block(y, ldy, x, 2, w, type, nw, in, bias, add, ahead, INTO_L2);
	for (; N > 0; N--, x += ldx, y += ldy)
		dot_block(y, ldy, x, 1, w, type, nw, in, bias, add, ahead, INTO_L2);
}

INLINE void
dots(float *y, size_t ldy, const float *x, size_t N, const void *w, const enum kv_dtype type,
    size_t rows, size_t in, const float *bias, int add)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t r = 0;

	if (VL == 16 && N == 1 && in > LONG)
		for (; r + LONG_ROWS <= rows; r += LONG_ROWS)
			dot_block(y + r, ldy, x, 1, (const char *)w + r * in * size, type,
			    LONG_ROWS, in, bias == NULL ? NULL : bias + r, add, LONG_AHEAD,
			    INTO_L2);
	for (; VL == 16 && N == 1 && r < rows; r++)
		dot_block(y + r, ldy, x, 1, (const char *)w + r * in * size, type, 1, in,
		    bias == NULL ? NULL : bias + r, add, STREAM_AHEAD, INTO_L1);
	for (; r + WROWS <= rows; r += WROWS)
		dot_rows(y + r, ldy, x, N, (const char *)w + r * in * size, type, WROWS, in,
		    bias == NULL ? NULL : bias + r, add);
	for (; r < rows; r++)
		dot_rows(y + r, ldy, x, N, (const char *)w + r * in * size, type, 1, in,
		    bias == NULL ? NULL : bias + r, add);
}

void
FN(dots)(float *y, size_t ldy, const float *x, size_t N, const void *w, enum kv_dtype type,
    size_t rows, size_t in, const float *bias, int add)
{
	switch (type) {
	case KV_BF16:
		dots(y, ldy, x, N, w, KV_BF16, rows, in, bias, add);
		break;
	case KV_F16:
		dots(y, ldy, x, N, w, KV_F16, rows, in, bias, add);
		break;
	case KV_F32:
		dots(y, ldy, x, N, w, KV_F32, rows, in, bias, add);
		break;
	}
}

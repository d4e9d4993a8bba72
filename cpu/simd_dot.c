/* simd_dot.c - conversion to f32, and GEMV and skinny GEMM: dot products of a few rows of x with
 * many weight rows
 *
 * Decoding spends most of its time in dots(). Every weight is read once, so the limit is memory
 * bandwidth. Four weight rows are read side by side, because each piece of x is then loaded once
 * for four rows, and additions to one sum do not wait for each other. For one row of x memory is
 * faster where it is read in one stream, if vectors are so wide that one sum keeps up with it. */
#include "cpu/simd.h"

#define WROWS 4                      /* weight rows side by side */
#define XROWS (VL == 16 ? 4 : 2)     /* rows of x: WROWS * XROWS sums fit the registers */
#define STREAM_PIECE 4096            /* channels that are read in one stream: x stays in L1 */
#define STREAM_ROWS 16               /* weight rows whose sums wait for the next piece */
#define STREAM_AHEAD 4096            /* bytes, at least, from what is read to what is prefetched */

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

/* One block of at most WROWS x XROWS products. Each sum has VL lanes, lane j over the
 * elements j, j + VL, ...; so it is the same whatever block it is computed in. */
INLINE void
dot_block(float *y, size_t ldy, const float *x, const int nx, const void *w,
    const enum kv_dtype type, const int nw, size_t in, const float *bias, int add)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	vf sum[WROWS][XROWS], wv, xv[XROWS];
	float dot;
	size_t i;
	int r, n;

UNROLL	for (r = 0; r < nw; r++)
UNROLL		for (n = 0; n < nx; n++)
			sum[r][n] = vset(0);
	for (i = 0; i + VL <= in; i += VL) {
UNROLL		for (n = 0; n < nx; n++)
			xv[n] = vload(x + n * in + i);
UNROLL		for (r = 0; r < nw; r++) {
			__builtin_prefetch((const char *)w + ((r + WROWS) * in + i) * size);
			wv = vload_as(w, r * in + i, type);
UNROLL			for (n = 0; n < nx; n++)
				sum[r][n] = vmadd(wv, xv[n], sum[r][n]);
		}
	}
	if (i < in) {
UNROLL		for (n = 0; n < nx; n++)
			xv[n] = vload_part(x, n * in + i, in - i, KV_F32);
UNROLL		for (r = 0; r < nw; r++) {
			wv = vload_part(w, r * in + i, in - i, type);
UNROLL			for (n = 0; n < nx; n++)
				sum[r][n] = vmadd(wv, xv[n], sum[r][n]);
		}
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
	for (; N >= XROWS; N -= XROWS, x += XROWS * in, y += XROWS * ldy)
		dot_block(y, ldy, x, XROWS, w, type, nw, in, bias, add);
	for (; N >= 2; N -= 2, x += 2 * in, y += 2 * ldy)
		dot_block(y, ldy, x, 2, w, type, nw, in, bias, add);
	for (; N > 0; N--, x += in, y += ldy)
		dot_block(y, ldy, x, 1, w, type, nw, in, bias, add);
}

/* y[rows] <- the same for one row of x: weight row after weight row, in pieces if they are long */
INLINE void
dot_stream(float *y, const float *x, const void *w, const enum kv_dtype type, size_t rows,
    size_t in, const float *bias, int add)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	const size_t ahead = in * size < STREAM_AHEAD ? STREAM_AHEAD : in * size;
	vf sum[STREAM_ROWS], s;
	size_t from, to, i, r;
	float dot;

	for (from = 0; from < in; from = to) {
		to = in - from < STREAM_PIECE ? in : from + STREAM_PIECE;
		for (r = 0; r < rows; r++) {
			s = from == 0 ? vset(0) : sum[r];
			for (i = from; i + VL <= to; i += VL) {
				__builtin_prefetch((const char *)w + (r * in + i) * size + ahead);
				s = vmadd(vload_as(w, r * in + i, type), vload(x + i), s);
			}
			if (i < to)
				s = vmadd(vload_part(w, r * in + i, to - i, type),
				    vload_part(x, i, to - i, KV_F32), s);
			sum[r] = s;
		}
	}
	for (r = 0; r < rows; r++) {
		dot = vsum(sum[r]);
		if (bias != NULL)
			dot += bias[r];
		y[r] = add ? y[r] + dot : dot;
	}
}

INLINE void
dots(float *y, size_t ldy, const float *x, size_t N, const void *w, const enum kv_dtype type,
    size_t rows, size_t in, const float *bias, int add)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t r = 0, n;

	for (; VL == 16 && N == 1 && r < rows; r += n) {
		n = rows - r < STREAM_ROWS ? rows - r : STREAM_ROWS;
		dot_stream(y + r, x, (const char *)w + r * in * size, type, n, in,
		    bias == NULL ? NULL : bias + r, add);
	}
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

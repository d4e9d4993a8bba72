/* simd_transposed.c - y <- W^T x for a few rows of x: weighted sums of weight rows
 *
 * Each weight is read once and widened in registers, as in simd_dot.c. ROWS weight rows go side by
 * side, so that y, which stays in L1 or L2, is loaded and stored once for all of them. */
#include "cpu/simd.h"

#define ROWS 8

/* y[N][in] += the sum of nw weight rows, of which row r has the weight x[n][r]. type and nw are
 * constants wherever this is used. Rows are added in order, whatever nw is. */
INLINE void
add_some(float *y, size_t ldy, const float *x, size_t ldx, size_t N, const void *w,
    const enum kv_dtype type, const int nw, size_t in)
{
	const size_t size = type == KV_F32 ? 4 : 2, whole = in / VL * VL;
	vf wide[ROWS], sum;
	size_t n, i;
	int r;

	for (i = 0; i < whole; i += VL) {
UNROLL		for (r = 0; r < nw; r++) {
			__builtin_prefetch((const char *)w + ((nw + r) * in + i) * size, 0, 2);
			wide[r] = vload_as(w, r * in + i, type);
		}
		for (n = 0; n < N; n++) {
			sum = vload(y + n * ldy + i);
UNROLL			for (r = 0; r < nw; r++)
				sum = vmadd(vset(x[n * ldx + r]), wide[r], sum);
			vstore(y + n * ldy + i, sum);
		}
	}
	if (i == in)
		return;
UNROLL	for (r = 0; r < nw; r++)
		wide[r] = vload_part(w, r * in + i, in - i, type);
	for (n = 0; n < N; n++) {
		sum = vload_part(y, n * ldy + i, in - i, KV_F32);
UNROLL		for (r = 0; r < nw; r++)
			sum = vmadd(vset(x[n * ldx + r]), wide[r], sum);
		memcpy(y + n * ldy + i, &sum, (in - i) * sizeof *y);
	}
}

INLINE void
add_rows(float *y, size_t ldy, const float *x, size_t ldx, size_t N, const void *w,
    const enum kv_dtype type, size_t rows, size_t in)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t r = 0;

	for (; r + ROWS <= rows; r += ROWS)
		add_some(y, ldy, x + r, ldx, N, (const char *)w + r * in * size, type, ROWS, in);
	for (; r < rows; r++)
		add_some(y, ldy, x + r, ldx, N, (const char *)w + r * in * size, type, 1, in);
}

void
FN(add_rows)(float *y, size_t ldy, const float *x, size_t ldx, size_t N, const void *w,
    enum kv_dtype type, size_t rows, size_t in)
{
	switch (type) {
	case KV_BF16:
		add_rows(y, ldy, x, ldx, N, w, KV_BF16, rows, in);
		break;
	case KV_F16:
		add_rows(y, ldy, x, ldx, N, w, KV_F16, rows, in);
		break;
	case KV_F32:
		add_rows(y, ldy, x, ldx, N, w, KV_F32, rows, in);
		break;
	}
}

/* gpu_layer.cu - what a layer does besides attention
 *
 * Few rows, in decoding: three launches, in which norm, gate and residual are parts of the
 * products (gpu_gemv.cu). Many rows: cuBLAS multiplies, and what stands between products is written
 * once, in the 16 bits that the next product wants, instead of in f32 that another kernel
 * narrows. */
#include "gpu/gpu_internal.h"

/* By cuBLAS, where all weights are of the same 16 bits; 0 when nothing was done. A call for each
 * product: from 2048 rows on even the 1024 columns of keys or values are as many tiles of 128 x 128
 * as a large GPU has multiprocessors, so that one call for all would gain little, and it would
 * want the matrices to lie side by side. */
static int
project_narrow(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, uint32_t N)
{
	struct narrow xn;
	uint32_t i;

	for (i = 0; i < n; i++)
		if (p[i].w->dtype != p->w->dtype || p[i].w->dtype == KV_F32)
			return 0;
	if (!gpu_norm_narrow(d, &xn, p->w->dtype, x, norm, N, p->w->in))
		return 0;
	for (i = 0; i < n; i++)
		gpu_blas_narrow(d, p[i].y, &xn, p[i].w, p[i].bias, 0);
	return 1;
}

int
gpu_project(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, float *xn, uint32_t N)
{
	if (d->reference || n == 0 || N == 0)
		return 0;
	if (N > FEW_ROWS)
		return project_narrow(d, p, n, x, norm, N);
	gpu_few(d, p, n, x, norm, N, SUMS);
	return 1;
}

int
gpu_ffn(struct dev *d, float *x, const struct ffn *w, float *xn, float *gate, float *up, uint32_t N)
{
	const struct product p[] = { { gate, &w->gate, NULL }, { up, &w->up, NULL } };
	struct narrow g;

	if (d->reference || N == 0)
		return 0;
	if (N <= FEW_ROWS) {
		if (w->gate.dtype != w->up.dtype)
			return 0;
		gpu_few(d, p, 2, x, &w->norm, N, SUMS_GATED);
		gpu_matmul(d, x, gate, &w->down, NULL, N, 1);
		return 1;
	}
	if (w->down.dtype == KV_F32 || !project_narrow(d, p, 2, x, &w->norm, N))
		return 0;
	if (gpu_gated_narrow(d, &g, w->down.dtype, gate, up, N, w->gate.out))
		gpu_blas_narrow(d, x, &g, &w->down, NULL, 1);
	return 1;
}

/* gpu_layer.cu - what a layer does besides attention
 *
 * Few rows, in decoding: three launches, in which norm, gate and residual are parts of the
 * products (gpu_gemv.cu). Many rows: cuBLAS multiplies, and what stands between products is written
 * once, in the 16 bits that the next product wants, instead of in f32 that another kernel
 * narrows. */
#include "gpu/gpu_internal.h"

/* Made of the ops that there are */
static void
project_by_ops(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, float *xn, uint32_t N)
{
	gpu_rmsnorm(d, xn, x, norm->w, N, p->w->in, norm->eps);
	for (uint32_t i = 0; i < n; i++)
		gpu_matmul(d, p[i].y, xn, p[i].w, p[i].bias, N, 0);
}

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

void
gpu_project(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, float *xn, uint32_t N)
{
	if (n == 0 || N == 0)
		return;
	if (d->reference)
		project_by_ops(d, p, n, x, norm, xn, N);
	else if (N <= FEW_ROWS)
		gpu_few(d, p, n, x, norm, N, SUMS);
	else if (!project_narrow(d, p, n, x, norm, N))
		project_by_ops(d, p, n, x, norm, xn, N);
}

void
gpu_ffn(struct dev *d, float *x, const struct ffn *w, float *xn, float *gate, float *up, uint32_t N)
{
	const struct product p[] = { { gate, &w->gate, NULL }, { up, &w->up, NULL } };
	const bool fast = !d->reference && N > 0;
	struct narrow g;

	if (fast && N <= FEW_ROWS && w->gate.dtype == w->up.dtype) {
		gpu_few(d, p, 2, x, &w->norm, N, SUMS_GATED);
		gpu_matmul(d, x, gate, &w->down, NULL, N, 1);
		return;
	}
	gpu_project(d, p, 2, x, &w->norm, xn, N);
	if (fast && N > FEW_ROWS && w->down.dtype != KV_F32 &&
	    gpu_gated_narrow(d, &g, w->down.dtype, gate, up, N, w->gate.out)) {
		gpu_blas_narrow(d, x, &g, &w->down, NULL, 1);
		return;
	}
	gpu_swiglu(d, gate, gate, up, N, w->gate.out);
	gpu_matmul(d, x, gate, &w->down, NULL, N, 1);
}

/* gpu_layer.cu - the fused ops project and ffn
 *
 * Decode (up to GEMV_ROWS rows): norm, SwiGLU and residual are fused into the GEMVs
 * (gpu_gemv.cu). Prefill: cuBLAS multiplies; RMSNorm and SwiGLU write their result once, in
 * the 16-bit dtype that the next product reads, instead of f32 that a further kernel
 * converts. */
#include "gpu/gpu_internal.h"

/* Products by cuBLAS, where all weights have the same 16-bit dtype; returns 0 when it has
 * done nothing. One GEMM for each product: from 2048 rows on even the 1024 columns of K or V
 * are as many 128 x 128 tiles as a large GPU has SMs, so that one GEMM for all would gain
 * little, and it would need the matrices to be adjacent. */
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
	if (N > GEMV_ROWS)
		return project_narrow(d, p, n, x, norm, N);
	gpu_gemv(d, p, n, x, norm, N, EPILOGUE_STORE);
	return 1;
}

int
gpu_ffn(struct dev *d, float *x, const struct ffn *w, float *xn, float *gate, float *up, uint32_t N)
{
	const struct product p[] = { { gate, &w->gate, NULL }, { up, &w->up, NULL } };
	struct narrow g;

	if (d->reference || N == 0)
		return 0;
	if (N <= GEMV_ROWS) {
		if (w->gate.dtype != w->up.dtype)
			return 0;
		gpu_gemv(d, p, 2, x, &w->norm, N, EPILOGUE_SWIGLU);
		gpu_matmul(d, x, gate, &w->down, NULL, N, 1);
		return 1;
	}
	if (w->down.dtype == KV_F32 || !project_narrow(d, p, 2, x, &w->norm, N))
		return 0;
	if (gpu_swiglu_narrow(d, &g, w->down.dtype, gate, up, N, w->gate.out))
		gpu_blas_narrow(d, x, &g, &w->down, NULL, 1);
	return 1;
}

/* gpu_layer.cu - the fused ops project and ffn
 *
 * Decode (up to GEMV_ROWS rows): norm, SwiGLU and residual are fused into the GEMVs
 * (gpu_gemv.cu). Prefill: cuBLAS multiplies; RMSNorm and SwiGLU write their result once, in
 * the 16-bit dtype that the next product reads, instead of f32 that a further kernel
 * converts. In bf16, which has the range of f32, gate and up are written and read in 16 bits,
 * too; f16 would overflow. */
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
		if (p[i].w->type != p->w->type || p[i].w->type == WEIGHT_F32)
			return 0;
	if (!gpu_norm_narrow(d, &xn, mat_elements(p->w), x, norm, N, p->w->in))
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

/* gate_up[N][2][F] <- gate . xn, up . xn, where xn is rmsnorm() of x, all in bf16; returns 0 when
 * it has done nothing. Matrices that are uploaded one after the other lie one behind the other
 * where their size is a multiple of 256 bytes (gpu_weights.cu): they are one product then, with
 * twice the tiles, so that fewer rows fill a large GPU. */
static int
gate_up_bf16(struct dev *d, bf16 *gate_up, const float *x, const struct ffn *w, uint32_t N)
{
	const size_t F = w->gate.out, all = F * w->gate.in;
	struct mat both = w->gate;
	struct narrow xn;

	if (w->gate.type != WEIGHT_BF16 || w->up.type != WEIGHT_BF16 ||
	    !gpu_norm_narrow(d, &xn, KV_BF16, x, &w->norm, N, w->gate.in))
		return 0;
	if ((const bf16 *)w->gate.data + all == w->up.data) {
		both.out *= 2;
		gpu_blas_bf16(d, gate_up, 2 * F, &xn, &both);
	} else {
		gpu_blas_bf16(d, gate_up, 2 * F, &xn, &w->gate);
		gpu_blas_bf16(d, gate_up + F, 2 * F, &xn, &w->up);
	}
	return 1;
}

int
gpu_ffn(struct dev *d, float *x, const struct ffn *w, float *xn, float *gate, float *up, uint32_t N)
{
	const struct product p[] = { { gate, &w->gate, NULL }, { up, &w->up, NULL } };
	const uint32_t F = w->gate.out;
	struct narrow g;
	int done;

	if (d->reference || N == 0)
		return 0;
	if (N <= GEMV_ROWS) {
		if (w->gate.type != w->up.type)
			return 0;
		gpu_gemv(d, p, 2, x, &w->norm, N, EPILOGUE_SWIGLU);
		gpu_matmul(d, x, gate, &w->down, NULL, N, 1);
		return 1;
	}
	if (w->down.type == WEIGHT_BF16 && gate_up_bf16(d, (bf16 *)gate, x, w, N))
		done = gpu_swiglu_bf16(d, &g, (const bf16 *)gate, N, F);
	else if (w->down.type != WEIGHT_F32 && project_narrow(d, p, 2, x, &w->norm, N))
		done = gpu_swiglu_narrow(d, &g, mat_elements(&w->down), gate, up, N, F);
	else
		return 0;
	if (done)
		gpu_blas_narrow(d, x, &g, &w->down, NULL, 1);
	return 1;
}

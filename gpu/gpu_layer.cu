/* gpu_layer.cu - what a layer does besides attention */
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

void
gpu_project(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, float *xn, uint32_t N)
{
	if (n == 0 || N == 0)
		return;
	if (!d->reference && N <= FEW_ROWS)
		gpu_few(d, p, n, x, norm, N, SUMS);
	else
		project_by_ops(d, p, n, x, norm, xn, N);
}

void
gpu_ffn(struct dev *d, float *x, const struct ffn *w, float *xn, float *gate, float *up, uint32_t N)
{
	const struct product p[] = { { gate, &w->gate, NULL }, { up, &w->up, NULL } };

	if (N == 0)
		return;
	if (!d->reference && N <= FEW_ROWS && w->gate.dtype == w->up.dtype)
		gpu_few(d, p, 2, x, &w->norm, N, SUMS_GATED);
	else {
		gpu_project(d, p, 2, x, &w->norm, xn, N);
		gpu_swiglu(d, gate, gate, up, N, w->gate.out);
	}
	gpu_matmul(d, x, gate, &w->down, NULL, N, 1);
}

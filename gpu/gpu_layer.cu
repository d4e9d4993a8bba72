/* gpu_layer.cu - what a layer does besides attention, made of the ops that there are */
#include "gpu/gpu_internal.h"

void
gpu_project(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, float *xn, uint32_t N)
{
	uint32_t i;

	if (n == 0)
		return;
	gpu_rmsnorm(d, xn, x, norm->w, N, p->w->in, norm->eps);
	for (i = 0; i < n; i++)
		gpu_matmul(d, p[i].y, xn, p[i].w, p[i].bias, N, 0);
}

void
gpu_ffn(struct dev *d, float *x, const struct ffn *w, float *xn, float *gate, float *up, uint32_t N)
{
	gpu_rmsnorm(d, xn, x, w->norm.w, N, w->gate.in, w->norm.eps);
	gpu_matmul(d, gate, xn, &w->gate, NULL, N, 0);
	gpu_matmul(d, up, xn, &w->up, NULL, N, 0);
	gpu_swiglu(d, gate, gate, up, N, w->gate.out);
	gpu_matmul(d, x, gate, &w->down, NULL, N, 1);
}

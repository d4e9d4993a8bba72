/* cpu_layer.c - what a layer does besides attention, made of the ops that there are */
#include "cpu/cpu_internal.h"

void
cpu_project(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, float *xn, uint32_t N)
{
	uint32_t i;

	if (n == 0)
		return;
	cpu_rmsnorm(d, xn, x, norm->w, N, p->w->in, norm->eps);
	for (i = 0; i < n; i++)
		cpu_matmul(d, p[i].y, xn, p[i].w, p[i].bias, N, 0);
}

void
cpu_rope_append(struct dev *d, struct layer_rows *rows, float *q, float *k, const float *v,
    const uint32_t *pos, const double *freq, uint32_t N, uint32_t H)
{
	cpu_rope(d, q, pos, freq, N, H, rows->width);
	cpu_rope(d, k, pos, freq, N, rows->heads, rows->width);
	cpu_append(d, rows, k, v, pos, N);
}

void
cpu_ffn(struct dev *d, float *x, const struct ffn *w, float *xn, float *gate, float *up, uint32_t N)
{
	cpu_rmsnorm(d, xn, x, w->norm.w, N, w->gate.in, w->norm.eps);
	cpu_matmul(d, gate, xn, &w->gate, NULL, N, 0);
	cpu_matmul(d, up, xn, &w->up, NULL, N, 0);
	cpu_swiglu(d, gate, gate, up, N, w->gate.out);
	cpu_matmul(d, x, gate, &w->down, NULL, N, 1);
}

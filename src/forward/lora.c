/* lora.c - the matrix products of a layer with LoRA (Hu et al. 2021), over elementary ops
 *
 * The low-rank part is two thin products that are added to the full one. It is not merged into the
 * weights, because other rows run without it. */
#include "forward/lora.h"

void
lora_add(const struct ops *o, struct dev *d, float *y, const float *x, const struct lora *w,
    float *t, uint32_t N)
{
	if (w->a.data == NULL)
		return;
	o->matmul(d, t, x, &w->a, NULL, N, 0);
	o->matmul(d, y, t, &w->b, NULL, N, 1);
}

void
lora_project(const struct ops *o, struct dev *d, const struct product *p,
    const struct lora *const *w, uint32_t n, const float *x, const struct norm *norm, float *xn,
    float *t, uint32_t N)
{
	uint32_t i;

	o->rmsnorm(d, xn, x, norm->w, N, p[0].w->in, norm->eps);
	for (i = 0; i < n; i++) {
		o->matmul(d, p[i].y, xn, p[i].w, p[i].bias, N, 0);
		lora_add(o, d, p[i].y, xn, w[i], t, N);
	}
}

void
lora_ffn(const struct ops *o, struct dev *d, float *x, const struct ffn *w,
    const struct adapter_layer *lora, float *xn, float *gate, float *up, float *t, uint32_t N)
{
	const struct product p[] = { { gate, &w->gate, NULL }, { up, &w->up, NULL } };
	const struct lora *const both[] = { &lora->gate, &lora->up };

	lora_project(o, d, p, both, 2, x, &w->norm, xn, t, N);
	run_gate(o, d, gate, up, w, N);
	o->matmul(d, x, gate, &w->down, NULL, N, 1);
	lora_add(o, d, x, gate, &lora->down, t, N);
}

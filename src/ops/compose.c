/* compose.c - the fused ops as compositions of elementary ops */
#include <stddef.h>

#include "ops/compose.h"

void
run_norm(const struct ops *o, struct dev *d, float *y, const float *x, const struct norm *norm,
    uint32_t N, uint32_t D)
{
	if (norm->centred)
		o->layernorm(d, y, x, norm->w, norm->bias, norm->heads > 1 ? norm->heads : 1, N, D,
		    norm->eps);
	else
		o->rmsnorm(d, y, x, norm->w, N, D, norm->eps);
}

void
run_project(const struct ops *o, struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, float *xn, uint32_t N)
{
	uint32_t i;

	if (n == 0)
		return;
	if (norm->w == NULL)
		xn = (float *)x;
	else if (o->project != NULL && !norm->centred && o->project(d, p, n, x, norm, xn, N))
		return;
	else
		run_norm(o, d, xn, x, norm, N, p->w->in);
	for (i = 0; i < n; i++)
		o->matmul(d, p[i].y, xn, p[i].w, p[i].bias, N, 0);
}

void
run_rope_append(const struct ops *o, struct dev *d, struct layer_rows *rows, float *q, float *k,
    const float *v, const uint32_t *pos, const struct rotary *rope, uint32_t N, uint32_t H)
{
	if (o->rope_append != NULL && rope->first == 0 &&
	    o->rope_append(d, rows, q, k, v, pos, rope, N, H))
		return;
	if (rope->dims > 0) {
		o->rope(d, q + rope->first, pos, rope, N, H, rows->width);
		o->rope(d, k + rope->first, pos, rope, N, rows->heads, rows->width);
	}
	o->append(d, rows, k, v, pos, N);
}

void
run_rope_append_each(const struct ops *o, struct dev *d, struct layer_rows *const *rows, uint32_t n,
    float *q, float *k, const float *v, const uint32_t *pos, const struct rotary *rope, uint32_t H)
{
	uint32_t i;

	if (n > 1 && o->rope_append_each != NULL && rope->first == 0 &&
	    o->rope_append_each(d, rows, n, q, k, v, pos, rope, H))
		return;
	for (i = 0; i < n; i++) {
		const size_t E = rows[i]->width, kv = (size_t)i * rows[i]->heads * E;

		run_rope_append(o, d, rows[i], q + (size_t)i * H * E, k + kv, v + kv, pos + i, rope,
		    1, H);
	}
}

void
run_attend_each(const struct ops *o, struct dev *d, const struct attention *a, uint32_t n)
{
	uint32_t i;

	if (n > 1 && o->attend_each != NULL && o->attend_each(d, a, n))
		return;
	for (i = 0; i < n; i++)
		if (a[i].chosen != NULL)
			o->attend_chosen(d, a[i].o, &a[i].query, a[i].rows, a[i].chosen);
		else
			o->attend(d, a[i].o, a[i].lse, &a[i].query, a[i].rows);
}

void
run_attend_apart(const struct ops *o, struct dev *d, const struct attention *a)
{
	const struct layer_rows *rows = a->rows;
	const uint32_t N = a->query.N;
	const size_t H = a->query.H;
	struct query query = a->query;
	uint32_t n, g;

	if (o->attend_apart != NULL && o->attend_apart(d, a))
		return;
	query.N = 1;
	for (g = 0; g < rows->heads; g++)
		rows->len[g] -= N;
	for (n = 0; n < N; n++, query.q += H * rows->width, query.pos++) {
		for (g = 0; g < rows->heads; g++)
			rows->len[g]++;
		o->attend(d, a->o + n * H * rows->width, a->lse == NULL ? NULL : a->lse + n * H,
		    &query, rows);
	}
}

void
run_add(const struct ops *o, struct dev *d, float *x, const float *in, const struct mat *w,
    const float *bias, const struct residual *r, float *t, uint32_t N)
{
	if (r == NULL) {
		o->matmul(d, x, in, w, bias, N, 1);
		return;
	}
	o->matmul(d, t, in, w, bias, N, 0);
	if (r->norm.w != NULL)
		run_norm(o, d, t, t, &r->norm, N, w->out);
	o->mix(d, x, t, (size_t)N * w->out, r->scale, 1);
}

void
run_ffn(const struct ops *o, struct dev *d, float *x, const struct ffn *w, float *xn, float *gate,
    float *up, uint32_t N)
{
	const struct ffn_bias none = { NULL, NULL, NULL };

	if (o->ffn == NULL || w->gate.out == 0 || w->act != ACT_SILU || w->norm.centred ||
	    !o->ffn(d, x, w, xn, gate, up, N))
		run_ffn_with(o, d, x, w, &none, NULL, xn, gate, up, N);
}

void
run_gate(const struct ops *o, struct dev *d, float *gate, const float *up, const struct ffn *w,
    uint32_t N)
{
	(w->act == ACT_GELU_TANH ? o->geglu : o->swiglu)(d, gate, gate, up, N, w->gate.out);
}

void
run_ffn_with(const struct ops *o, struct dev *d, float *x, const struct ffn *w,
    const struct ffn_bias *bias, const struct residual *r, float *xn, float *gate, float *up,
    uint32_t N)
{
	const struct product p[] = { { gate, &w->gate, bias->gate }, { up, &w->up, bias->up } };

	if (w->gate.out == 0) {
		run_project(o, d, &p[1], 1, x, &w->norm, xn, N);
		o->activate(d, up, (size_t)N * w->up.out, w->act, &w->xielu);
		run_add(o, d, x, up, &w->down, bias->down, r, xn, N);
		return;
	}
	run_project(o, d, p, 2, x, &w->norm, xn, N);
	run_gate(o, d, gate, up, w, N);
	run_add(o, d, x, gate, &w->down, bias->down, r, xn, N);
}

void
run_mixture(const struct ops *o, struct dev *d, float *x, const struct ffn *w,
    const struct experts *e, const struct mat *score, const struct residual *r,
    const struct mixture_scratch *s, uint32_t N)
{
	const uint32_t D = e->down.out;

	run_norm(o, d, s->xn, x, &w->norm, N, D);
	o->experts(d, s->sum, s->xn, e, s->rows, N);
	if (w->gate.out > 0) {
		o->matmul(d, s->gate, s->xn, &w->gate, NULL, N, 0);
		o->matmul(d, s->up, s->xn, &w->up, NULL, N, 0);
		run_gate(o, d, s->gate, s->up, w, N);
		if (score->out > 0) {
			o->matmul(d, s->score, s->xn, score, NULL, N, 0);
			o->scale_rows(d, s->gate, s->score, N, w->gate.out);
		}
		o->matmul(d, s->sum, s->gate, &w->down, NULL, N, 1);
	}
	if (r != NULL && r->norm.w != NULL)
		run_norm(o, d, s->sum, s->sum, &r->norm, N, D);
	o->mix(d, x, s->sum, (size_t)N * D, r != NULL ? r->scale : 1, 1);
}

uint32_t
ops_tile(const struct ops *ops)
{
	return ops->runs_ahead ? 4096 : 512;
}

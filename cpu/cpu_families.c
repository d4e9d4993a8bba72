/* cpu_families.c - ops of rows that families of models beyond Llama need, and activations of
 * networks without a gate */
#include <math.h>

#include "cpu/cpu_internal.h"

struct temper {
	float *x;
	const uint32_t *pos;
	size_t width;
	float beta;
	uint32_t period;
};

static void
temper_row(void *arg, size_t n, int thread)
{
	const struct temper *t = arg;
	const uint32_t turns = t->pos[n] / t->period;
	const double by = 1 + t->beta * log(1 + (double)turns);
	float *x = t->x + n * t->width;
	size_t i;

	(void)thread;
	for (i = 0; turns > 0 && i < t->width; i++)
		x[i] = (float)(x[i] * by);
}

void
cpu_temper(struct dev *d, float *x, const uint32_t *pos, uint32_t N, uint32_t D, float beta,
    uint32_t period)
{
	struct temper t = { x, pos, D, beta, period };

	if (d->error[0] == '\0')
		cpu_run(d, temper_row, &t, N, N * t.width);
}

struct layernorm {
	const struct simd *simd;
	float *y;
	const float *x, *w, *bias;
	size_t heads, width;
	float eps;
};

static void
layernorm_row(void *arg, size_t n, int thread)
{
	const struct layernorm *r = arg;
	const size_t at = n % r->heads * r->width;

	(void)thread;
	r->simd->layernorm(r->y + n * r->width, r->x + n * r->width, r->w + at,
	    r->bias != NULL ? r->bias + at : NULL, r->width, r->eps);
}

void
cpu_layernorm(struct dev *d, float *y, const float *x, const float *w, const float *bias,
    uint32_t heads, uint32_t N, uint32_t D, float eps)
{
	struct layernorm r = { d->simd, y, x, w, bias, heads, D, eps };

	if (d->error[0] == '\0')
		cpu_run(d, layernorm_row, &r, N, N * r.width);
}

enum { HEAD_MOST = 1024 };

struct split {
	float *x;
	size_t heads, width, dims;
};

static void
split_row(void *arg, size_t n, int thread)
{
	const struct split *s = arg;
	float odd[HEAD_MOST / 2], *x = s->x + n * s->heads * s->width;
	const size_t half = s->dims / 2;
	size_t h, i;

	(void)thread;
	for (h = 0; h < s->heads; h++, x += s->width) {
		for (i = 0; i < half; i++) {
			odd[i] = x[2 * i + 1];
			x[i] = x[2 * i];
		}
		for (i = 0; i < half; i++)
			x[half + i] = odd[i];
	}
}

void
cpu_split_pairs(struct dev *d, float *x, uint32_t N, uint32_t heads, uint32_t E, uint32_t dims)
{
	struct split s = { x, heads, E, dims };

	if (d->error[0] == '\0' && dims > HEAD_MOST)
		cpu_fail(d, "split_pairs: %u channels of a head", dims);
	if (d->error[0] == '\0')
		cpu_run(d, split_row, &s, N, N * s.heads * s.width);
}

struct scale_rows {
	float *x;
	const float *s;
	size_t width;
};

static void
scale_row(void *arg, size_t n, int thread)
{
	const struct scale_rows *r = arg;
	const float by = 1 / (1 + expf(-r->s[n]));
	float *x = r->x + n * r->width;
	size_t i;

	(void)thread;
	for (i = 0; i < r->width; i++)
		x[i] *= by;
}

void
cpu_scale_rows(struct dev *d, float *x, const float *s, uint32_t N, uint32_t D)
{
	struct scale_rows r = { x, s, D };

	if (d->error[0] == '\0')
		cpu_run(d, scale_row, &r, N, N * r.width);
}

enum { PART = 1024 };           /* numbers that a thread takes */

struct clamp {
	float *x;
	size_t n;
	float limit;
};

static void
clamp_part(void *arg, size_t item, int thread)
{
	const struct clamp *c = arg;
	const size_t from = item * PART, n = c->n - from < PART ? c->n - from : PART;
	float *x = c->x + from;
	size_t i;

	(void)thread;
	for (i = 0; i < n; i++)
		x[i] = x[i] > c->limit ? c->limit : x[i] < -c->limit ? -c->limit : x[i];
}

void
cpu_clamp(struct dev *d, float *x, size_t n, float limit)
{
	struct clamp c = { x, n, limit };

	if (d->error[0] == '\0')
		cpu_run(d, clamp_part, &c, (n + PART - 1) / PART, n);
}

struct activate {
	const struct simd *simd;
	float *x;
	size_t n;
	enum activation act;
	struct xielu xielu;
};

static float
xielu_of(float x, const struct xielu *p)
{
	return x > 0 ? p->positive * x * x + p->beta * x :
	    (expm1f(x > p->eps ? p->eps : x) - x) * p->negative + p->beta * x;
}

static void
activate_part(void *arg, size_t item, int thread)
{
	const struct activate *a = arg;
	const size_t from = item * PART, n = a->n - from < PART ? a->n - from : PART;
	float *x = a->x + from;
	size_t i;

	(void)thread;
	if (a->act == ACT_GELU_TANH)
		a->simd->gelu_tanh(x, n);
	else if (a->act == ACT_GELU)
		for (i = 0; i < n; i++)
			x[i] *= 0.5F * (1 + erff(x[i] * (float)M_SQRT1_2));
	else if (a->act == ACT_RELU2)
		for (i = 0; i < n; i++)
			x[i] = x[i] > 0 ? x[i] * x[i] : 0;
	else if (a->act == ACT_XIELU)
		for (i = 0; i < n; i++)
			x[i] = xielu_of(x[i], &a->xielu);
	else
		for (i = 0; i < n; i++)
			x[i] /= 1 + expf(-x[i]);
}

void
cpu_activate(struct dev *d, float *x, size_t n, enum activation act, const struct xielu *xielu)
{
	struct activate a = { .simd = d->simd, .x = x, .n = n, .act = act };

	if (act == ACT_XIELU)
		a.xielu = *xielu;
	if (d->error[0] == '\0')
		cpu_run(d, activate_part, &a, (n + PART - 1) / PART, n * 16);
}

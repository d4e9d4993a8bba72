/* ops_experts.c - mixtures of experts, against the formulas of experts.h in double precision */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

struct mixture {
	uint32_t N, D, F, M, K;
	enum kv_dtype type;
	struct router router;        /* without weights and numbers of experts */
	int biased, corrected;
	int lean;                    /* 1: all rows take experts 1 and 3, if K is 2 */
	enum activation act;
	float limit;
};

/* The numbers of a case */
struct numbers {
	float *x, *router, *bias, *correction, *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
};

static float *
stored(size_t n, enum kv_dtype type, float scale)
{
	float *w = floats(n, scale);

	round_to(w, type, n);
	return w;
}

static struct numbers
make_numbers(const struct mixture *c)
{
	const size_t M = c->M, matrix = M * c->F * c->D;
	struct numbers s = { .x = floats((size_t)c->N * c->D, 1),
		.router = stored(M * c->D, c->type, 1), .bias = floats(M, 1),
		.correction = floats(M, 0.5f), .gate = stored(matrix, c->type, 0.5f),
		.up = stored(matrix, c->type, 0.5f), .down = stored(matrix, c->type, 0.5f),
		.gate_bias = floats(M * c->F, 1), .up_bias = floats(M * c->F, 1),
		.down_bias = floats(M * c->D, 1) };

	if (c->lean) {
		s.bias[1] = 60;
		s.bias[3] = 50;
	}
	return s;
}

static void
free_numbers(struct numbers *s)
{
	float *all[] = { s->x, s->router, s->bias, s->correction, s->gate, s->up, s->down,
		s->gate_bias, s->up_bias, s->down_bias };
	size_t i;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		free(all[i]);
}

/* ---- in double precision ---- */

static double
dot(const float *w, const double *x, size_t n)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < n; i++)
		sum += w[i] * x[i];
	return sum;
}

/* The k-th greatest of by[n], the first of equals, among those that are not taken */
static uint32_t
take_best(const double *by, int *taken, uint32_t n)
{
	uint32_t i, best = UINT32_MAX;

	for (i = 0; i < n; i++)
		if (!taken[i] && (best == UINT32_MAX || by[i] > by[best]))
			best = i;
	taken[best] = 1;
	return best;
}

static void
leave_groups(const struct mixture *c, const double *by, int *taken)
{
	const uint32_t size = c->M / c->router.groups;
	double score[EXPERTS_MOST];
	int chosen[EXPERTS_MOST] = { 0 }, seen[EXPERTS_MOST] = { 0 };
	uint32_t g, e;

	for (g = 0; g < c->router.groups; g++) {
		score[g] = by[g * size + take_best(by + g * size, seen + g * size, size)];
		if (c->router.two_best && size > 1)
			score[g] += by[g * size + take_best(by + g * size, seen + g * size, size)];
	}
	for (g = 0; g < c->router.groups_chosen; g++)
		take_best(score, chosen, c->router.groups);
	for (e = 0; e < c->M; e++)
		taken[e] = !chosen[e / size];
}

/* The weight of expert e in the softmax over those near it that were not taken before */
static double
near_share(const double *logit, const int *before, uint32_t M, uint32_t e, double margin)
{
	double sum = 0;
	uint32_t i;

	for (i = 0; i < M; i++)
		if (!before[i] && (logit[e] - logit[i]) / fmax(fabs(logit[i]), logit[e]) <= margin)
			sum += exp(logit[i]);
	return exp(logit[e]) / sum;
}

/* expert[K], weight[K] of a row */
static void
route(const struct mixture *c, const struct numbers *s, const double *x, uint32_t *expert,
    double *weight)
{
	double score[EXPERTS_MOST], by[EXPERTS_MOST], sum = 0, chosen = 0;
	int taken[EXPERTS_MOST] = { 0 }, before[EXPERTS_MOST];
	uint32_t e, k;

	for (e = 0; e < c->M; e++) {
		score[e] = dot(s->router + (size_t)e * c->D, x, c->D) +
		    (c->biased ? s->bias[e] : 0);
		if (c->router.scores != ROUTER_NEAR)
			score[e] = c->router.scores == ROUTER_SIGMOID ? 1 / (1 + exp(-score[e])) :
			    exp(score[e]);
		sum += score[e];
	}
	for (e = 0; e < c->M; e++) {
		score[e] /= c->router.scores == ROUTER_SOFTMAX ? sum : 1;
		by[e] = score[e] + (c->corrected ? s->correction[e] : 0);
	}
	if (c->router.groups > 1)
		leave_groups(c, by, taken);
	for (k = 0; k < c->K; k++) {
		memcpy(before, taken, sizeof before);
		expert[k] = take_best(by, taken, c->M);
		weight[k] = c->router.scores == ROUTER_NEAR ?
		    near_share(score, before, c->M, expert[k], (double)c->router.margin) :
		    score[expert[k]];
		chosen += weight[k];
	}
	for (k = 0; k < c->K; k++)
		weight[k] *= c->router.scale / (c->router.renormalise ? chosen : 1);
}

static double
activated(double x, double up, const struct mixture *c)
{
	if (c->limit > 0)
		return fmin(x, c->limit) / (1 + exp(-1.702 * fmin(x, c->limit))) *
		    (fmax(fmin(up, c->limit), -c->limit) + 1);
	return up * (c->act == ACT_SILU ? x / (1 + exp(-x)) :
	    x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))));
}

/* y[D] += weight times what expert e makes of x[D] */
static void
add_expert(double *y, const struct mixture *c, const struct numbers *s, const double *x, uint32_t e,
    double weight)
{
	const size_t at = (size_t)e * c->F * c->D;
	double *hidden = malloc(c->F * sizeof *hidden);
	uint32_t i;

	for (i = 0; i < c->F; i++) {
		const size_t b = (size_t)e * c->F + i;

		hidden[i] = activated(dot(s->gate + at + (size_t)i * c->D, x, c->D) +
		    (c->biased ? s->gate_bias[b] : 0),
		    dot(s->up + at + (size_t)i * c->D, x, c->D) +
		    (c->biased ? s->up_bias[b] : 0), c);
	}
	for (i = 0; i < c->D; i++)
		y[i] += weight * (dot(s->down + at + (size_t)i * c->F, hidden, c->F) +
		    (c->biased ? s->down_bias[(size_t)e * c->D + i] : 0));
	free(hidden);
}

static double *
reference(const struct mixture *c, const struct numbers *s)
{
	double *y = calloc((size_t)c->N * c->D, sizeof *y), weight[EXPERTS_CHOSEN_MOST];
	double *x = doubles(s->x, (size_t)c->N * c->D);
	uint32_t expert[EXPERTS_CHOSEN_MOST], n, k;

	for (n = 0; n < c->N; n++) {
		route(c, s, x + (size_t)n * c->D, expert, weight);
		for (k = 0; k < c->K; k++)
			add_expert(y + (size_t)n * c->D, c, s, x + (size_t)n * c->D, expert[k],
			    weight[k]);
	}
	free(x);
	return y;
}

/* ---- on a device ---- */

/* Blocks of device memory of a case, to be freed */
struct memory {
	void *at[32];
	int n;
};

static void *
keep(struct memory *m, void *p)
{
	m->at[m->n++] = p;
	return p;
}

/* The same matrix of all experts, in one piece */
static struct expert_mats
put_mats(struct device *d, struct memory *m, const float *w, const float *bias,
    const struct mixture *c, uint32_t out, uint32_t in)
{
	const size_t one = (size_t)out * in * kv_dtype_size(c->type);
	char *data = keep(m, to_device_as(d, w, c->type, (size_t)c->M * out * in));
	const void **at = malloc(c->M * sizeof *at);
	struct expert_mats mats = { .type = weight_type_of(c->type), .out = out, .in = in };
	uint32_t e;

	for (e = 0; e < c->M; e++)
		at[e] = data + e * one;
	mats.at = keep(m, to_device(d, at, c->M * sizeof *at));
	if (c->biased)
		mats.bias = keep(m, to_device(d, bias, (size_t)c->M * out * 4));
	free(at);
	return mats;
}

static struct experts
put_experts(struct device *d, struct memory *m, const struct mixture *c, const struct numbers *s)
{
	struct experts e = { .router = c->router, .act = c->act, .limit = c->limit };

	e.router.experts = c->M;
	e.router.chosen = c->K;
	e.router.w = (struct mat){ keep(m, to_device_as(d, s->router, c->type,
		(size_t)c->M * c->D)), weight_type_of(c->type), c->M, c->D };
	if (c->biased)
		e.router.bias = keep(m, to_device(d, s->bias, c->M * 4));
	if (c->corrected)
		e.router.correction = keep(m, to_device(d, s->correction, c->M * 4));
	e.gate = put_mats(d, m, s->gate, s->gate_bias, c, c->F, c->D);
	e.up = put_mats(d, m, s->up, s->up_bias, c, c->F, c->D);
	e.down = put_mats(d, m, s->down, s->down_bias, c, c->D, c->F);
	return e;
}

/* Each row of a call alone */
static void
test_alone(struct device *d, const struct mixture *c, const struct experts *e, const float *x,
    const float *together, void *scratch)
{
	float *dy = d->ops->alloc(d->dev, c->D * 4), *got;
	uint32_t n;

	for (n = 0; n < c->N; n++) {
		d->ops->experts(d->dev, dy, x + (size_t)n * c->D, e, scratch, 1);
		got = from_device(d, dy, c->D);
		verdict(memcmp(got, together + (size_t)n * c->D, c->D * 4) == 0,
		    "experts, %s, %d threads: row %u of %u alone", d->name, d->threads, n, c->N);
		free(got);
	}
	d->ops->free(d->dev, dy);
}

static void
test_mixture(struct mixture c)
{
	const size_t n = (size_t)c.N * c.D;
	struct numbers s = make_numbers(&c);
	double *want = reference(&c, &s);
	struct expert_rows rows;
	float *got;
	int k;

	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct memory m = { .n = 0 };
		const struct experts e = put_experts(d, &m, &c, &s);
		float *dx = keep(&m, to_device(d, s.x, n * 4));
		float *dy = keep(&m, d->ops->alloc(d->dev, n * 4));
		void *scratch = keep(&m, d->ops->alloc(d->dev, expert_rows_at(&rows, NULL, &e,
		    c.N)));

		d->ops->experts(d->dev, dy, dx, &e, scratch, c.N);
		got = from_device(d, dy, n);
		compare(d, FFN, "experts", got, want, n);
		d->ops->experts(d->dev, dy, dx, &e, scratch, c.N);
		free(got);
		got = from_device(d, dy, n);
		again(d, "experts", got, n);
		if (d->ops->shares_memory && !d->rounds && c.N <= 64)
			test_alone(d, &c, &e, dx, got, scratch);
		free(got);
		while (m.n > 0)
			d->ops->free(d->dev, m.at[--m.n]);
	}
	free(want);
	free_numbers(&s);
}

/* A score that is not a number makes its row not one, and no other. */
static void
test_not_a_number(uint32_t N)
{
	struct mixture c = { N, 40, 24, 5, 2, KV_F32, { .groups = 1, .groups_chosen = 1,
		.scale = 1 }, .biased = 0 };
	struct numbers s = make_numbers(&c);
	struct expert_rows rows;
	int k, nans;
	uint32_t n;

	s.x[(N - 1) * c.D + 7] = NAN;
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct memory m = { .n = 0 };
		const struct experts e = put_experts(d, &m, &c, &s);
		float *dx = keep(&m, to_device(d, s.x, (size_t)N * c.D * 4)), *got;
		float *dy = keep(&m, d->ops->alloc(d->dev, (size_t)N * c.D * 4));

		d->ops->experts(d->dev, dy, dx, &e, keep(&m, d->ops->alloc(d->dev,
		    expert_rows_at(&rows, NULL, &e, N))), N);
		got = from_device(d, dy, (size_t)N * c.D);
		for (n = 0; n < N; n++) {
			uint32_t i;

			for (nans = 0, i = 0; i < c.D; i++)
				nans += isnan(got[n * c.D + i]) != 0;
			verdict(nans == (n + 1 < N ? 0 : (int)c.D), "%s: row %u of %u has %d NaN",
			    d->name, n, N, nans);
		}
		verdict(d->ops->sync(d->dev) == NULL, "%s: NaN is no failure", d->name);
		free(got);
		while (m.n > 0)
			d->ops->free(d->dev, m.at[--m.n]);
	}
	free_numbers(&s);
}

static void
test_scale_rows(uint32_t N, uint32_t D)
{
	const size_t n = (size_t)N * D;
	float *x = floats(n, 3), *s = floats(N, 9), *got;
	double *want = malloc(n * sizeof *want);
	size_t i;
	int k;

	for (i = 0; i < n; i++)
		want[i] = x[i] / (1 + exp(-(double)s[i / D]));
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * 4), *ds = to_device(d, s, N * 4);

		d->ops->scale_rows(d->dev, dx, ds, N, D);
		got = from_device(d, dx, n);
		compare(d, SWIGLU, "scale_rows", got, want, n);
		free(got);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, ds);
	}
	free(x);
	free(s);
	free(want);
}

void
test_experts(void)
{
	static const enum kv_dtype types[] = { KV_F32, KV_BF16, KV_F16 };
	static const uint32_t rows[] = { 1, 2, 7, 9, 33, 150 };
	const struct router plain = { .groups = 1, .groups_chosen = 1, .scale = 1 };
	const struct router renormed = { .groups = 1, .groups_chosen = 1, .renormalise = 1,
		.scale = 0.7f };
	const struct router sigmoid = { .groups = 3, .groups_chosen = 2, .two_best = 1,
		.scores = ROUTER_SIGMOID, .renormalise = 1, .scale = 2.5f };
	const struct router near = { .groups = 1, .groups_chosen = 1, .scores = ROUTER_NEAR,
		.scale = 1, .margin = 0.37f };
	const struct router greedy = { .groups = 4, .groups_chosen = 2, .scale = 16 };
	size_t t, i;

	for (t = 0; t < 3; t++)
		for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
			if (!in_sample())
				continue;
			test_mixture((struct mixture){ rows[i], 40, 24, 5, 2, types[t], plain,
				0, 0, 0, ACT_SILU, 0 });
			test_mixture((struct mixture){ rows[i], 72, 20, 9, 3, types[t], sigmoid,
				t == 1, 1, 0, ACT_SILU, 0 });
			test_mixture((struct mixture){ rows[i], 40, 24, 5, 2, types[t], renormed,
				1, 0, 1, ACT_SILU, 0 });
			test_mixture((struct mixture){ rows[i], 40, 24, 9, 2, types[t], near,
				0, 0, 0, ACT_SILU, 0 });
			test_mixture((struct mixture){ rows[i], 33, 17, 12, 4, types[t], greedy,
				0, 0, 0, ACT_GELU_TANH, 0 });
		}
	test_mixture((struct mixture){ 3, 264, 136, 130, 11, KV_BF16, renormed, 0, 0, 0,
		ACT_SILU, 0 });
	for (i = 0; i < sizeof rows / sizeof rows[0]; i++)
		test_mixture((struct mixture){ rows[i], 40, 24, 5, 2, KV_BF16, renormed, 1, 0, 0,
			ACT_SILU, 1.5f });
	test_mixture((struct mixture){ 2, 40, 24, 1, 1, KV_F32, renormed, 0, 0, 0, ACT_SILU, 0 });
	test_mixture((struct mixture){ 20, 40, 24, 6, 6, KV_F32, plain, 0, 0, 0, ACT_SILU, 0 });
	test_not_a_number(1);
	test_not_a_number(33);
	test_scale_rows(1, 1027);
	test_scale_rows(33, 20);
}

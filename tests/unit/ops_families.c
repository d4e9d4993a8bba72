/* ops_families.c - ops of rows that families of models beyond Llama need */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

static void
test_temper(uint32_t N, uint32_t D, float beta, uint32_t period)
{
	const size_t n = (size_t)N * D;
	float *x = floats(n, 3), *got;
	double *want = malloc(n * sizeof *want);
	uint32_t *pos = malloc(N * sizeof *pos), i;
	int k;

	for (i = 0; i < N; i++)
		pos[i] = i == 0 ? 0 : i == 1 ? period - 1 : i == 2 ? period : i * 7919;
	for (i = 0; i < n; i++)
		want[i] = x[i] * (1 + beta * log(1 + floor((double)pos[i / D] / period)));
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * 4);
		uint32_t *dp = to_device(d, pos, N * 4);

		d->ops->temper(d->dev, dx, dp, N, D, beta, period);
		got = from_device(d, dx, n);
		compare(d, TEMPER, "temper", got, want, n);
		free(got);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dp);
	}
	free(x);
	free(pos);
	free(want);
}

static void
test_clamp(size_t n, float scale, float limit)
{
	float *x = floats(n, scale), *want = malloc(n * sizeof *want), *got;
	size_t i;
	int k;

	for (i = 0; i < n; i++)
		want[i] = fminf(fmaxf(x[i], -limit), limit);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * 4);

		d->ops->clamp(d->dev, dx, n, limit);
		got = from_device(d, dx, n);
		verdict(memcmp(got, want, n * 4) == 0, "%s: clamp of %zu numbers to %g", d->name,
		    n, (double)limit);
		free(got);
		d->ops->free(d->dev, dx);
	}
	free(x);
	free(want);
}

static void
test_softcap(size_t n, float scale, float cap)
{
	float *x = floats(n, scale), *got;
	double *want = malloc(n * sizeof *want);
	size_t i;
	int k;

	for (i = 0; i < n; i++)
		want[i] = (double)cap * tanh((double)x[i] / (double)cap);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * 4);

		d->ops->softcap(d->dev, dx, n, cap);
		got = from_device(d, dx, n);
		compare(d, SWIGLU, "softcap", got, want, n);
		free(got);
		d->ops->free(d->dev, dx);
	}
	free(x);
	free(want);
}

static void
test_mix(size_t n, float a, float b, int in_place)
{
	float *x = floats(n, 3), *y = floats(n, 3), *got;
	double *want = malloc(n * sizeof *want), *bound = malloc(n * sizeof *bound);
	size_t i;
	int k;

	if (b == 0)
		y[0] = NAN;                             /* is not read */
	for (i = 0; i < n; i++) {
		want[i] = (double)a * x[i] + (b == 0 ? 0 : (double)b * y[i]);
		bound[i] = 1.2e-7 * (fabs((double)a * x[i]) + (b == 0 ? 0 :
		    fabs((double)b * y[i])));
	}
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * 4), *dy = in_place ? dx : to_device(d, y, n * 4);

		d->ops->mix(d->dev, dy, dx, n, a, b);
		got = from_device(d, dy, n);
		compare_each(d, MIX, "mix", got, want, bound, n);
		free(got);
		d->ops->free(d->dev, dx);
		if (!in_place)
			d->ops->free(d->dev, dy);
	}
	free(x);
	free(y);
	free(bound);
	free(want);
}

static void
test_repeat(size_t n, uint32_t times, uint32_t E)
{
	const size_t all = n * times * E;
	float *x = floats(n * E, 3), *want = malloc(all * sizeof *want + 1), *got;
	size_t i;
	int k;

	for (i = 0; i < n * times; i++)
		memcpy(want + i * E, x + i / times * E, E * sizeof *want);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * E * 4), *dy = d->ops->alloc(d->dev, all * 4);

		d->ops->repeat_heads(d->dev, dy, dx, n, times, E);
		got = from_device(d, dy, all);
		verdict(memcmp(got, want, all * 4) == 0, "%s: %zu rows of %u, %u times", d->name, n,
		    E, times);
		free(got);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dy);
	}
	free(x);
	free(want);
}

/* A row far from 0 has a small variance beside its mean. */
static void
test_layernorm(uint32_t heads, uint32_t N, uint32_t D, float scale, float far, int biased)
{
	const size_t n = (size_t)N * D, all = (size_t)heads * D;
	float *x = floats(n, scale), *w = floats(all, 2), *bias = floats(all, 1), *got;
	double *want = malloc(n * sizeof *want);
	uint32_t r, i;
	int k;

	for (r = 0; r < N; r++) {
		double mean = 0, var = 0;

		for (i = 0; i < D; i++)
			mean += (x[r * D + i] += far * (float)r) / D;
		for (i = 0; i < D; i++)
			var += (x[r * D + i] - mean) * (x[r * D + i] - mean) / D;
		for (i = 0; i < D; i++)
			want[r * D + i] = (x[r * D + i] - mean) / sqrt(var + 1e-5f) *
			    w[r % heads * D + i] + (biased ? bias[r % heads * D + i] : 0);
	}
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * 4), *dw = to_device(d, w, all * 4);
		float *db = to_device(d, bias, all * 4);

		d->ops->layernorm(d->dev, dx, dx, dw, biased ? db : NULL, heads, N, D, 1e-5f);
		got = from_device(d, dx, n);
		compare(d, LAYERNORM, "layernorm", got, want, n);
		free(got);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dw);
		d->ops->free(d->dev, db);
	}
	free(x);
	free(w);
	free(bias);
	free(want);
}

static void
test_split_pairs(uint32_t N, uint32_t heads, uint32_t E, uint32_t dims)
{
	const size_t n = (size_t)N * heads * E;
	float *x = floats(n, 3), *want = malloc(n * sizeof *want), *got;
	size_t at;
	int k;

	for (at = 0; at < n; at++) {
		const size_t i = at % E, from = i < dims / 2 ? 2 * i : 2 * (i - dims / 2) + 1;

		want[at] = i < dims ? x[at - i + from] : x[at];
	}
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * 4);

		d->ops->split_pairs(d->dev, dx, N, heads, E, dims);
		got = from_device(d, dx, n);
		verdict(memcmp(got, want, n * 4) == 0, "%s: pairs of %u of %u channels", d->name,
		    dims, E);
		free(got);
		d->ops->free(d->dev, dx);
	}
	free(x);
	free(want);
}

static const struct xielu xielu = { 0.8f, 0.7f, 0.5f, -1e-6f };

static double
ref_activation(double x, enum activation act)
{
	const double eps = (double)xielu.eps, low = x < eps ? x : eps;

	switch (act) {
	case ACT_XIELU:
		return x > 0 ? (double)xielu.positive * x * x + (double)xielu.beta * x :
		    (double)xielu.negative * (expm1(low) - x) + (double)xielu.beta * x;
	case ACT_GELU:
		return 0.5 * x * (1 + erf(x / sqrt(2)));
	case ACT_GELU_TANH:
		return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
	case ACT_RELU2:
		return x > 0 ? x * x : 0;
	default:
		return x / (1 + exp(-x));
	}
}

static void
test_activate(enum activation act, size_t n, float range)
{
	float *x = floats(n, range), *got;
	double *want = malloc((n + 1) * sizeof *want);
	char what[64];
	size_t i;
	int k;

	if (n > 1)
		x[1] = -0.0F;
	for (i = 0; i < n; i++)
		want[i] = ref_activation(x[i], act);
	snprintf(what, sizeof what, "activation %d of %zu numbers to %g", (int)act, n, range);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * sizeof *x);

		d->ops->activate(d->dev, dx, n, act, &xielu);
		got = from_device(d, dx, n);
		compare(d, ACTIVATE, what, got, want, n);
		free(got);
		d->ops->free(d->dev, dx);
	}
	free(x);
	free(want);
}

void
test_families(void)
{
	enum activation act;

	for (act = ACT_SILU; act <= ACT_XIELU; act++) {
		test_activate(act, 1, 1);
		test_activate(act, 1025, 5);
		test_activate(act, 3000, 100);
	}
	test_layernorm(1, 1, 2048, 1, 0, 1);
	test_layernorm(1, 7, 2051, 100, 50, 0);
	test_layernorm(1, 5, 5, 1e-3f, 0, 1);
	test_layernorm(3, 12, 130, 2, 1, 0);
	test_layernorm(5, 35, 12, 1, 0, 1);
	test_split_pairs(3, 5, 12, 6);
	test_split_pairs(1, 1, 2, 2);
	test_split_pairs(33, 2, 128, 128);
	test_split_pairs(2, 3, 1024, 1022);
	test_repeat(1, 1, 1);
	test_repeat(3, 4, 33);
	test_repeat(517, 7, 64);
	test_clamp(1, 40, 30);
	test_clamp(70001, 9, 8);
	test_clamp(1027, 0.5f, 0.6f);
	test_softcap(1, 40, 30);
	test_softcap(70001, 100, 30);
	test_softcap(1027, 0.01f, 50);
	test_temper(1, 7, 0.1f, 16);
	test_temper(33, 516, 0.1f, 8192);
	test_temper(9, 1027, 2, 1);
	test_mix(1, 12, 0, 0);
	test_mix(70001, 12, 0, 1);
	test_mix(4100, 0.22f, 1, 0);
	test_mix(33, 1, 1, 0);
	test_mix(1027, -2.5f, 0.5f, 0);
}

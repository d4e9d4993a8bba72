/* ops_gate.c - the gate of Fast KVzip against a softmax in f64 */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

struct shape {
	uint32_t N, G, R, m, S;
	float range;                    /* of the sinks: with large ones a row has no share */
};

/* y[m] <- x[m], normalised */
static void
normalise(double *y, const float *x, const float *w, double eps, uint32_t m)
{
	double sum = 0;
	uint32_t i;

	for (i = 0; i < m; i++)
		sum += (double)x[i] * x[i];
	for (i = 0; i < m; i++)
		y[i] = x[i] / sqrt(sum / m + eps) * w[i];
}

/* base: [G][S][m], as in the file of a gate */
static double
reference(const struct shape *s, const float *q, const float *k, const float *const w[2],
    const float *base, const float *bias, size_t row, uint32_t g)
{
	double query[64], key[64], mean = 0;
	uint32_t r, i, j;

	normalise(key, k + (row * s->G + g) * s->m, w[1], 1e-6, s->m);
	for (r = 0; r < s->R; r++) {
		double own = 0, sum = 0, sink;

		normalise(query, q + ((row * s->G + g) * s->R + r) * s->m, w[0], 1e-6, s->m);
		for (i = 0; i < s->m; i++)
			own += key[i] * query[i];
		for (j = 0; j < s->S; j++) {
			for (sink = 0, i = 0; i < s->m; i++)
				sink += base[((size_t)g * s->S + j) * s->m + i] * query[i];
			sum += exp(sink / sqrt(s->m));
		}
		own = exp(own / sqrt(s->m) + bias[g * s->R + r]);
		mean += own / (own + sum) / s->R;
	}
	return mean;
}

static void
test_shape(const struct shape *s)
{
	const size_t all = (size_t)s->N * s->G, keys = (size_t)s->G * s->S * s->m;
	float *q = floats(all * s->R * s->m, 3), *k = floats(all * s->m, 3);
	float *const w[] = { floats(s->m, 2), floats(s->m, 2) };
	float *base = floats(keys + 1, s->range), *bias = floats(s->G * s->R, 2), *got;
	float *turned = malloc((keys + 1) * sizeof *turned);
	double *want = malloc((all + 1) * sizeof *want);
	char what[96];
	size_t i;
	int n;

	for (i = 0; i < keys; i++)
		turned[i / (s->S * s->m) * s->S * s->m + i % s->m * s->S + i / s->m % s->S] =
		    base[i];
	for (i = 0; i < all; i++)
		want[i] = reference(s, q, k, (const float *const *)w, base, bias, i / s->G,
		    (uint32_t)(i % s->G));
	snprintf(what, sizeof what, "gate of %u rows, %u KV heads of %u, %u sinks of %u to %g",
	    s->N, s->G, s->R, s->S, s->m, s->range);
	new_case();
	for (n = 0; n < devices; n++) {
		struct device *d = &device[n];
		const struct gate_sinks gate = {
			{ .w = to_device(d, w[0], s->m * 4), .eps = 1e-6F },
			{ .w = to_device(d, w[1], s->m * 4), .eps = 1e-6F },
			to_device(d, turned, keys * 4 + 4),
			to_device(d, bias, s->G * s->R * 4), s->G, s->R, s->m, s->S };
		float *dq = to_device(d, q, all * s->R * s->m * 4);
		float *dk = to_device(d, k, all * s->m * 4), *score = cleared(d, all * 4 + 4);

		d->ops->gate_scores(d->dev, score, dq, dk, &gate, s->N);
		got = from_device(d, score, all);
		compare(d, GATE_SCORES, what, got, want, all);
		free(got);
		d->ops->free(d->dev, (void *)gate.q_norm.w);
		d->ops->free(d->dev, (void *)gate.k_norm.w);
		d->ops->free(d->dev, (void *)gate.base);
		d->ops->free(d->dev, (void *)gate.bias);
		d->ops->free(d->dev, dq);
		d->ops->free(d->dev, dk);
		d->ops->free(d->dev, score);
	}
	free(q);
	free(k);
	free(w[0]);
	free(w[1]);
	free(base);
	free(turned);
	free(bias);
	free(want);
}

void
test_gates(void)
{
	static const struct shape shapes[] = {
		{ 1, 3, 3, 16, 16, 3 }, { 129, 3, 3, 16, 16, 3 }, { 40, 8, 4, 16, 16, 1 },
		{ 7, 1, 7, 5, 3, 2 }, { 33, 2, 1, 64, 1, 2 }, { 5, 3, 2, 12, 0, 1 },
		{ 31, 4, 2, 16, 33, 200 },
	};
	size_t i;

	for (i = 0; i < sizeof shapes / sizeof *shapes; i++)
		test_shape(&shapes[i]);
}

/* ops_querystats.c - sums over queries, which are the same bytes on every device, however the
 * queries are split over calls */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

struct shape {
	uint32_t N, H, E, dims;
	uint32_t first;                  /* queries of the first of two calls */
	uint32_t rotated;                /* the first of dims channels */
};

static size_t
numbers_of(const struct shape *s)
{
	return (size_t)s->H * (s->E + s->dims / 2 + (size_t)s->E * (s->E + 1) / 2);
}

static double
length(double a, double b)
{
	return sqrt(a * a + b * b);
}

static void
reference(double *sums, const float *q, const struct shape *s)
{
	const uint32_t E = s->E, half = s->dims / 2;
	double *modulus = sums + (size_t)s->H * E, *product = modulus + (size_t)s->H * half, *at;
	uint32_t n, h, i, j;

	for (n = 0; n < s->N; n++)
		for (h = 0; h < s->H; h++, q += E) {
			at = product + (size_t)h * (E * (E + 1) / 2);
			for (i = 0; i < E; i++) {
				sums[(size_t)h * E + i] += q[i];
				for (j = 0; j <= i; j++)
					*at++ += (double)q[i] * q[j];
			}
			for (i = 0; i < half; i++)
				modulus[(size_t)h * half + i] += length(q[s->rotated + i],
				    q[s->rotated + i + half]);
		}
}

static void
run(struct device *d, const struct shape *s, const float *q, const double *want)
{
	enum { GUARD = 3 };
	const size_t n = numbers_of(s), row = (size_t)s->H * s->E;
	float *dq = to_device(d, q, s->N * row * sizeof *q);
	double *zero = calloc(n + GUARD, sizeof *zero), *on_device, *got;
	char what[80];

	zero[n] = zero[n + 1] = zero[n + 2] = 7;
	on_device = to_device(d, zero, (n + GUARD) * sizeof *zero);
	got = malloc((n + GUARD) * sizeof *got);
	d->ops->query_stats(d->dev, on_device, dq, s->first, s->H, s->E, s->rotated,
	    s->dims);
	d->ops->query_stats(d->dev, on_device, dq + s->first * row, s->N - s->first, s->H, s->E,
	    s->rotated, s->dims);
	d->ops->get(d->dev, got, on_device, (n + GUARD) * sizeof *got);
	snprintf(what, sizeof what, "query statistics of %u queries, %u heads, %u wide, %u rotated",
	    s->N, s->H, s->E, s->dims);
	verdict(d->ops->sync(d->dev) == NULL, "%s: %s", d->name, what);
	verdict(memcmp(got, want, n * sizeof *got) == 0, "%s: %s: other sums", d->name, what);
	verdict(memcmp(got + n, zero + n, GUARD * sizeof *got) == 0, "%s: %s: numbers behind them",
	    d->name, what);
	d->ops->free(d->dev, on_device);
	d->ops->free(d->dev, dq);
	free(zero);
	free(got);
}

void
test_query_stats(void)
{
	static const struct shape shapes[] = {
		{ 1, 1, 1, 0, 0, 0 }, { 1, 9, 64, 64, 1, 0 }, { 70, 3, 64, 64, 33, 0 },
		{ 8, 2, 10, 10, 8, 0 },
		{ 129, 4, 10, 4, 7, 0 }, { 40, 2, 128, 64, 11, 0 }, { 9, 6, 80, 0, 0, 0 },
		{ 5, 2, 256, 256, 2, 0 }, { 6, 1, 1024, 512, 5, 0 }, { 3, 2, 33, 32, 1, 1 },
		{ 7, 2, 72, 16, 3, 56 },
	};
	size_t i;
	double *want;
	float *q;
	int k;

	for (i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		const struct shape *s = &shapes[i];

		q = floats((size_t)s->N * s->H * s->E, 30);
		want = calloc(numbers_of(s), sizeof *want);
		reference(want, q, s);
		for (k = 0; k < devices; k++)
			run(&device[k], s, q, want);
		free(q);
		free(want);
	}
}

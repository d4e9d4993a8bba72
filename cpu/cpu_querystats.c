/* cpu_querystats.c - sums over queries before rotary embedding, of which methods make mean and
 * covariance (kv-snapshot(5), 4.22)
 *
 * A thread takes some rows of a query head's triangle, and of its sums the same channels. Each
 * number is one sum over the queries in their order, so neither threads nor vectors change it. */
#include <math.h>

#include "cpu/cpu_internal.h"

#define ROWS 32                 /* rows of a triangle that a thread takes */
#define AT_ONCE 8               /* queries that are widened together */
#define BEHIND 8                /* numbers behind them that add_products() loads */

struct stats {
	const struct simd *simd;
	double *sum, *modulus, *product;
	const float *q;
	uint32_t N, H, E, rotated, dims;        /* rotated: the first of dims channels */
};

/* Returns the modulus of a channel and the one `half` behind it. */
static double
modulus_of(const double *x, size_t half)
{
	return sqrt(x[0] * x[0] + x[half] * x[half]);
}

/* Adds queries x[n][E] of head h to its rows first .. last-1. */
static void
add_rows(const struct stats *s, uint32_t h, const double *x, uint32_t n, uint32_t first,
    uint32_t last)
{
	const size_t E = s->E, half = s->dims / 2;
	double *sum = s->sum + h * E, *modulus = s->modulus + h * half;
	double *product = s->product + h * (E * (E + 1) / 2);
	const double *of;
	size_t i, t;

	for (i = first; i < last; i++) {
		for (t = 0; t < n; t++) {
			of = x + t * E;
			sum[i] += of[i];
			if (i < half)
				modulus[i] += modulus_of(of + s->rotated + i, half);
		}
		s->simd->add_products(product + i * (i + 1) / 2, x, E, i, n);
	}
}

static void
stats_part(void *arg, size_t item, int thread)
{
	const struct stats *s = arg;
	const uint32_t parts = (s->E + ROWS - 1) / ROWS, h = (uint32_t)(item / parts);
	const uint32_t first = (uint32_t)(item % parts) * ROWS;
	const uint32_t last = s->E - first < ROWS ? s->E : first + ROWS;
	double x[AT_ONCE * KV_ROW_WIDTH_MOST + BEHIND];
	const float *from;
	uint32_t at, n, t, e;

	(void)thread;
	for (at = 0; at < s->N; at += n) {
		n = s->N - at < AT_ONCE ? s->N - at : AT_ONCE;
		for (t = 0; t < n; t++) {
			from = s->q + ((size_t)(at + t) * s->H + h) * s->E;
			for (e = 0; e < s->E; e++)
				x[(size_t)t * s->E + e] = from[e];
		}
		for (e = 0; e < BEHIND; e++)
			x[(size_t)n * s->E + e] = 0;
		add_rows(s, h, x, n, first, last);
	}
}

void
cpu_query_stats(struct dev *d, double *sums, const float *q, uint32_t N, uint32_t H, uint32_t E,
    uint32_t first, uint32_t dims)
{
	struct stats s = { d->simd, sums, sums + (size_t)H * E,
	    sums + (size_t)H * E + (size_t)H * (dims / 2), q, N, H, E, first, dims };

	if (d->error[0] == '\0')
		cpu_run(d, stats_part, &s, (size_t)H * ((E + ROWS - 1) / ROWS),
		    (size_t)N * H * E * E / 2);
}

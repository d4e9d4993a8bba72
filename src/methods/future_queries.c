/* future_queries.c - mean and covariance of the queries of later tokens */
#include <math.h>
#include <stdlib.h>

#include "methods/future_queries.h"

/* Allocates a rotation of nothing, for the layer of in. */
static int
rotation_alloc(struct mean_rotation *m, const struct score_input *in)
{
	const uint32_t pairs = in->rope_dims / 2;

	*m = (struct mean_rotation){ .pairs = pairs, .first = in->rope_first,
	    .cos = calloc(2 * (size_t)pairs + 1, sizeof *m->cos) };
	if (m->cos == NULL)
		return -1;
	m->sin = m->cos + pairs;
	return 0;
}

int
mean_rotation_of(struct mean_rotation *m, const struct score_input *in, const uint64_t *at,
    uint32_t n)
{
	uint32_t i, p;

	if (rotation_alloc(m, in) != 0)
		return -1;
	for (i = 0; i < m->pairs; i++)
		for (p = 0; p < n; p++) {
			m->cos[i] += in->rope_factor / n * cos((double)at[p] * in->freq[i]);
			m->sin[i] += in->rope_factor / n * sin((double)at[p] * in->freq[i]);
		}
	return 0;
}

int
mean_rotation_init(struct mean_rotation *m, const struct score_input *in, uint32_t future)
{
	double half, middle, length;
	uint32_t i;

	if (rotation_alloc(m, in) != 0)
		return -1;
	/* the sum of exp(sqrt(-1) (a + 2 h p)) over p = 0 .. n - 1, a geometric series, is
	 * exp(sqrt(-1) (a + (n - 1) h)) sin(n h) / sin(h) */
	for (i = 0; i < m->pairs; i++) {
		half = in->freq[i] / 2;
		middle = (2 * (double)in->next_position + future - 1) * half;
		length = sin(half) == 0 ? 1 : sin(future * half) / (future * sin(half));
		m->cos[i] = in->rope_factor * length * cos(middle);
		m->sin[i] = in->rope_factor * length * sin(middle);
	}
	return 0;
}

void
mean_rotation_free(struct mean_rotation *m)
{
	free(m->cos);
	m->cos = NULL;
}

/* Turns x, whose channels are `step` apart. */
static void
turn(double *x, size_t step, const struct mean_rotation *m)
{
	double a, b;
	size_t i;

	x += m->first * step;
	for (i = 0; i < m->pairs; i++) {
		a = x[i * step];
		b = x[(i + m->pairs) * step];
		x[i * step] = a * m->cos[i] - b * m->sin[i];
		x[(i + m->pairs) * step] = a * m->sin[i] + b * m->cos[i];
	}
}

void
future_mean(double *mean, const struct mean_rotation *m, const struct score_input *in, uint32_t h)
{
	const struct kv_query_stats *q = in->query_stats;
	const double *sum = q->sum + (size_t)h * in->width;
	uint32_t i;

	for (i = 0; i < in->width; i++)
		mean[i] = sum[i] / q->n;
	turn(mean, 1, m);
}

void
future_covariance(double *cov, const struct mean_rotation *m, const struct score_input *in,
    uint32_t h)
{
	const struct kv_query_stats *q = in->query_stats;
	const size_t E = in->width;
	const double *sum = q->sum + h * E, *product = q->product + h * (E * (E + 1) / 2);
	size_t i, j;

	for (i = 0; i < E; i++)
		for (j = 0; j <= i; j++)
			cov[i * E + j] = cov[j * E + i] = *product++ / q->n -
			    sum[i] / q->n * (sum[j] / q->n);
	for (i = 0; i < E; i++)
		turn(cov + i, E, m);            /* columns: M C */
	for (i = 0; i < E; i++)
		turn(cov + i * E, 1, m);        /* rows: (M C) M' */
}

int
future_room_init(struct future_room *w, const struct score_input *in, uint32_t future)
{
	const size_t E = in->width, n = in->rows->count[0];

	*w = (struct future_room){ .mean = calloc(E * (2 + FUTURE_COLUMNS + E), sizeof *w->mean),
	    .row = malloc(E * sizeof *w->row), .one = calloc(2 * n + 1, sizeof *w->one) };
	if (w->mean == NULL || w->row == NULL || w->one == NULL ||
	    mean_rotation_init(&w->rotation, in, future) != 0) {
		future_room_free(w);
		return -1;
	}
	w->vector = w->mean + E;
	w->columns = w->vector + E;
	w->matrix = w->columns + E * FUTURE_COLUMNS;
	w->all = w->one + n;
	return 0;
}

void
future_room_free(struct future_room *w)
{
	mean_rotation_free(&w->rotation);
	free(w->mean);
	free(w->row);
	free(w->one);
}

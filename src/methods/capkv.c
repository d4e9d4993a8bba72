/* capkv.c - how much a row adds to the capacity of the values that later tokens will read
 *
 * CapKV, kvpress's CapPress: the log-determinant of I + sum of w v v' is the capacity of a channel
 * whose inputs are the values v with weights w, and a row's share in it is its leverage,
 *
 *     s = w v' A^-1 v,   A = I + sum over rows of (w + 1e-6) v v',
 *     w = exp(5 (c - max c)),   c the cosine of the key with the mean of later queries
 *
 * (future_queries.h), for each query head; a KV head's score is the mean. Rows at positions below
 * sink are kept and enter no sum. A key, or a mean of queries, of length 0 has cosine 0. A is
 * positive definite, so a Cholesky decomposition L L' and one triangular solve for each row give
 * v' A^-1 v = |L^-1 v|^2: E^2 products for each row and query head. */
#include <math.h>
#include <stdlib.h>

#include "methods/cholesky.h"
#include "methods/future_queries.h"
#include "methods/scorers.h"

static const double SHARPNESS = 5, LEAST_WEIGHT = 1e-6;

static void
take_value(struct future_room *w, const struct score_input *in, const char *value)
{
	uint32_t e;

	kv_rows_to_f32(w->row, value, in->value_type, in->width, 1);
	for (e = 0; e < in->width; e++)
		w->vector[e] = e < value_channels(in) ? w->row[e] : 0;
}

/* w->one[n] <- the weights of n keys */
static void
make_weights(struct future_room *w, const struct score_input *in, const char *keys, uint32_t n)
{
	const size_t E = in->width, size = kv_row_bytes(in->key_type, E);
	double dot, squared, length = 0, most = -INFINITY;
	uint32_t i, e;

	for (e = 0; e < E; e++)
		length += w->mean[e] * w->mean[e];
	for (i = 0; i < n; i++) {
		kv_rows_to_f32(w->row, keys + i * size, in->key_type, E, 1);
		for (e = 0, dot = squared = 0; e < E; e++) {
			dot += w->mean[e] * w->row[e];
			squared += (double)w->row[e] * w->row[e];
		}
		w->one[i] = squared == 0 || length == 0 ? 0 : dot / sqrt(squared) / sqrt(length);
		most = w->one[i] > most ? w->one[i] : most;
	}
	for (i = 0; i < n; i++)
		w->one[i] = exp(SHARPNESS * (w->one[i] - most));
}

/* w->matrix <- A of n values and their weights */
static void
make_capacity(struct future_room *w, const struct score_input *in, const char *values, uint32_t n)
{
	const size_t E = in->width, size = kv_row_bytes(in->value_type, E);
	size_t i, j;
	uint32_t s;

	for (i = 0; i < E; i++)
		for (j = 0; j <= i; j++)
			w->matrix[i * E + j] = i == j;
	for (s = 0; s < n; s++) {
		take_value(w, in, values + s * size);
		cholesky_add(w->matrix, w->vector, E, w->one[s] + LEAST_WEIGHT);
	}
}

/* w->all[n] += the weighted leverages of n values, of the decomposed A */
static void
add_leverages(struct future_room *w, const struct score_input *in, const char *values, uint32_t n)
{
	const size_t E = in->width, size = kv_row_bytes(in->value_type, E);
	double form[FUTURE_COLUMNS];
	uint32_t at, b, some;
	size_t e;

	for (at = 0; at < n; at += some) {
		some = n - at < FUTURE_COLUMNS ? n - at : FUTURE_COLUMNS;
		for (b = 0; b < some; b++) {
			take_value(w, in, values + (at + b) * size);
			for (e = 0; e < E; e++)
				w->columns[e * FUTURE_COLUMNS + b] = w->vector[e];
		}
		cholesky_forms(form, w->matrix, w->columns, E);
		for (b = 0; b < some; b++)
			w->all[at + b] += w->one[at + b] * form[b];
	}
}

/* method_score() calls this for one KV head at a time. */
int
score_capkv(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint32_t R = in->query_heads, all = in->rows->count[0];
	const uint32_t sinks = kv_rows_before(in->rows->pos[0], all, opt->sink), n = all - sinks;
	const size_t key = kv_row_bytes(in->key_type, in->width);
	const size_t value = kv_row_bytes(in->value_type, in->width);
	const char *keys = (const char *)in->keys + sinks * key;
	const char *values = (const char *)in->values + sinks * value;
	struct future_room w;
	uint32_t r, i;

	if (future_room_init(&w, in, opt->future) != 0)
		return -1;
	for (r = 0; r < R && n > 0; r++) {
		future_mean(w.mean, &w.rotation, in, in->head * R + r);
		make_weights(&w, in, keys, n);
		make_capacity(&w, in, values, n);
		cholesky_decompose(w.matrix, in->width);
		add_leverages(&w, in, values, n);
	}
	for (i = 0; i < sinks; i++)
		*score++ = INFINITY;
	for (i = 0; i < n; i++)
		*score++ = (float)(w.all[i] / R);
	future_room_free(&w);
	return 0;
}

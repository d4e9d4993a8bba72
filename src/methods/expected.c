/* expected.c - the attention that later tokens are expected to pay, times the norm of the value
 *
 * Devoto, Jeblick, Jégou 2025, "Expected Attention: KV Cache Compression by Estimating Attention
 * from Future Queries Distribution", section 3. With queries from a normal distribution of mean m
 * and covariance C (future_queries.h), the expectation of exp(q.k / sqrt(E)) is
 *
 *     exp(m.k / sqrt(E) + k'C k / (2 E)),
 *
 * which, over the sum of all rows, is a row's expected attention a. For a KV head it is the mean of
 * those of its query heads; the score is (a + epsilon) |v|. Rows at positions below sink are kept
 * and enter no sum. Without the covariance, C = 0; without the norm of the value, |v| = 1.
 *
 * Defaults are kvpress's (512 positions, epsilon 0); its leaderboard takes epsilon 0.01 under
 * AdaKV. The next position is that of the text, also in a chunk and while decoding, where kvpress
 * takes the length of the chunk. Cost: E^2 / 2 products for each row and query head. */
#include <math.h>
#include <stdlib.h>

#include "methods/future_queries.h"
#include "methods/scorers.h"
#include "methods/softmax.h"
#include "methods/squared_length.h"

/* form[FUTURE_COLUMNS] <- k'C k of the keys kt[E][FUTURE_COLUMNS], of the lower triangle of C */
static void
quadratic_forms(double *form, const double *cov, const double *kt, size_t E)
{
	double sum[FUTURE_COLUMNS];
	size_t i, j, b;

	for (b = 0; b < FUTURE_COLUMNS; b++)
		form[b] = 0;
	for (i = 0; i < E; i++) {
		for (b = 0; b < FUTURE_COLUMNS; b++)
			sum[b] = 0;
		for (j = 0; j < i; j++)
			for (b = 0; b < FUTURE_COLUMNS; b++)
				sum[b] += cov[i * E + j] * kt[j * FUTURE_COLUMNS + b];
		for (b = 0; b < FUTURE_COLUMNS; b++)
			form[b] += kt[i * FUTURE_COLUMNS + b] *
			    (2 * sum[b] + cov[i * E + i] * kt[i * FUTURE_COLUMNS + b]);
	}
}

/* w->one[n] <- the logits of rows of keys for one query head, whose mean and covariance are in w */
static void
make_logits(struct future_room *w, const struct score_input *in, const struct score_options *opt,
    const char *keys, uint32_t n)
{
	const size_t E = in->width, size = kv_row_bytes(in->key_type, E);
	double form[FUTURE_COLUMNS] = { 0 }, dot;
	uint32_t at, b, some;
	size_t e;

	for (at = 0; at < n; at += some) {
		some = n - at < FUTURE_COLUMNS ? n - at : FUTURE_COLUMNS;
		for (e = 0; e < E * FUTURE_COLUMNS; e++)
			w->columns[e] = 0;
		for (b = 0; b < some; b++) {
			kv_rows_to_f32(w->row, keys + (at + b) * size, in->key_type, E, 1);
			for (e = 0, dot = 0; e < E; e++) {
				w->columns[e * FUTURE_COLUMNS + b] = w->row[e];
				dot += w->mean[e] * w->row[e];
			}
			w->one[at + b] = dot / sqrt((double)E);
		}
		if (opt->covariance)
			quadratic_forms(form, w->matrix, w->columns, E);
		for (b = 0; b < some; b++)
			w->one[at + b] += form[b] / (2 * (double)E);
	}
}

/* w->all[n] += the softmax of w->one[n] */
static void
add_softmax(struct future_room *w, uint32_t n)
{
	uint32_t i;

	softmax(w->one, n);
	for (i = 0; i < n; i++)
		w->all[i] += w->one[i];
}

static double
norm_of(const struct score_input *in, const char *value, float *row)
{
	kv_rows_to_f32(row, value, in->value_type, in->width, 1);
	return sqrt(squared_length(row, value_channels(in)));
}

/* method_score() calls this for one KV head at a time. */
int
score_expected(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint32_t R = in->query_heads, n = in->rows->count[0];
	const uint32_t sinks = kv_rows_before(in->rows->pos[0], n, opt->sink);
	const size_t key = kv_row_bytes(in->key_type, in->width);
	const size_t value = kv_row_bytes(in->value_type, in->width);
	struct future_room w;
	uint32_t r, i;

	if (future_room_init(&w, in, opt->future) != 0)
		return -1;
	for (r = 0; r < R && sinks < n; r++) {
		future_mean(w.mean, &w.rotation, in, in->head * R + r);
		if (opt->covariance)
			future_covariance(w.matrix, &w.rotation, in, in->head * R + r);
		make_logits(&w, in, opt, (const char *)in->keys + sinks * key, n - sinks);
		add_softmax(&w, n - sinks);
	}
	for (i = 0; i < sinks; i++)
		score[i] = INFINITY;
	for (; i < n; i++)
		score[i] = (float)((w.all[i - sinks] / R + opt->epsilon.value) * (opt->value_norm ?
		    norm_of(in, (const char *)in->values + i * value, w.row) : 1));
	future_room_free(&w);
	return 0;
}

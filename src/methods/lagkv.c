/* lagkv.c - rows that differ from the ones behind them are kept, in keys and in values
 *
 * Liang et al. 2025, "LagKV: Lag-Relative Information of the KV Cache Tells Which Tokens Are
 * Important"; defaults and the order of rows are those of kvpress's LagKVPress.
 *
 * Behind the sinks the rows of a KV head are cut into partitions of `lag` rows. A partition is
 * judged by the next one: u = (x - lo) / (hi - lo), with lo and hi the least and the greatest
 * number of a channel among the rows of the next partition; sigma = the standard deviation of u
 * over the channels of a row (n - 1); softmax of sigma over the partition. This is done for keys,
 * as stored, and for values, and the row has the mean of both. Then the rows of a partition are
 * ranked, score = rank/lag, so that every partition keeps the same share. Sinks, the last partition
 * and what is behind it, which nothing judges, have 1. With fewer than two partitions later rows
 * have higher scores.
 *
 * With `cross` there are no ranks: partitions compete.
 *
 * Decided here, where kvpress divides by 0: a channel that is constant in the next partition tells
 * nothing and is left out; sigma is 0 where fewer than two channels are left. Of rows with the same
 * sigma the lower one has the higher rank.
 *
 * Limits: ignores the question; the last lag to 2 lag rows compete only by position.
 *
 * Ours differs from the authors' program in this: it compresses a partition as soon as the next one
 * is complete, and never looks at it again; one kv-score ranks the present rows. */
#include <math.h>
#include <stdlib.h>

#include "methods/scorers.h"
#include "methods/softmax.h"

struct ranked_row {
	double sigma;
	uint32_t row;
};

/* A KV head's rows of keys or of values, and scratch for [E] numbers each */
struct side {
	const char *rows;
	enum kv_row_type type;
	uint32_t channels;              /* that count, the first ones; the others read as 0 */
	float *x, *least, *most;
};

struct lag {
	uint32_t lag, width;
	struct side side[2];            /* keys, values */
	double *sigma;                  /* [lag] */
	struct ranked_row *ranked;      /* [lag] */
};

static const float *
row_at(const struct side *s, uint32_t row, uint32_t E)
{
	uint32_t e;

	kv_rows_to_f32(s->x, s->rows + row * kv_row_bytes(s->type, E), s->type, E, 1);
	for (e = s->channels; e < E; e++)
		s->x[e] = 0;
	return s->x;
}

/* least[E], most[E] <- of each channel in n rows from `first` on */
static void
measure(const struct side *s, uint32_t first, uint32_t n, uint32_t E)
{
	const float *x;
	uint32_t row, e;

	for (row = first; row < first + n; row++) {
		x = row_at(s, row, E);
		for (e = 0; e < E; e++) {
			if (row == first || x[e] < s->least[e])
				s->least[e] = x[e];
			if (row == first || x[e] > s->most[e])
				s->most[e] = x[e];
		}
	}
}

/* Returns the standard deviation of a row's channels on the scale of the measured rows. */
static double
deviation(const struct side *s, uint32_t row, uint32_t E)
{
	const float *x = row_at(s, row, E);
	double sum = 0, squares = 0, u, mean;
	uint32_t e, n = 0;

	for (e = 0; e < E; e++)
		if (!(s->most[e] == s->least[e])) {
			sum += ((double)x[e] - s->least[e]) / ((double)s->most[e] - s->least[e]);
			n++;
		}
	if (n < 2)
		return 0;
	mean = sum / n;
	for (e = 0; e < E; e++)
		if (!(s->most[e] == s->least[e])) {
			u = ((double)x[e] - s->least[e]) / ((double)s->most[e] - s->least[e]);
			squares += (u - mean) * (u - mean);
		}
	return sqrt(squares / (n - 1));
}

/* Adds half of the softmax of the deviations of one side to ranked[].sigma. */
static void
add_side(const struct lag *l, const struct side *s, uint32_t first)
{
	uint32_t i;

	measure(s, first + l->lag, l->lag, l->width);
	for (i = 0; i < l->lag; i++)
		l->sigma[i] = deviation(s, first + i, l->width);
	softmax(l->sigma, l->lag);
	for (i = 0; i < l->lag; i++)
		l->ranked[i].sigma += l->sigma[i] / 2;
}

/* Ascending by sigma; of equals the higher row first. A NaN, which the caller refuses, is last. */
static int
by_sigma(const void *a, const void *b)
{
	const struct ranked_row *x = a, *y = b;

	if (isnan(x->sigma) || isnan(y->sigma))
		return isnan(x->sigma) - isnan(y->sigma);
	if (x->sigma != y->sigma)
		return x->sigma < y->sigma ? -1 : 1;
	return x->row < y->row ? 1 : -1;
}

/* score[lag] <- of the partition that begins at row `first` */
static void
score_partition(float *score, const struct lag *l, uint32_t first, int cross)
{
	uint32_t i;

	for (i = 0; i < l->lag; i++)
		l->ranked[i] = (struct ranked_row){ 0, i };
	add_side(l, &l->side[0], first);
	add_side(l, &l->side[1], first);
	if (!cross)
		qsort(l->ranked, l->lag, sizeof *l->ranked, by_sigma);
	for (i = 0; i < l->lag; i++)
		score[l->ranked[i].row] = cross || isnan(l->ranked[i].sigma) ?
		    (float)l->ranked[i].sigma : (float)i / (float)l->lag;
}

static void
score_head(float *score, const struct lag *l, const uint32_t *pos, uint32_t n,
    const struct score_options *opt)
{
	const uint32_t sinks = kv_rows_before(pos, n, opt->sink), judged = n - sinks;
	uint32_t i, p;

	for (i = 0; i < n; i++)
		score[i] = i < sinks || judged >= 2 * (uint64_t)l->lag ? 1 :
		    (float)(i - sinks) / (float)judged;
	for (p = 0; judged >= 2 * (uint64_t)l->lag && p + 1 < judged / l->lag; p++)
		score_partition(score + sinks + p * l->lag, l, sinks + p * l->lag, opt->cross);
}

static void
free_lag(struct lag *l)
{
	free(l->ranked);
	free(l->sigma);
	free(l->side[0].x);
	free(l->side[1].x);
}

/* Memory for partitions of up to `longest` rows. Returns 0, or -1. */
static int
make_lag(struct lag *l, const struct score_input *in, const struct score_options *opt,
    uint32_t longest)
{
	const uint32_t E = in->width;
	int i;

	*l = (struct lag){ .lag = opt->lag, .width = E };
	longest = opt->lag < longest ? opt->lag : longest;
	l->ranked = malloc((longest + 1) * sizeof *l->ranked);
	l->sigma = malloc((longest + 1) * sizeof *l->sigma);
	for (i = 0; i < 2; i++) {
		struct side *s = &l->side[i];

		s->rows = i == 0 ? in->keys : in->values;
		s->type = i == 0 ? in->key_type : in->value_type;
		s->channels = i == 0 ? E : value_channels(in);
		s->x = malloc(3 * (size_t)E * sizeof *s->x);
		s->least = s->x != NULL ? s->x + E : NULL;
		s->most = s->x != NULL ? s->least + E : NULL;
	}
	return l->ranked != NULL && l->sigma != NULL && l->side[0].x != NULL &&
	    l->side[1].x != NULL ? 0 : -1;
}

int
score_lagkv(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	uint32_t g, i, longest = 0;
	struct lag l;
	int rc;

	for (g = 0; g < rows->heads; g++)
		longest = rows->count[g] > longest ? rows->count[g] : longest;
	rc = make_lag(&l, in, opt, longest);
	for (g = 0; rc == 0 && g < rows->heads; g++) {
		score_head(score, &l, rows->pos[g], rows->count[g], opt);
		score += rows->count[g];
		for (i = 0; i < 2 && rows->count[g] > 0; i++)
			l.side[i].rows += rows->count[g] * kv_row_bytes(l.side[i].type, in->width);
	}
	free_lag(&l);
	return rc;
}

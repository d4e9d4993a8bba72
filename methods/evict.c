/* evict.c - which rows of a layer stay: the one driver under all methods
 *
 * For each KV head: a budget; the rows that are always kept (sinks, recent ones, scores of
 * +inf); of the others those with the greatest scores. Heads are independent of each other,
 * and so are layers. It chooses row numbers and moves no data. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/methods.h"

/* Why rows are always kept, counted for the message; a row counts once, for the first reason. */
struct always {
	uint32_t sink, recent, infinite;
};

static int
is_recent(uint32_t pos, const struct evict_input *in, const struct evict_options *opt)
{
	return (uint64_t)pos + opt->recent >= in->next_position;
}

/* rank[n] <- the scores, +inf for rows that are always kept. Without scores a later row
 * ranks higher. */
static struct always
rank_rows(float *rank, const uint32_t *pos, const float *score, uint32_t n,
    const struct evict_input *in, const struct evict_options *opt)
{
	struct always always = { 0, 0, 0 };
	uint32_t i;

	for (i = 0; i < n; i++) {
		rank[i] = score != NULL ? score[i] : 0;
		if (pos[i] < opt->sink)
			always.sink++;
		else if (is_recent(pos[i], in, opt))
			always.recent++;
		else if (rank[i] == INFINITY)
			always.infinite++;
		else
			continue;
		rank[i] = INFINITY;
	}
	return always;
}

/* keep[k] <- the sinks and the last of the n rows. Recent rows are among the last. */
static void
select_last(uint32_t n, uint32_t k, uint32_t sinks, uint32_t *keep)
{
	uint32_t i;

	for (i = 0; i < k; i++)
		keep[i] = i < sinks ? i : n - k + i;
}

/* Chooses for one head. budget <= n. */
static int
choose_head(uint32_t *keep, const uint32_t *pos, const float *score, uint32_t n, uint32_t budget,
    float *rank, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size)
{
	struct always a;

	if (budget == n) {
		select_last(n, n, n, keep);
		return EVICT_OK;
	}
	a = rank_rows(rank, pos, score, n, in, opt);
	if (budget == 0 || budget < a.sink + a.recent + a.infinite) {
		snprintf(why, size, "a budget of %u of %u rows is too small: %u are always kept "
		    "(%u sink, %u recent, %u scored +inf)", budget, n,
		    a.sink + a.recent + a.infinite, a.sink, a.recent, a.infinite);
		return EVICT_EBUDGET;
	}
	if (score == NULL)
		select_last(n, budget, a.sink, keep);
	else
		select_top(rank, n, budget, keep);
	return EVICT_OK;
}

static uint32_t
budget_of(const struct evict_options *opt, uint32_t n)
{
	if (opt->budget == 0)
		return budget_of_rate(n, opt->rate);
	return opt->budget < n ? opt->budget : n;
}

static int
choose(const struct evict_input *in, const struct evict_options *opt, struct kept *out, float *rank,
    char *why, size_t size)
{
	const float *score = in->score;
	char text[160];
	uint32_t g, n;
	int code;

	for (g = 0; g < out->heads; g++) {
		n = in->rows->count[g];
		out->count[g] = budget_of(opt, n);
		out->keep[g] = malloc(out->count[g] * sizeof *out->keep[g] + 1);
		if (out->keep[g] == NULL)
			return EVICT_ENOMEM;
		code = choose_head(out->keep[g], in->rows->pos[g], score, n, out->count[g], rank,
		    in, opt, text, sizeof text);
		if (code != EVICT_OK) {
			snprintf(why, size, "KV head %u: %s", g, text);
			return code;
		}
		if (score != NULL)
			score += n;
	}
	return EVICT_OK;
}

int
evict_choose(const struct evict_input *in, const struct evict_options *opt, struct kept *out,
    char *why, size_t size)
{
	uint32_t g, most = 0;
	float *rank;
	int code = EVICT_ENOMEM;

	for (g = 0; g < in->rows->heads; g++)
		if (in->rows->count[g] > most)
			most = in->rows->count[g];
	memset(out, 0, sizeof *out);
	rank = malloc(most * sizeof *rank + 1);
	out->count = calloc(in->rows->heads, sizeof *out->count);
	out->keep = calloc(in->rows->heads, sizeof *out->keep);
	if (rank != NULL && out->count != NULL && out->keep != NULL) {
		out->heads = in->rows->heads;
		code = choose(in, opt, out, rank, why, size);
	}
	free(rank);
	if (code != EVICT_OK)
		kept_free(out);
	return code;
}

void
kept_free(struct kept *kept)
{
	uint32_t g;

	for (g = 0; kept->keep != NULL && g < kept->heads; g++)
		free(kept->keep[g]);
	free(kept->keep);
	free(kept->count);
	memset(kept, 0, sizeof *kept);
}

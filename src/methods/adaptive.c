/* adaptive.c - AdaKV: the KV heads of a layer share its budget by their scores
 *
 * AdaKV (Feng et al. 2024). A head with spread attention needs more rows than one that attends to
 * few. So the rows of all heads of a layer compete for the layer's budget, and each head keeps as
 * many as it wins. A share of its own budget is guaranteed: with B rows to be chosen in a head, c
 * of which it would win, and the share a, it keeps c * (1 - a) + B * a. The authors' code rounds
 * this half to even in each head, so that the total is off by up to a row a head; here the largest
 * remainders are rounded up (of equal ones the lower head first) and the total is exact. For the
 * same reason B * a is not rounded before.
 *
 * kvpress shares differently: the floor(budget * a) best rows of each head are safe, and of all
 * others those with the lowest scores are evicted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/budgets.h"

/* The competing rows: those that are not always kept. */
struct contest {
	float *score;           /* [sum n] */
	uint32_t *n;            /* [G] */
	uint32_t *won;          /* [G] */
	double *share;          /* [G] */
	uint32_t *row;          /* [max n] */
};

static int
contest_new(struct contest *c, const struct ranked *r)
{
	size_t total = 0, most = 0;
	uint32_t g;

	for (g = 0; g < r->heads; total += r->n[g++])
		most = r->n[g] > most ? r->n[g] : most;
	c->score = malloc(total * sizeof *c->score + 1);
	c->n = calloc(r->heads, sizeof *c->n);
	c->won = calloc(r->heads, sizeof *c->won);
	c->share = calloc(r->heads, sizeof *c->share);
	c->row = malloc(most * sizeof *c->row + 1);
	return c->score != NULL && c->n != NULL && c->won != NULL && c->share != NULL &&
	    c->row != NULL ? EVICT_OK : EVICT_ENOMEM;
}

static void
contest_free(struct contest *c)
{
	free(c->score);
	free(c->n);
	free(c->won);
	free(c->share);
	free(c->row);
}

/* Multiplies the scores of a head by the share of them that its best B rows hold: a head with
 * spread scores loses less with each row. */
static int
normalize_head(float *score, uint32_t n, uint32_t B, uint32_t *best)
{
	double sum = 0, top = 0;
	uint32_t i;

	for (i = 0; i < n; sum += score[i++])
		if (!(score[i] >= 0) || score[i] == INFINITY)
			return EVICT_EINPUT;
	select_top(score, n, B, best);
	for (i = 0; i < B; i++)
		top += score[best[i]];
	for (i = 0; i < n && sum > 0; i++)
		score[i] = (float)(score[i] * (top / sum));
	return EVICT_OK;
}

/* Fills score and n. count[g] - always is B. */
static int
enter(struct contest *c, const uint32_t *count, const struct ranked *r, int normalize, char *why,
    size_t size)
{
	const float *rank = r->rank;
	float *score = c->score;
	uint32_t g, i;

	for (g = 0; g < r->heads; rank += r->n[g], score += c->n[g++]) {
		for (i = 0; i < r->n[g]; i++)
			if (rank[i] != INFINITY)
				score[c->n[g]++] = rank[i];
		if (normalize && normalize_head(score, c->n[g],
		    count[g] - always_kept(&r->always[g]), c->row) != EVICT_OK) {
			snprintf(why, size, "KV head %u: scores below 0 cannot be normalized", g);
			return EVICT_EINPUT;
		}
	}
	return EVICT_OK;
}

/* count[g] <- always-kept rows plus the shares, rounded so that they add up to total. Small
 * numbers are added so that a rounding error of the shares does not decide. */
static void
round_shares(uint32_t *count, double *share, const struct ranked *r, uint64_t total)
{
	uint32_t g, best;

	for (g = 0; g < r->heads; g++) {
		count[g] = (uint32_t)floor(share[g] + 1e-9);
		share[g] -= count[g];
		total -= count[g];
		count[g] += always_kept(&r->always[g]);
	}
	for (; total > 0; total--) {
		for (best = 0, g = 1; g < r->heads; g++)
			if (share[g] > share[best] + 1e-9)
				best = g;
		count[best]++;
		share[best] = -1;
	}
}

int
heads_ada(uint32_t *count, const struct ranked *r, const struct evict_options *opt, char *why,
    size_t size)
{
	struct contest c;
	uint64_t total = 0;
	uint32_t g, B;
	int code = contest_new(&c, r);

	if (code == EVICT_OK)
		code = enter(&c, count, r, opt->normalize, why, size);
	if (code == EVICT_OK) {
		for (g = 0; g < r->heads; g++)
			total += count[g] - always_kept(&r->always[g]);
		select_counts(c.score, c.n, r->heads, total, c.won);
		for (g = 0; g < r->heads; g++) {
			B = count[g] - always_kept(&r->always[g]);
			c.share[g] = c.won[g] * (1 - opt->alpha) + B * opt->alpha;
		}
		round_shares(count, c.share, r, total);
	}
	contest_free(&c);
	return code;
}

int
heads_ada_kvpress(uint32_t *count, const struct ranked *r, const struct evict_options *opt,
    char *why, size_t size)
{
	struct contest c;
	const float *rank = r->rank;
	float *score;
	uint64_t total = 0;
	uint32_t g, i, safe;

	(void)why, (void)size;
	if (contest_new(&c, r) != EVICT_OK) {
		contest_free(&c);
		return EVICT_ENOMEM;
	}
	for (g = 0, score = c.score; g < r->heads; rank += r->n[g], score += r->n[g++]) {
		memcpy(score, rank, r->n[g] * sizeof *score);
		safe = (uint32_t)budget_of_rate(count[g], opt->alpha);
		select_top(score, r->n[g], safe, c.row);
		for (i = 0; i < safe; i++)
			score[c.row[i]] = INFINITY;
		total += count[g];
	}
	select_counts(c.score, r->n, r->heads, total, count);
	contest_free(&c);
	return EVICT_OK;
}

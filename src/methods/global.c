/* global.c - one budget for the whole cache: the rows of all layers and KV heads compete
 *
 * KVzip's "pair" selection (Kim et al. 2025): one threshold over layers x heads x rows, so that
 * budgets follow the scores across layers and heads. The authors' code keeps scores strictly
 * above the one at a rank, and so loses the rows that tie there and one more; here the total is
 * exact, and of equal scores those of the lower layer, then of the lower KV head, then of the
 * lower row stay. Scores of different layers must be comparable: maxima and shares of attention
 * are, norms of keys are not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/budgets.h"

struct global {
	float *rank;            /* [total], layer after layer */
	size_t total, room;
	uint32_t *n, *count;    /* [parts] rows of each KV head, and those that stay */
	size_t parts;
	uint64_t wanted;        /* rows that --budget wants */
	uint64_t base;          /* base of a rate, in rows */
	uint64_t always;
};

struct global *
global_new(void)
{
	return calloc(1, sizeof(struct global));
}

void
global_free(struct global *all)
{
	if (all == NULL)
		return;
	free(all->rank);
	free(all->n);
	free(all->count);
	free(all);
}

/* Reserves room for another layer: rows, heads. */
static int
grow(struct global *all, size_t rows, size_t heads)
{
	size_t room = all->room;
	void *rank = all->rank, *n;

	if (all->total + rows > room) {
		room = all->total + rows + room / 2;
		if ((rank = realloc(rank, room * sizeof *all->rank)) == NULL)
			return EVICT_ENOMEM;
		all->rank = rank;
		all->room = room;
	}
	if ((n = realloc(all->n, (all->parts + heads) * sizeof *all->n + 1)) == NULL)
		return EVICT_ENOMEM;
	all->n = n;
	return EVICT_OK;
}

int
global_add(struct global *all, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size)
{
	struct ranked r;
	size_t rows = 0;
	uint32_t g, wanted;
	int code = rank_layer(&r, in, opt, why, size);

	for (g = 0; code == EVICT_OK && g < r.heads; g++)
		rows += r.n[g];
	if (code == EVICT_OK)
		code = grow(all, rows, r.heads);
	for (g = 0; code == EVICT_OK && g < r.heads; g++) {
		wanted = budget_wanted(opt, in, g, r.n[g], 1, NULL);
		all->wanted += wanted < r.n[g] ? wanted : r.n[g];
		all->base += in->tokens != 0 ? in->tokens : r.n[g];
		all->always += always_kept(&r.always[g]);
		all->n[all->parts++] = r.n[g];
	}
	if (code == EVICT_OK && rows > 0)
		memcpy(all->rank + all->total, r.rank, rows * sizeof *r.rank);
	all->total += rows;
	ranked_free(&r);
	return code;
}

int
global_counts(struct global *all, const struct evict_options *opt, const uint32_t **count,
    uint64_t *beyond, char *why, size_t size)
{
	const uint64_t least = all->always == 0 && all->total > 0 ? 1 : all->always;
	uint64_t k = opt->budget != 0 ? all->wanted : budget_of_rate(all->base, opt->rate);

	if (k > all->total)
		k = all->total;
	if (k < least && opt->refuse_small) {
		snprintf(why, size, "a budget of %llu of all %zu rows is too small: %llu are "
		    "always kept", (unsigned long long)k, all->total,
		    (unsigned long long)all->always);
		return EVICT_EBUDGET;
	}
	*beyond = k < least ? least - k : 0;
	k += *beyond;
	free(all->count);
	if ((all->count = calloc(all->parts, sizeof *all->count)) == NULL)
		return EVICT_ENOMEM;
	select_counts(all->rank, all->n, all->parts, k, all->count);
	*count = all->count;
	return EVICT_OK;
}

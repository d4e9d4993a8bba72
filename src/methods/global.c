/* global.c - one budget for the whole cache: the rows of all layers and KV heads compete, or what
 * composite.c makes of them
 *
 * KVzip's "pair" selection (Kim et al. 2025): one threshold over layers x heads x rows, so that
 * budgets follow the scores across layers and heads. The authors' code keeps scores strictly
 * above the one at a rank, and so loses the rows that tie there and one more; here the total is
 * exact, and of equal scores those of the lower layer, then of the lower KV head, then of the
 * lower row stay. Scores of different layers must be comparable: maxima and shares of attention
 * are, norms of keys are not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/budgets.h"

/* A list is of a KV head, with its rows; or of a layer, with its composite tokens. */
struct global {
	enum competitors what;
	uint32_t heads;         /* G */
	float *rank;            /* [total], layer after layer */
	size_t total, room;
	uint32_t *n;            /* [lists] length of each */
	uint32_t *least;        /* [lists] how many of each stay at least */
	uint32_t *won;          /* [lists] how many of each stay */
	uint32_t *count;        /* [L][G] */
	size_t lists;
	uint64_t wanted;        /* how many of the lists --budget wants */
	uint64_t base;          /* base of a rate */
};

struct global *
global_new(enum competitors what)
{
	struct global *all = calloc(1, sizeof *all);

	if (all != NULL)
		all->what = what;
	return all;
}

void
global_free(struct global *all)
{
	if (all == NULL)
		return;
	free(all->rank);
	free(all->n);
	free(all->least);
	free(all->won);
	free(all->count);
	free(all);
}

/* Reserves room for another layer. */
static int
grow(struct global *all, size_t rows, size_t lists)
{
	size_t room = all->room;
	void *rank = all->rank, *n, *least;

	if (all->total + rows > room) {
		room = all->total + rows + room / 2;
		if ((rank = realloc(rank, room * sizeof *all->rank)) == NULL)
			return EVICT_ENOMEM;
		all->rank = rank;
		all->room = room;
	}
	if ((n = realloc(all->n, (all->lists + lists) * sizeof *all->n + 1)) == NULL)
		return EVICT_ENOMEM;
	all->n = n;
	least = realloc(all->least, (all->lists + lists) * sizeof *all->least + 1);
	if (least == NULL)
		return EVICT_ENOMEM;
	all->least = least;
	return EVICT_OK;
}

/* Would a KV head of the layer be empty, without ranked rows? */
static int
is_bare(const struct ranked *r)
{
	uint32_t g;

	for (g = 0; g < r->heads; g++)
		if (r->n[g] > 0 && r->old[g] == 0)
			return 1;
	return 0;
}

int
global_add(struct global *all, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size)
{
	struct ranked r;
	size_t rows = 0;
	uint32_t g, lists = all->what == COMPETE_RANKS ? 1 : in->rows->heads, wanted;
	int code = rank_layer(&r, in, opt, why, size);

	if (code == EVICT_OK && all->what == COMPETE_RANKS)
		code = composite_ranks(&r, why, size);
	for (g = 0; code == EVICT_OK && g < lists; g++)
		rows += r.n[g];
	if (code == EVICT_OK)
		code = grow(all, rows, lists);
	for (g = 0; code == EVICT_OK && g < lists; g++) {
		wanted = budget_wanted(opt, in, g, r.n[g], 1, NULL);
		all->wanted += wanted < r.n[g] ? wanted : r.n[g];
		all->base += in->tokens != 0 ? in->tokens : r.n[g];
		all->least[all->lists] = all->what == COMPETE_RANKS && is_bare(&r);
		all->n[all->lists++] = r.n[g];
	}
	all->heads = in->rows->heads;
	if (code == EVICT_OK && rows > 0)
		memcpy(all->rank + all->total, r.rank, rows * sizeof *r.rank);
	all->total += rows;
	ranked_free(&r);
	return code;
}

/* Returns how many always stay: their rank is infinite. */
static uint64_t
always_kept_of_all(const struct global *all)
{
	uint64_t always = 0;
	size_t i;

	for (i = 0; i < all->total; i++)
		always += all->rank[i] == INFINITY;
	return always;
}

/* all->won <- how many of each list are among the k greatest of all, and at least all->least.
 * Returns how many stay for that reason. */
static uint64_t
win(struct global *all, uint64_t k)
{
	uint64_t more = 0;
	size_t i;

	select_counts(all->rank, all->n, all->lists, k, all->won);
	for (i = 0; i < all->lists; i++)
		if (all->won[i] < all->least[i]) {
			more += all->least[i] - all->won[i];
			all->won[i] = all->least[i];
		}
	return more;
}

static int
refuse(uint64_t k, const struct global *all, uint64_t always, uint32_t rows, char *why, size_t size)
{
	snprintf(why, size, "a budget of %llu of all %llu rows is too small: %llu are always kept",
	    (unsigned long long)k * rows, (unsigned long long)all->total * rows,
	    (unsigned long long)always * rows);
	return EVICT_EBUDGET;
}

int
global_counts(struct global *all, const struct evict_options *opt, const uint32_t **count,
    uint64_t *beyond, char *why, size_t size)
{
	/* KV heads of a list, and so the rows of each of its entries */
	const uint32_t rows = all->what == COMPETE_RANKS ? all->heads : 1;
	uint64_t k = opt->budget != 0 ? all->wanted : budget_of_rate(all->base, opt->rate);
	uint64_t always, least, filled;
	size_t i;

	if (all->what == COMPETE_RANKS)
		composite_first(all->rank, all->n, all->lists);
	always = always_kept_of_all(all);
	least = always == 0 && all->total > 0 ? 1 : always;
	if (k > all->total)
		k = all->total;
	if (k < least && opt->refuse_small)
		return refuse(k, all, always, rows, why, size);
	*beyond = k < least ? least - k : 0;
	free(all->won);
	free(all->count);
	all->won = calloc(all->lists, sizeof *all->won);
	all->count = calloc(all->lists * rows, sizeof *all->count);
	if (all->won == NULL || all->count == NULL)
		return EVICT_ENOMEM;
	filled = win(all, k + *beyond);
	if (filled > 0 && opt->refuse_small)
		return refuse(k, all, k + filled, rows, why, size);
	*beyond = (*beyond + filled) * rows;
	for (i = 0; i < all->lists * rows; i++)
		all->count[i] = all->won[i / rows];
	*count = all->count;
	return EVICT_OK;
}

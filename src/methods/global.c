/* global.c - one budget for the whole cache: the rows of all layers and KV heads compete, or what
 * composite.c makes of them, or whole layers (shares.c)
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

/* A list is of a KV head, with its rows; or of a layer, with its composite tokens. With
 * COMPETE_LAYERS there are no ranks, and `least` rows of a KV head are always kept. */
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
	/* COMPETE_LAYERS: [layers], and in each the always-kept rows of the longest KV head, which
	 * `wanted` counts, too */
	struct layer_claim *claim;
	size_t layers;
	uint64_t always;
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
	free(all->claim);
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

/* Adds what a layer claims. Layers without ranked rows, such as skipped ones, claim nothing and
 * need no spread. */
static int
add_claim(struct global *all, const struct evict_input *in, const struct evict_options *opt,
    const struct ranked *r, char *why, size_t size)
{
	struct layer_claim *claim;
	uint32_t g, longest = 0, always, wanted;

	claim = realloc(all->claim, (all->layers + 1) * sizeof *claim);
	if (claim == NULL)
		return EVICT_ENOMEM;
	all->claim = claim;
	if (grow(all, 0, r->heads) != EVICT_OK)
		return EVICT_ENOMEM;
	for (g = 0; g < r->heads; g++) {
		all->least[all->lists] = always_kept(&r->always[g]);
		all->n[all->lists++] = r->n[g];
		longest = r->n[g] > r->n[longest] ? g : longest;
	}
	if (r->n[longest] > 0 && !in->spread_known) {
		snprintf(why, size, "has scores without entropy and variance, which policy cake "
		    "needs: make them with kv-score --method cake");
		return EVICT_EINPUT;
	}
	always = always_kept(&r->always[longest]);
	wanted = budget_wanted(opt, in, longest, r->n[longest], 1, NULL);
	all->claim[all->layers++] = (struct layer_claim){
	    layer_preference(&in->spread, opt->tau1, opt->tau2), r->n[longest] - always };
	all->always += always;
	all->wanted += wanted < r->n[longest] ? wanted : r->n[longest];
	all->heads = r->heads;
	return EVICT_OK;
}

int
global_add(struct global *all, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size)
{
	struct ranked r;
	size_t rows = 0;
	uint32_t g, lists = all->what == COMPETE_RANKS ? 1 : in->rows->heads, wanted;
	int code = rank_layer(&r, in, opt, why, size);

	if (all->what == COMPETE_LAYERS) {
		code = code == EVICT_OK ? add_claim(all, in, opt, &r, why, size) : code;
		ranked_free(&r);
		return code;
	}
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

/* all->count <- the always-kept rows of each KV head, and the share of its layer. */
static int
layer_counts(struct global *all, int refuse_small, uint64_t *beyond, char *why,
    size_t size)
{
	const uint64_t always = all->always, wanted = all->wanted;
	uint32_t *share = calloc(all->layers + 1, sizeof *share);
	size_t i, l;

	free(all->count);
	all->count = calloc(all->lists + 1, sizeof *all->count);
	if (share == NULL || all->count == NULL) {
		free(share);
		return EVICT_ENOMEM;
	}
	*beyond = always > wanted ? (always - wanted) * all->heads : 0;
	share_layers(all->claim, share, all->layers, wanted > always ? wanted - always : 0);
	for (i = 0; i < all->lists; i++) {
		l = i / all->heads;
		all->count[i] = all->n[i] - all->least[i] < share[l] ? all->n[i] :
		    all->least[i] + share[l];
	}
	free(share);
	if (*beyond == 0 || !refuse_small)
		return EVICT_OK;
	snprintf(why, size, "a budget of %llu rows, counted in one KV head of each layer, is too "
	    "small: %llu are always kept", (unsigned long long)wanted, (unsigned long long)always);
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

	if (all->what == COMPETE_LAYERS) {
		const int code = layer_counts(all, opt->refuse_small, beyond, why, size);

		*count = all->count;
		return code;
	}
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

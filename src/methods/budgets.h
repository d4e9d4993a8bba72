/* budgets.h - what evict.c, the budget policies and global.c share; private to methods/ */
#ifndef KVPIPE_BUDGETS_H
#define KVPIPE_BUDGETS_H

#include "methods/methods.h"

/* Numbers of always-kept rows by reason; a row counts once, for the first reason. */
struct always {
	uint32_t sink, recent, infinite;
};

/* The rank of the rows of a layer: their scores, with +inf for always-kept rows. Leaves out
 * rows before opt.since. */
struct ranked {
	uint32_t heads;
	uint32_t *old;          /* [G] rows before opt.since */
	uint32_t *n;            /* [G] rows that are ranked */
	uint32_t chunk;         /* rows of a chunk, of the same rank; 1: each by itself */
	struct always *always;  /* [G] */
	float *rank;            /* [sum n] */
};

/* Fills r from the rows and scores of in. Errors as evict_choose(); call ranked_free() in any
 * case. */
int rank_layer(struct ranked *r, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size);
void ranked_free(struct ranked *r);
uint32_t always_kept(const struct always *a);

/* Returns how many of n chunks of ranked rows (chunk 1: of n rows) the options ask for in KV head
 * g; may exceed n. *real, unless it is NULL: the same before rounding. */
uint32_t budget_wanted(const struct evict_options *opt, const struct evict_input *in, uint32_t g,
    uint32_t n, uint32_t chunk, double *real);

/* keep[k] <- the row numbers, ascending, of k of the n ranked rows, by chunks of `size` rows of
 * which some keep `spiky` rows at most (spiky.c). size >= 1; k is at least the number of ranks of
 * +inf; no NaN. */
int select_spiky(const float *rank, uint32_t n, uint32_t k, uint32_t size, uint32_t spiky,
    uint32_t *keep);

/* r->rank[n] <- the scores of the composite tokens of a layer, falling (composite.c), from the
 * ranks of its KV heads, which lose their order. Returns EVICT_EINPUT if these have different
 * numbers of rows. */
int composite_ranks(struct ranked *r, char *why, size_t size);
/* The composite tokens of the first layer that has any get the greatest score of those in the same
 * place of any layer. rank: n[l] of each layer, concatenated. */
void composite_first(float *rank, const uint32_t *n, size_t layers);

/* A layer that competes with the others, COMPETE_LAYERS */
struct layer_claim {
	double preference;      /* its logarithm */
	uint32_t room;          /* rows of its longest KV head that are not always kept */
};

/* Returns the logarithm of a layer's preference, -inf for 0 (shares.c). */
double layer_preference(const struct attention_spread *, double tau1, double tau2);
/* share[n] <- how many of such rows each layer gets of a budget for all. */
void share_layers(const struct layer_claim *, uint32_t *share, size_t n, uint64_t budget);

/* The numbers from which a policy computes the budget of a KV head in one layer. */
struct layer_share {
	uint32_t l, L;          /* layer l of L */
	uint32_t skipped_before, skipped;       /* layers that keep all rows: before l, in all */
	uint32_t n;             /* rows with a score, or chunks of them */
	uint32_t always;        /* of them always kept */
	uint32_t wanted;        /* mean over the layers, rounded; may exceed n */
	double wanted_real;     /* the same mean before rounding */
};

/* layers_NAME(): returns the budget of each KV head of this layer, at most n. heads_NAME():
 * count[G] <- the budgets of the KV heads, the same total shared by the scores; errors as
 * evict_choose(). */
#define POLICY(name, for_layers, for_heads, ...) \
	uint32_t layers_##for_layers(const struct layer_share *); \
	int heads_##for_heads(uint32_t *count, const struct ranked *, \
	    const struct evict_options *, char *why, size_t size);
#include "methods/policies.h"
#undef POLICY

#endif

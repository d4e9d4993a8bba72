/* budgets.h - what evict.c, the budget policies and global.c know of each other; private to
 * methods/ */
#ifndef KVPIPE_BUDGETS_H
#define KVPIPE_BUDGETS_H

#include "methods/methods.h"

/* Rows that are always kept, by the reason; a row counts once, for the first. */
struct always {
	uint32_t sink, recent, infinite;
};

/* A layer whose rows have been ranked: the scores, with +inf for what is always kept. Rows
 * before opt.since are not in it. */
struct ranked {
	uint32_t heads;
	uint32_t *old;          /* [G] rows before opt.since */
	uint32_t *n;            /* [G] rows that are ranked */
	struct always *always;  /* [G] */
	float *rank;            /* [sum n] */
};

/* Errors as evict_choose(); r is to be freed in any case. */
int rank_layer(struct ranked *r, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size);
void ranked_free(struct ranked *r);
uint32_t always_kept(const struct always *a);

/* The rows that opt.budget or opt.rate wants of a KV head with n rows to be ranked; may be more
 * than n. */
uint32_t budget_wanted(const struct evict_options *opt, const struct evict_input *in, uint32_t n);

/* What the budget of a KV head in one layer is made from. */
struct layer_share {
	uint32_t l, L;          /* layer l of L */
	uint32_t skipped_before, skipped;       /* of these, before l and in all, keep all rows */
	uint32_t n;             /* rows that are scored */
	uint32_t always;        /* of them always kept */
	uint32_t wanted;        /* the mean over the layers, a whole number; may be more than n */
	double wanted_real;     /* the same before a rate of the rows was rounded down */
};

/* layers_NAME(): the budget of the KV head in this layer, at most n. heads_NAME(): count[G], the
 * budget of each KV head, <- the same total, shared by the scores; errors as evict_choose(). */
#define POLICY(name, for_layers, for_heads, ...) \
	uint32_t layers_##for_layers(const struct layer_share *); \
	int heads_##for_heads(uint32_t *count, const struct ranked *, \
	    const struct evict_options *, char *why, size_t size);
#include "methods/policies.h"
#undef POLICY

#endif

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
	uint32_t *n;            /* [G] rows that are judged */
	struct always *always;  /* [G] */
	float *rank;            /* [sum n] */
};

/* Errors as evict_choose(); r is to be freed in any case. */
int rank_rows(struct ranked *r, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size);
void ranked_free(struct ranked *r);
uint32_t always_kept(const struct always *a);

/* The rows that opt.budget or opt.rate wants of a KV head with n rows to be judged; may be more
 * than n. */
uint32_t budget_wanted(const struct evict_options *opt, const struct evict_input *in, uint32_t n);

/* The budget of layer l of L for a KV head with n rows, of which `always` are always kept; the
 * mean over the layers is C. */
uint32_t pyramid(uint32_t l, uint32_t L, uint32_t n, uint32_t always, uint32_t C);
/* In kvpress' way; C is a real number there. */
uint32_t pyramid_kvpress(uint32_t l, uint32_t L, uint32_t n, uint32_t always, double C);

/* count[G], the budget of each KV head, <- the same total, shared by the scores. Errors as
 * evict_choose(). */
int ada(uint32_t *count, const struct ranked *r, double alpha, int normalize, char *why,
    size_t size);
int ada_kvpress(uint32_t *count, const struct ranked *r, double alpha);

#endif

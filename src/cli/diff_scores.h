/* diff_scores.h - what a comparison of the scores of two snapshots has found, layer after
 * layer, to be printed when all of it is known */
#ifndef KVPIPE_DIFF_SCORES_H
#define KVPIPE_DIFF_SCORES_H

#include "cli/spool.h"
#include "engine/compare_scores.h"
#include "engine/compare_tokens.h"

struct diff_scores {
	/* the caller's */
	struct layer_reader a, b;       /* a: the reference */
	struct tokens_compared tokens;
	double rate[AGREEMENT_RATES];
	uint32_t rates;
	/* diff_scores_add()'s */
	uint32_t L, G;
	struct agreement *layer;        /* [L] */
	uint32_t layers;                /* that were added */
	uint32_t negative;              /* the first layer with a score below 0 in a; L: none has */
	struct agreement all;
	uint64_t a_rows, b_rows;
	struct spool heads;           /* struct agreement [L][G]; size 0: not wanted */
};

/* For snapshots of this model; heads: KV heads are wanted. Dies. */
void diff_scores_init(struct diff_scores *, const struct kv_model *, int heads);
void diff_scores_free(struct diff_scores *);

/* The next layer. Dies. */
void diff_scores_add(struct diff_scores *, const struct layer_agreement *);

#endif

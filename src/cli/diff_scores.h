/* diff_scores.h - collects the comparison of two snapshots' scores layer by layer, to be
 * printed at the end */
#ifndef KVPIPE_DIFF_SCORES_H
#define KVPIPE_DIFF_SCORES_H

#include "cli/spool.h"
#include "engine/compare_scores.h"
#include "engine/compare_tokens.h"

struct diff_scores {
	/* set by the caller */
	struct layer_reader a, b;       /* a: the reference */
	struct tokens_compared tokens;
	double rate[AGREEMENT_RATES];
	uint32_t rates;
	/* set by diff_scores_add() */
	uint32_t L, G;
	struct agreement *layer;        /* [L] */
	uint32_t layers;                /* that were added */
	uint32_t negative;              /* first layer with a score below 0 in a; L: none */
	struct agreement all;
	uint64_t a_rows, b_rows;
	struct spool heads;           /* struct agreement [L][G]; size 0: not wanted */
};

/* Initialises for snapshots of this model; heads: keep KV heads. Dies. */
void diff_scores_init(struct diff_scores *, const struct kv_model *, int heads);
void diff_scores_free(struct diff_scores *);

/* Adds the next layer. Dies. */
void diff_scores_add(struct diff_scores *, const struct layer_agreement *);

#endif

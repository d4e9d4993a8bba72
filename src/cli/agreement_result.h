/* agreement_result.h - what a comparison of the scores of two snapshots has found, layer after
 * layer, to be printed when all of it is known */
#ifndef KVPIPE_AGREEMENT_RESULT_H
#define KVPIPE_AGREEMENT_RESULT_H

#include "cli/records.h"
#include "engine/compare_scores.h"
#include "engine/compare_tokens.h"

struct agreement_result {
	/* the caller's */
	struct layer_reader a, b;       /* a: the reference */
	struct tokens_compared tokens;
	double rate[AGREEMENT_RATES];
	uint32_t rates;
	/* agreement_result_add()'s */
	uint32_t L, G;
	struct agreement *layer;        /* [L] */
	uint32_t layers;                /* that were added */
	uint32_t negative;              /* the first layer with a score below 0 in a; L: none has */
	struct agreement all;
	uint64_t a_rows, b_rows;
	struct records heads;           /* struct agreement [L][G]; size 0: not wanted */
};

/* For snapshots of this model; heads: KV heads are wanted. Dies. */
void agreement_result_init(struct agreement_result *, const struct kv_model *, int heads);
void agreement_result_free(struct agreement_result *);

/* The next layer. Dies. */
void agreement_result_add(struct agreement_result *, const struct layer_agreement *);

#endif

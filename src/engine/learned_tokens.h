/* learned_tokens.h - runs the learned tokens of an adapter in each layer of a prompt, before the
 * layer is evicted
 *
 * LookaheadKV, algorithm 2: the learned tokens see the prompt's rows in the layer, and score them
 * for its eviction. So a prompt that is evicted layer by layer costs one pass of itself and one of
 * n rows. The n rows are not stored; their keys stay in memory after those of the layer until other
 * rows are appended. */
#ifndef KVPIPE_LEARNED_TOKENS_H
#define KVPIPE_LEARNED_TOKENS_H

#include "engine/engine_error.h"
#include "forward/forward.h"
#include "model/adapter.h"

struct learned {
	const struct adapter *adapter;
	float *x;                       /* device [n][D] their residual stream */
	float *q;                       /* device [n][H][E] queries of the current layer */
	struct observation obs;         /* of q, for scoring */
};

/* Prepares the learned tokens for the first layer, at positions from next_position on. Free it,
 * also after a failure. Returns an ENGINE_* code. */
int learned_begin(struct learned *, const struct adapter *, const struct cache *,
    struct engine_error *);
/* Makes room in layer l for the learned tokens and for N rows of a prompt. Returns an ENGINE_*
 * code. */
int learned_reserve(const struct learned *, struct cache *, uint32_t l, uint32_t N,
    struct engine_error *);
/* Runs the learned tokens through layer l, after the rows of the prompt. obs has their queries
 * until the next layer. Logs a run. Returns an ENGINE_* code. */
int learned_layer(struct learned *, struct sequence *, struct workspace *, uint32_t l,
    struct engine_error *);
void learned_free(struct learned *, const struct model *);      /* all zero is allowed */

#endif

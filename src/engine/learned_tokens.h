/* learned_tokens.h - the learned tokens of an adapter, run behind each layer of a prompt while it
 * is there
 *
 * LookaheadKV, algorithm 2: they see what the prompt has left in the layer, and score it before it
 * is evicted. So a prompt that is evicted layer by layer costs one pass of itself and one of n
 * rows. The rows are not stored; their keys lie behind those of the layer until the next one is
 * appended. */
#ifndef KVPIPE_LEARNED_TOKENS_H
#define KVPIPE_LEARNED_TOKENS_H

#include "engine/engine_error.h"
#include "forward/forward.h"
#include "model/adapter.h"

struct learned {
	const struct adapter *adapter;
	float *x;                       /* device [n][D] their residual stream */
	float *q;                       /* device [n][H][E] queries of the layer at hand */
	struct observation obs;         /* of q, for scoring */
};

/* Learned tokens that stand behind next_position, in front of the first layer. Must be freed, also
 * when it failed. Returns an ENGINE_* code. */
int learned_begin(struct learned *, const struct adapter *, const struct cache *,
    struct engine_error *);
/* Makes room in layer l for them and for N rows of a prompt. Returns an ENGINE_* code. */
int learned_reserve(const struct learned *, struct cache *, uint32_t l, uint32_t N,
    struct engine_error *);
/* The rows of the prompt have run through layer l: so do these. Their queries are in obs until the
 * next layer. The log has a run. Returns an ENGINE_* code. */
int learned_layer(struct learned *, struct sequence *, struct workspace *, uint32_t l,
    struct engine_error *);
void learned_free(struct learned *, const struct model *);      /* all zero is allowed */

#endif

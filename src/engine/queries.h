/* queries.h - the observation queries of a layer, as scoring wants them: f32, query after query */
#ifndef KVPIPE_QUERIES_H
#define KVPIPE_QUERIES_H

#include "libkvfile/codec.h"
#include "engine/engine_error.h"

struct queries {
	uint32_t n;             /* W; 0 = none */
	uint32_t *pos;          /* [W] ascending */
	float *q;               /* [W][H][E] */
	/* of tokens that are not stored, whether or not their queries are taken: a later query
	 * sees the keys of earlier ones */
	uint32_t n_own;
	uint32_t *own_pos;      /* [n_own] */
	void *own;              /* [G][n_own][E] of the snapshot's dtype */
};

/* Replaces what was there by the last n of the queries of a section, and all own keys: copies.
 * Returns ENGINE_OK; or ENGINE_ERUN, and then there are none. */
int queries_take(struct queries *, const struct kv_queries *stored, const struct kv_head *,
    uint32_t n, struct engine_error *);

/* Leaves none. */
void queries_forget(struct queries *);

#endif

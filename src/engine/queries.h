/* queries.h - the observation queries of a layer, for scoring: f32, query after query */
#ifndef KVPIPE_QUERIES_H
#define KVPIPE_QUERIES_H

#include "libkvfile/codec.h"
#include "engine/engine_error.h"

struct queries {
	uint32_t n;             /* W; 0 = none */
	uint32_t *pos;          /* [W] ascending */
	float *q;               /* [W][H][E] */
	float *sinks;           /* [H] of the layer's attention; NULL: none */
	/* keys of tokens that are not stored, also of those whose queries were not copied, because
	 * later queries see these keys */
	uint32_t n_own;
	uint32_t *own_pos;      /* [n_own] */
	void *own;              /* [G][n_own][E] of the snapshot's dtype */
};

/* Replaces the contents by a copy of the sinks of a layer. The codes of queries_take() */
int queries_take_sinks(struct queries *, const float *sinks, const struct kv_head *,
    struct engine_error *);

/* Replaces the contents but the sinks by copies of the last n queries of a section, and of all own
 * keys. Returns ENGINE_OK; or ENGINE_ERUN, and then there are none. */
int queries_take(struct queries *, const struct kv_queries *stored, const struct kv_head *,
    uint32_t n, struct engine_error *);

/* Frees the queries; none are left. */
void queries_forget(struct queries *);

#endif

/* cache_point.h - a place behind which tokens may be taken back again, and what the cache was there
 *
 * A text that ends before a stop text is known to have ended only when tokens behind its end have
 * run. What an eviction has dropped meanwhile does not come back. */
#ifndef KVPIPE_CACHE_POINT_H
#define KVPIPE_CACHE_POINT_H

#include "cache/cache.h"

struct cache_point {
	uint32_t position;              /* of the next token */
	size_t n_tokens;
	float *logits;                  /* [V], or NULL: they were not known */
	struct kv_log_place log;
	uint32_t *logged_rows;          /* [L][G] */
	uint32_t *clusters;             /* [L][G][2] rows in clusters, clusters; NULL: no index */
	struct point_mass *mass;        /* [L]; NULL: the cache has none */
};

/* Notes where the cache is; its logits are on the host. To be freed, also after a failure. Returns
 * 0, or MODEL_ENOMEM. */
int cache_point_take(struct cache *, struct cache_point *);
void cache_point_free(struct cache_point *, const struct cache *);

/* Takes back what has run since the point: rows and tokens behind it, what these have added to
 * attention mass and indexes, and the logits. The log says that they ran and were not stored.
 * c->cut_from was not behind the point meanwhile. What a generator or a batch knows of the cache is
 * of no use then. Takes the point's logits. Returns 0, or MODEL_ENOMEM. */
int cache_cut(struct cache *, struct cache_point *);

#endif

/* cache_point.h - a state of a cache to go back to, if later tokens are found not to belong to the
 * text
 *
 * That a text has ended before a stop text is known only after tokens of the stop text have run.
 * Rows that were evicted meanwhile are not restored. */
#ifndef KVPIPE_CACHE_POINT_H
#define KVPIPE_CACHE_POINT_H

#include "cache/cache.h"

struct cache_point {
	uint32_t position;              /* of the next token */
	size_t n_tokens;
	float *logits;                  /* [V], or NULL: they were not known */
	struct kv_log_place log;
	uint32_t *logged_rows;          /* [L][G] */
	/* [L][G][2] number of rows in clusters, and of clusters; NULL: no index */
	uint32_t *clusters;
	struct point_mass *mass;        /* [L]; NULL: the cache has none */
	/* [L] sums over queries, in the order of the section, and their numbers; NULL: the cache
	 * has none */
	double **query_sums;
	uint32_t *queries;
};

/* Stores the state of the cache, whose logits are on the host. Free the point, also after a
 * failure. Returns 0, or MODEL_ENOMEM. */
int cache_point_take(struct cache *, struct cache_point *);
void cache_point_free(struct cache_point *, const struct cache *);

/* Goes back to the point: drops the rows and tokens after it, and what these have added to
 * attention mass, query statistics and indexes; c->logits become the point's, which gives them up.
 * Logs that these tokens ran and were not stored. c->cut_from must not have been after the point
 * meanwhile. Generators and batches of the cache are invalid afterwards. Returns 0, or
 * MODEL_ENOMEM. */
int cache_cut(struct cache *, struct cache_point *);

#endif

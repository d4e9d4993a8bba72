/* set_aside.h - runs rows that will not stay in a cache
 *
 * Attention mass, indexes, query statistics and numbers of rows are set aside for such a run, so
 * that the run adds nothing to them. */
#ifndef KVPIPE_SET_ASIDE_H
#define KVPIPE_SET_ASIDE_H

#include "cache/cache.h"

/* The cache's own again after cache_put_back() */
struct set_aside {
	struct attention_mass *mass;
	struct layer_index *index;
	struct query_stats *query_stats;
};

/* mass: 1: attention mass, too; 0: rows that run add to that of the rows they attend to. */
struct set_aside cache_set_aside(struct cache *, int mass);
void cache_put_back(struct cache *, const struct set_aside *);

#endif

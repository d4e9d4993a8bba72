/* grow_clusters.h - clusters for rows that are appended to a cache
 *
 * ClusterKV (Liu et al. 2024) while decoding: the rows behind the last cluster of a KV head are
 * always read, until there are GROWTH_ROWS of them; these become GROWTH_CLUSTERS more clusters,
 * and are found through them. */
#ifndef KVPIPE_GROW_CLUSTERS_H
#define KVPIPE_GROW_CLUSTERS_H

#include "engine/engine_error.h"
#include "forward/sequence.h"

/* as in the authors' program */
enum { GROWTH_ROWS = 320, GROWTH_CLUSTERS = 8 };

/* Clusters what has become enough, in every layer of a text that has clusters. What comes out
 * depends on the rows only, not on how often this is called. Cheap when there is nothing to do.
 * Returns ENGINE_OK, or a code with the message in *e. */
int grow_clusters(struct sequence *, struct engine_error *e);

#endif

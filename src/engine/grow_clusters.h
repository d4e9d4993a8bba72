/* grow_clusters.h - clusters for rows that are appended to a cache
 *
 * ClusterKV (Liu et al. 2024) while decoding: the rows after the clustered ones of a KV head are
 * always read; as soon as there are GROWTH_ROWS of them, they become GROWTH_CLUSTERS more
 * clusters. */
#ifndef KVPIPE_GROW_CLUSTERS_H
#define KVPIPE_GROW_CLUSTERS_H

#include "engine/engine_error.h"
#include "forward/sequence.h"

/* as in the authors' program */
enum { GROWTH_ROWS = 320, GROWTH_CLUSTERS = 8 };

/* Clusters the appended rows of each KV head that has enough of them, in every layer with clusters.
 * The clusters depend on the rows only, not on how often this is called. Cheap when there is
 * nothing to do. Returns ENGINE_OK, or a code with the message in *e. */
int grow_clusters(struct sequence *, struct engine_error *e);

#endif

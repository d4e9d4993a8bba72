/* cache_sections.h - a cache from and to the sections of a snapshot
 *
 * A whole snapshot is read and written by forward/sequence_sections.h. Letters as in ops.h; errors
 * are KV_* codes, and the reader or writer has the message. */
#ifndef KVPIPE_CACHE_SECTIONS_H
#define KVPIPE_CACHE_SECTIONS_H

#include "cache/cache.h"
#include "cache/observation.h"

/* *head <- the head of a snapshot of this cache. */
void snapshot_head(const struct cache *c, struct kv_head *head);

/* Loads the current section of r, or skips it if the cache does not want it or its kind is unknown.
 * obs (NULL = not wanted) gets the last of the stored observation queries that fit into its window;
 * all are loaded when obs->loaded is L. Does not set c->next_position. A layer to which the caller
 * has given only the first rows of each KV head gets keys and values of these only. */
int snapshot_take(struct kv_reader *r, const struct kv_section *sec, struct cache *c,
    struct observation *obs);

/* Gets keys and values of layers with positions only (cache_positions_only()). get: to (host) <-
 * the keys (KV_KEYS) or values of KV head g in layer l; returns a KV_* code. */
struct rows_elsewhere {
	int (*get)(void *with, uint32_t l, uint32_t g, enum kv_kind kind, void *to);
	void *with;                    /* the caller's, passed on */
};

/* Writes one section: KV_KEYS or KV_VALS of layer l, which has keys and values; KV_OBSQ of layer l,
 * from obs; or KV_TOKS or KV_EVNT. */
int snapshot_put(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    enum kv_kind kind, uint32_t l);

/* Writes all sections of layer l: positions, observation queries (NULL or have == 0: none),
 * query statistics, attention mass and row_lists.h where they are wanted (they must be whole),
 * norms of value outputs, keys, indexes where they are wanted, and values. other: NULL if no layer
 * has positions only. */
int snapshot_put_layer(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    const struct rows_elsewhere *other, uint32_t l);

#endif

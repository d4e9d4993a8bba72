/* cache_sections.h - a cache from and to the sections of a snapshot
 *
 * A whole snapshot is read and written by forward/sequence_sections.h. Letters as in ops.h; errors
 * are KV_* codes, and the reader or writer has the message. */
#ifndef KVPIPE_CACHE_SECTIONS_H
#define KVPIPE_CACHE_SECTIONS_H

#include "cache/cache.h"
#include "cache/observation.h"

/* Fills the head of a snapshot of this cache. */
void snapshot_head(const struct cache *c, struct kv_head *head);

/* Loads the section that r stands at; drops one that the cache does not want, or does not know. obs
 * (NULL = not wanted) gets the stored observation queries, as far as its window reaches; they are
 * loaded when obs->loaded is L. c->next_position is the caller's. A layer that the caller has given
 * fewer rows, those in front of each KV head, gets their keys and values. */
int snapshot_take(struct kv_reader *r, const struct kv_section *sec, struct cache *c,
    struct observation *obs);

/* Where keys and values of layers with positions only are (cache_positions_only()). get: to (host)
 * <- the keys (KV_KEYS) or values of KV head g in layer l. */
struct rows_elsewhere {
	int (*get)(void *with, uint32_t l, uint32_t g, enum kv_kind kind, void *to);
	void *with;                    /* the caller's, passed on */
};

/* Writes one section of layer l, which has its keys and values: KV_KEYS, KV_VALS, or KV_OBSQ from
 * obs; or KV_TOKS or KV_EVNT, of no layer. */
int snapshot_put(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    enum kv_kind kind, uint32_t l);

/* Writes all sections of layer l: positions, observation queries (NULL or have == 0: none),
 * attention mass where it is wanted (it must be whole), keys, indexes where they are wanted, and
 * values. other may be NULL where no layer has positions only. */
int snapshot_put_layer(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    const struct rows_elsewhere *other, uint32_t l);

#endif

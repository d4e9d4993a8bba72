/* cache_sections.h - a cache from and to a snapshot
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_CACHE_SECTIONS_H
#define KVPIPE_CACHE_SECTIONS_H

#include "cache/cache.h"
#include "cache/observation.h"

/* The head of a snapshot of this cache. */
void snapshot_head(const struct cache *c, struct kv_head *head);

/* Fills an empty cache from a reader that has just been opened, to its end. obs (NULL = not
 * wanted): the stored observation queries, as far as its window reaches. Unknown sections are
 * dropped (the result is a new state). The identity is not compared here: kv_model_diff()
 * first. Returns a KV_* code; the reader has the message. */
int snapshot_load(struct kv_reader *r, struct cache *c, struct observation *obs);

/* What snapshot_load() does with the section that r stands at, for programs that keep the other
 * sections themselves. At the end cache and obs are loaded when obs->loaded is L, and
 * next_position is the caller's. A layer that the caller has given fewer rows, those in front of
 * each KV head, gets their keys and values. */
int snapshot_take(struct kv_reader *r, const struct kv_section *sec, struct cache *c,
    struct observation *obs);

/* Writes one section of layer l: KV_KEYS, KV_VALS, or KV_OBSQ from obs; or KV_TOKS or
 * KV_EVNT, of no layer. */
int snapshot_put(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    enum kv_kind kind, uint32_t l);

/* Writes tokens, layers, observation queries (NULL or have == 0: none), attention mass where
 * it is wanted (it must be whole), indexes where they are wanted, logits, and keys of a retrieval
 * head where there is one; not the end.
 * Returns a KV_* code; the writer has the message. */
int snapshot_save(struct kv_writer *w, const struct cache *c, const struct observation *obs);

#endif

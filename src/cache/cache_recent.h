/* cache_recent.h - the full rows behind quantised ones (kv-snapshot(5), 4.20, 4.21), of a layer of
 * a cache
 *
 * Internal to cache/. Functions do nothing for a layer without them. */
#ifndef KVPIPE_CACHE_RECENT_H
#define KVPIPE_CACHE_RECENT_H

#include "cache/cache.h"

/* Rounds a capacity up, so that the KV heads of a layer with KIVI's types begin where groups
 * may. */
uint64_t recent_capacity(const struct layer_rows *, uint64_t rows);
/* Unless the layer has it: gives an empty layer, which is about to have len[G] rows, memory for its
 * full rows, and says which rows are coded. Returns 0, or MODEL_ENOMEM. */
int recent_init(struct cache *, uint32_t l, const uint32_t *len);
void recent_free(struct cache *, uint32_t l);
/* Makes room for the full rows of `more` tokens: drops full rows that are coded already, unless the
 * cache may go back to where they were not, and grows where that is not enough. Returns 0, or
 * MODEL_ENOMEM. */
int recent_reserve(struct cache *, uint32_t l, uint32_t more);
/* Call when rows at the end of a layer were dropped: rows that were not coded when it had as many
 * are read as full rows again. */
void recent_go_back(struct layer_rows *);
/* Full rows <- content, the bytes of a KV head in KEYS or VALS, and its codes to the rows of the
 * layer; and back, with the rows quantised that a snapshot has as codes. get returns 0, or
 * MODEL_EINVALID where a number is not finite, or too large; buffer: [2 KV_GROUP_ROWS][E]. */
void recent_put(struct cache *, uint32_t l, uint32_t g, enum kv_kind, const char *content);
int recent_get(const struct cache *, uint32_t l, uint32_t g, enum kv_kind, char *content,
    float *buffer);
/* Returns the bytes of a KV head in KEYS or VALS; of all of them in both. */
uint64_t recent_bytes(const struct layer_rows *, uint32_t g, enum kv_kind);
uint64_t recent_layer_bytes(const struct layer_rows *);

#endif

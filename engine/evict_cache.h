/* evict_cache.h - one layer of a cache judged and evicted in process: what kv-score and kv-evict do to
 * a snapshot, for programs that hold the rows on their device
 *
 * The same scores, the same choice. One method and one set of options for a process. */
#ifndef KVPIPE_EVICT_CACHE_H
#define KVPIPE_EVICT_CACHE_H

#include "model/cache.h"
#include "model/observation.h"

/* Queries that a method looks at when nobody says how many; SnapKV's code has it so. */
enum { EVICTION_WINDOW = 32 };

/* Takes the method and its options from the text of --score ("snapkv kernel=7"; NULL: rows are not
 * judged) and the budget from that of --evict ("budget=1024 sink=4"). Dies with EXIT_USAGE. */
void eviction_check(const char *score, const char *evict);
/* What it has to keep while the prompt runs: NEED_WINDOW, NEED_MASS; 0 when rows are not judged. */
unsigned eviction_needs(void);
/* Dies with EXIT_USAGE when rows are not judged and one of the layers has to be. */
void eviction_fit(uint32_t layers);

/* Judges the rows of layer l and drops those that do not stay, in two steps, so that the device has
 * work while the host judges: the first gives it its part, the second waits for that and not for
 * what came after it, which must not touch the layer. obs: queries of this layer where the method
 * needs them; they count as they would be stored, in the cache's dtype, and stay until the second
 * step. Layers end in the order in which they began, and at most FETCHES are begun. Both die. */
void eviction_begin(const struct cache *c, uint32_t l, const struct observation *obs);
void eviction_finish(struct cache *c, uint32_t l);
/* All layers: they are judged while the device is some layers ahead. */
void eviction_all(struct cache *c, const struct observation *obs);

/* Warns of indexes that went with their rows, in one line that names what makes them anew. */
void eviction_warn(const struct cache *c);

/* Frees what is kept from one layer to the next. */
void eviction_end(const struct cache *c);

#endif

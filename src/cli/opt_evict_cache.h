/* opt_evict_cache.h - --score and --evict: how programs that score and evict in process take the
 * options of kv-score and kv-evict */
#ifndef KVPIPE_OPT_EVICT_CACHE_H
#define KVPIPE_OPT_EVICT_CACHE_H

#include "engine/evict_cache.h"

/* *v <- the method and its options from the text of --score ("snapkv kernel=7"; NULL: rows are not
 * scored), the budget from that of --evict ("budget=1024 sink=4"). Returns the folder of the
 * learned tokens that score; NULL: none do. Dies with EXIT_USAGE. */
const char *opt_evict_cache(struct cache_evictor *v, const char *score, const char *evict);

/* Warns of indexes that went with their rows, in one line that names what makes them anew. kinds:
 * struct cache.index_dropped. */
void warn_dropped_indexes(unsigned kinds);

#endif

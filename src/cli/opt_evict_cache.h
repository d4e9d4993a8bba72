/* opt_evict_cache.h - --score and --evict: the options of kv-score and kv-evict in programs
 * that score and evict in process */
#ifndef KVPIPE_OPT_EVICT_CACHE_H
#define KVPIPE_OPT_EVICT_CACHE_H

#include "engine/evict_cache.h"

/* *v <- the method and its options from the text of --score ("snapkv kernel=7"; NULL: no
 * scores), the budget from that of --evict ("budget=1024 sink=4"). Returns the folder of the
 * learned tokens that score; NULL: none. Dies with EXIT_USAGE. */
const char *opt_evict_cache(struct cache_evictor *v, const char *score, const char *evict);

/* Warns, in one line, of indexes that were dropped with their rows, and names the command that
 * rebuilds them. kinds: struct cache.index_dropped. */
void warn_dropped_indexes(unsigned kinds);

#endif

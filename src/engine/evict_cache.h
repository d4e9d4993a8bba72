/* evict_cache.h - scores and evicts the layers of a cache in process, as kv-score and kv-evict do
 * with a snapshot, for programs that have the rows on a device
 *
 * Scores and choice are the same. Several evictors may be in use at the same time. */
#ifndef KVPIPE_EVICT_CACHE_H
#define KVPIPE_EVICT_CACHE_H

#include "cache/cache.h"
#include "cache/observation.h"
#include "engine/evictor.h"
#include "engine/score.h"

/* Default number of queries that a method reads, as in SnapKV's code */
enum { EVICT_WINDOW = 32 };

/* Told when work of scoring and eviction begins and ends; not nested. NULL: nobody is told */
struct evict_hook {
	void (*begin)(void), (*end)(void);
};

struct cache_evictor {
	/* while decoding: evicts after so many tokens; 0 and 1: after each */
	uint32_t every;
	/* method NULL: rows are not scored. Its device becomes the cache's */
	struct scorer scorer;
	struct evictor evictor;         /* must not need to look ahead */
	struct evict_hook hook;
	/* the rest belongs to evict_cache.c: layers that are begun, layer l at l % SCORE_AHEAD */
	struct score_job begun[SCORE_AHEAD];
	struct kv_rows begun_rows[SCORE_AHEAD];
	struct evict_plan plan[SCORE_AHEAD];    /* first NULL: the host chooses */
};

static inline void
evict_hook_begin(const struct evict_hook *h)
{
	if (h->begin != NULL)
		h->begin();
}

static inline void
evict_hook_end(const struct evict_hook *h)
{
	if (h->end != NULL)
		h->end();
}

/* Frees its members; the device must still be open. All zero is allowed. */
void evict_cache_free(struct cache_evictor *);

/* Returns what the cache must keep while the prompt runs: NEED_WINDOW, NEED_MASS,
 * NEED_QUERY_STATS, NEED_GATE, NEED_NONCAUSAL; 0 when rows are not scored. */
unsigned evict_cache_needs(const struct cache_evictor *);
/* Fails with ENGINE_EOPTION when rows are not scored, but a layer needs scores. */
int evict_cache_fit(const struct cache_evictor *, uint32_t layers, struct engine_error *);
/* Does scorer_check_log() for rows that were loaded from the snapshot of this name. */
int evict_cache_check_log(const struct cache_evictor *, const struct cache *, const char *name,
    struct engine_error *);

/* Scores and evicts the rows of layer l, in two parts, so that the device has other work while the
 * host chooses. The first starts the device's work; the second waits for it, but not for later
 * work, which must not use the layer. obs: queries of this layer, if the method needs them; they
 * are rounded to the cache's dtype, as in a snapshot, and must not change before the second part.
 * Layers are finished in the order in which they were begun, and at most SCORE_AHEAD are begun. The
 * caller logs. */
int evict_cache_begin(struct cache_evictor *, const struct cache *, uint32_t l,
    const struct observation *obs, struct engine_error *);
int evict_cache_finish(struct cache_evictor *, struct cache *, uint32_t l, struct engine_error *);
/* Scores and evicts all layers; the device works some layers ahead of the host. */
int evict_cache_all(struct cache_evictor *, struct cache *, const struct observation *obs,
    struct engine_error *);

#endif

/* evict_cache.h - the layers of a cache scored and evicted in process: what kv-score and kv-evict
 * do to a snapshot, for programs that hold the rows on their device
 *
 * The same scores, the same choice. Several may be in use at the same time. */
#ifndef KVPIPE_EVICT_CACHE_H
#define KVPIPE_EVICT_CACHE_H

#include "cache/cache.h"
#include "cache/observation.h"
#include "engine/evictor.h"
#include "engine/score.h"

/* Queries that a method looks at when nobody says how many; SnapKV's code has it so. */
enum { EVICT_WINDOW = 32 };

struct cache_evictor {
	/* method NULL: rows are not scored. It takes the cache's device */
	struct scorer scorer;
	struct evictor evictor;         /* does not look ahead */
	/* the rest is evict_cache.c's: layers that are begun, number l at l % SCORE_AHEAD */
	struct score_job begun[SCORE_AHEAD];
	struct kv_rows begun_rows[SCORE_AHEAD];
	struct evict_plan plan[SCORE_AHEAD];    /* first NULL: the host chooses */
};

/* Frees what it holds; the device must be open still. All zero is allowed. */
void evict_cache_free(struct cache_evictor *);

/* What the cache has to keep while the prompt runs: NEED_WINDOW, NEED_MASS; 0 when rows are not
 * scored. */
unsigned evict_cache_needs(const struct cache_evictor *);
/* ENGINE_EOPTION when rows are not scored and one of the layers has to be. */
int evict_cache_fit(const struct cache_evictor *, uint32_t layers, struct engine_error *);
/* scorer_check_log() of rows that were loaded from the snapshot of this name. */
int evict_cache_check_log(const struct cache_evictor *, const struct cache *, const char *name,
    struct engine_error *);

/* Scores the rows of layer l and drops those that do not stay, in two steps, so that the device
 * has work while the host chooses: the first gives it its part, the second waits for that and not
 * for what came after it, which must not touch the layer. obs: queries of this layer where the
 * method needs them; they count as they would be stored, in the cache's dtype, and stay until the
 * second step. Layers end in the order in which they began, and at most SCORE_AHEAD are begun.
 * The event log is the caller's. */
int evict_cache_begin(struct cache_evictor *, const struct cache *, uint32_t l,
    const struct observation *obs, struct engine_error *);
int evict_cache_finish(struct cache_evictor *, struct cache *, uint32_t l, struct engine_error *);
/* All layers: they are scored while the device is some layers ahead. */
int evict_cache_all(struct cache_evictor *, struct cache *, const struct observation *obs,
    struct engine_error *);

#endif

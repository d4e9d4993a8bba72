/* prefill.h - a prompt whose rows are scored and evicted while it runs: layer by layer, or after
 * each chunk
 *
 * What comes out is what kv-prefill | kv-score | kv-evict would write, chunk by chunk in the
 * second case; but the full cache is never there as a whole. */
#ifndef KVPIPE_PREFILL_H
#define KVPIPE_PREFILL_H

#include "engine/evict_cache.h"
#include "model/forward.h"

struct prefill {
	/* The caller fills in its scorer and evictor, and frees it. */
	struct cache_evictor evict;
	/* only the rows of these tokens, or of the chunk at hand, are scored and dropped: sets `since` of
	 * scorer and evictor on the way */
	int once;
	uint32_t chunk;         /* evict after so many tokens; 0 = layer by layer */
	/* with a chunk: so many tokens of the prompt's end score each chunk; 0 = none */
	uint32_t patch;
	uint32_t observe;       /* queries that are to be saved */
	/* call NULL = none. With a chunk it is told how many tokens are done, else how many rows of all
	 * layers together */
	struct step_hook step;
};

/* Queries that the method looks at. */
uint32_t prefill_scored_queries(const struct prefill *);
/* Queries that have to be kept while the prompt runs: those, and those to be saved. */
uint32_t prefill_window(const struct prefill *);
/* How many layers are there at a time with all rows that run, without a chunk. */
uint32_t prefill_full_layers(const struct model *m);
/* ENGINE_EOPTION unless the options suit the model and a prompt of n tokens, in front of which
 * `have` queries are known. */
int prefill_fit(const struct prefill *, const struct model *m, size_t n, uint32_t have,
    struct engine_error *);

/* Runs n > 0 tokens, as run_tokens() would, and evicts; logs both. obs (NULL = none) has a window
 * of prefill_window(); the queries that are to be saved are left in it. */
int prefill_run(struct prefill *, struct cache *c, struct workspace *ws, const uint32_t *ids,
    size_t n, struct observation *obs, struct engine_error *);

#endif

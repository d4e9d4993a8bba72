/* prefill.h - a prompt through all layers, in one of three schedules; in two of them its rows are
 * scored and evicted while it runs
 *
 * What comes out of these is what kv-prefill | kv-score | kv-evict would write, chunk by chunk with
 * PREFILL_CHUNKS; but the full cache is never there as a whole. Tokens may be selected on the way
 * (token_select.h), unless it runs chunk by chunk: FastKV's Algorithm 1 is TSP with a scorer and an
 * evictor, layer by layer. */
#ifndef KVPIPE_PREFILL_H
#define KVPIPE_PREFILL_H

#include "engine/each_logits.h"
#include "engine/evict_cache.h"
#include "engine/memory_plan.h"
#include "engine/token_select.h"

enum prefill_schedule {
	/* nothing is evicted; all layers run a tile at a time, or, when tokens are selected, those
	 * up to the next layer that selects */
	PREFILL_PLAIN,
	PREFILL_LAYERS,         /* each layer sees the whole prompt and is evicted */
	PREFILL_CHUNKS          /* all layers run a chunk and are evicted */
};

struct prefill {
	enum prefill_schedule schedule;
	/* The caller fills in its scorer and evictor, and frees it; all zero with PREFILL_PLAIN. */
	struct cache_evictor evict;
	struct token_select select;     /* TOKENS_ALL with PREFILL_CHUNKS */
	/* only the rows of these tokens, or of the chunk at hand, are scored and dropped: sets
	 * `since` of scorer and evictor on the way */
	int once;
	/* rows in front of the tokens to run that are of this prompt, too: PREFILL_CHUNKS has
	 * none */
	uint32_t reused;
	uint32_t chunk;         /* PREFILL_CHUNKS: tokens */
	/* PREFILL_CHUNKS: so many tokens of the prompt's end, at most all of it, score each chunk;
	 * 0 = none */
	uint32_t patch;
	/* its learned tokens score, instead of queries of the prompt: behind each layer, or with
	 * PREFILL_CHUNKS behind each chunk; NULL = none. The caller's, on the device */
	const struct adapter *adapter;
	uint32_t observe;       /* queries that are to be saved */
	/* as many as there are behind the prompt: a method that is not told how many to look at
	 * looks at no more; 0 = not known yet */
	uint32_t queries;
	/* takes the logits after each token that runs; not where tokens are selected, which do not
	 * all reach the last layer */
	struct logits_sink logits;
	/* call NULL = none. It is told how much of prefill_total() is done */
	struct step_hook step;
};

/* It runs layer by layer: what is done is counted in rows, summed over the layers, else in
 * tokens. */
int prefill_counts_rows(const struct prefill *);
uint64_t prefill_total(const struct prefill *, const struct model *m, size_t n);
/* Queries of the prompt that the method looks at. Without an option that says so: those that are
 * saved, or the patch, or TSP's window, or EVICT_WINDOW. None with learned tokens. */
uint32_t prefill_scored_queries(const struct prefill *);
/* Queries that have to be kept while the prompt runs: those, and those to be saved. */
uint32_t prefill_window(const struct prefill *);
/* For how many of n tokens the cache should have room before they run. */
size_t prefill_spare(const struct prefill *, size_t n);
/* How many rows must be able to run at once, whatever the prompt. */
uint32_t prefill_least_rows(const struct prefill *);
/* d->rows, d->stream <- what n tokens take at least. */
void prefill_demand(const struct prefill *, const struct model *m, size_t n,
    struct memory_demand *d);
/* ENGINE_EOPTION unless the options suit the model and a prompt of n tokens, in front of which
 * `have` queries are known. token_select_fit() has been asked before. */
int prefill_fit(const struct prefill *, const struct model *m, size_t n, uint32_t have,
    struct engine_error *);

/* Runs n > 0 tokens, as run_tokens() would, and evicts; logs both. obs (NULL = none) has a window
 * of prefill_window(); the queries that are to be saved are left in it. */
int prefill_run(struct prefill *, struct sequence *s, struct workspace *ws, const uint32_t *ids,
    size_t n, struct observation *obs, struct engine_error *);

#endif

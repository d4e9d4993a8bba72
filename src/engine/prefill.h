/* prefill.h - runs a prompt through all layers, in one of three schedules; two of them score and
 * evict its rows meanwhile
 *
 * Their result is that of kv-prefill | kv-score | kv-evict, with PREFILL_CHUNKS after each chunk,
 * but the full cache is never in memory. Tokens may be selected (token_select.h), except with
 * PREFILL_CHUNKS: FastKV's Algorithm 1 is TSP with a scorer and an evictor and PREFILL_LAYERS. */
#ifndef KVPIPE_PREFILL_H
#define KVPIPE_PREFILL_H

#include "engine/each_logits.h"
#include "engine/evict_cache.h"
#include "engine/memory_plan.h"
#include "engine/token_select.h"

enum prefill_schedule {
	/* nothing is evicted; a tile runs through all layers, or, when tokens are selected, through
	 * those up to the next layer that selects */
	PREFILL_PLAIN,
	PREFILL_LAYERS,         /* each layer runs the whole prompt and is evicted */
	PREFILL_CHUNKS          /* all layers run a chunk and are evicted */
};

struct prefill {
	enum prefill_schedule schedule;
	/* the caller sets its scorer and evictor, and frees it; all zero with PREFILL_PLAIN */
	struct cache_evictor evict;
	struct token_select select;     /* TOKENS_ALL with PREFILL_CHUNKS */
	/* 1: scores and drops only the rows of these tokens, or of the current chunk, by setting
	 * `since` of scorer and evictor */
	int once;
	/* rows of this prompt before the tokens to run; 0 with PREFILL_CHUNKS */
	uint32_t reused;
	uint32_t chunk;         /* PREFILL_CHUNKS: tokens */
	/* PREFILL_CHUNKS: how many tokens of the prompt's end, at most all of it, score each chunk;
	 * 0 = none */
	uint32_t patch;
	/* its learned tokens score, instead of queries of the prompt: after each layer, or with
	 * PREFILL_CHUNKS after each chunk; NULL = none. The caller's, on the device */
	const struct adapter *adapter;
	uint32_t observe;       /* how many queries to save */
	/* queries available after the prompt: the upper bound of the default window; 0 = unknown */
	uint32_t queries;
	/* gets the logits after each token that runs; not with token selection, where not all
	 * tokens reach the last layer */
	struct logits_sink logits;
	/* is told how much of prefill_total() is done; call NULL = none */
	struct step_hook step;
};

/* Returns 1 if the prompt runs layer by layer: progress is counted in rows, summed over the layers;
 * 0: in tokens. prefill_total(): returns the total. */
int prefill_counts_rows(const struct prefill *);
uint64_t prefill_total(const struct prefill *, const struct model *m, size_t n);
/* Returns how many queries of the prompt the method reads. Without its option: as many as are
 * saved, or the patch, or TSP's window, or EVICT_WINDOW. 0 with learned tokens. */
uint32_t prefill_scored_queries(const struct prefill *);
/* Returns how many queries to keep while the prompt runs: for scoring and for saving. */
uint32_t prefill_window(const struct prefill *);
/* Returns for how many of n tokens the cache should have room before they run. */
size_t prefill_spare(const struct prefill *, size_t n);
/* Returns how many rows the workspace must have at least, for any prompt. */
uint32_t prefill_least_rows(const struct prefill *);
/* d->rows, d->stream <- the least that n tokens need. */
void prefill_demand(const struct prefill *, const struct model *m, size_t n,
    struct memory_demand *d);
/* Fails with ENGINE_EOPTION unless the options suit the model and a prompt of n tokens, before
 * which `have` queries are known. Call token_select_fit() before. */
int prefill_fit(const struct prefill *, const struct model *m, size_t n, uint32_t have,
    struct engine_error *);

/* Runs n > 0 tokens, as run_tokens(), and evicts; logs both. obs (NULL = none) has a window of
 * prefill_window(), and has the queries to save afterwards. */
int prefill_run(struct prefill *, struct sequence *s, struct workspace *ws, const uint32_t *ids,
    size_t n, struct observation *obs, struct engine_error *);

#endif

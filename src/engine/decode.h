/* decode.h - runs tokens one by one on a cache, which is evicted after each
 *
 * The caller chooses the next token (forward/sample.h), unless it is always the likeliest: then the
 * device chooses, and no logits are copied to the host. */
#ifndef KVPIPE_DECODE_H
#define KVPIPE_DECODE_H

#include "engine/evict_cache.h"
#include "engine/offload_plan.h"
#include "forward/batch.h"
#include "forward/generate.h"
#include "forward/sequence_point.h"

struct speculation;

struct decode {
	/* the caller's */
	struct sequence *sequence;
	struct workspace *ws;
	struct cache_evictor *evict;    /* after evict->every tokens; NULL = none */
	struct observation *obs;        /* gets the queries of the last tokens; NULL = none */
	int greedy;                     /* the next token is the likeliest one */
	/* how layers are offloaded as the text grows; NULL: none is */
	const struct offload_plan *offload;
	/* runs tokens ahead as a draft proposes them (speculate.h); NULL: none. Then evict and obs
	 * are NULL. */
	struct speculation *speculation;
	/* decode_init()'s; NULL: the host chooses tokens, and the device cannot launch captured
	 * steps */
	struct generator *generator;
	/* decode_together()'s: batch and row of the last token; NULL before the first */
	struct batch *batch;
	uint32_t row;
	uint32_t evicted_at;            /* decode_evict()'s: the next position then */
};

int decode_init(struct decode *, struct engine_error *);
void decode_free(struct decode *);

/* Evicts every layer to the budget, before the first token; logs that. */
int decode_evict(struct decode *, struct engine_error *);

/* Runs n > 0 tokens, as a prefill that continues the cache; logs nothing. The cache's logits <-
 * those after the last token. */
int decode_ask(struct decode *, const uint32_t *ids, size_t n, struct engine_error *);

/* Appends the token, evicts, clusters appended rows when there are enough (grow_clusters.h), and
 * logs. If the method allows it, the host chooses the rows to evict while the device runs the
 * token. greedy: *next <- the likeliest token, UINT32_MAX when no logit is finite. Otherwise the
 * cache's logits <- those after this token. */
int decode_step(struct decode *, uint32_t id, uint32_t *next, struct engine_error *);

/* One of several sequences in decode_together(), with its own token. All have the same `greedy`,
 * and decode_init() was called for none. They may share one evictor. */
struct decode_turn {
	struct decode *d;
	uint32_t id;                    /* the token */
	uint32_t next;                  /* <- as decode_step() */
	/* <- the result of this sequence. A failure leaves the others alone; do not use its
	 * cache again. */
	struct engine_error e;
};

/* Does decode_step() for n sequences at once, at most the batch's room. Returns an error, for all,
 * when the device has failed. */
int decode_together(struct batch *, struct decode_turn *, uint32_t n, struct engine_error *);

/* The cache's logits <- those after the last token; for a batch, call it before the next step. */
int decode_logits(struct decode *, struct engine_error *);

/* Goes back to a point of the sequence (sequence_point.h), drops the window's queries of later
 * tokens, and runs the n tokens, each as a step. After that the cache can only be saved, with
 * decode_finish(). */
int decode_cut(struct decode *, struct sequence_point *, const uint32_t *ids, size_t n,
    struct engine_error *);

/* Prepares the cache for saving: decode_logits(), and drops rows that no later query sees. */
int decode_finish(struct decode *, struct engine_error *);

#endif

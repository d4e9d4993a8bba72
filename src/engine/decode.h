/* decode.h - token after token behind a cache, which is evicted after each
 *
 * Which token comes next is the caller's choice (forward/sample.h), except where it is the
 * likeliest: then the device chooses, and no logits come to the host. */
#ifndef KVPIPE_DECODE_H
#define KVPIPE_DECODE_H

#include "engine/evict_cache.h"
#include "engine/offload_plan.h"
#include "forward/batch.h"
#include "forward/generate.h"
#include "forward/sequence_point.h"

struct decode {
	/* the caller's */
	struct sequence *sequence;
	struct workspace *ws;
	struct cache_evictor *evict;    /* its budget holds after every token; NULL = none */
	struct observation *obs;        /* takes the queries of the last tokens; NULL = none */
	int greedy;                     /* the next token is the likeliest one */
	/* how layers are offloaded as the text grows; NULL: none is */
	const struct offload_plan *offload;
	/* decode_init()'s; NULL: the host chooses, and this device gains nothing by repeating
	 * steps */
	struct generator *generator;
	/* decode_together()'s: batch and row of the last token; NULL before the first */
	struct batch *batch;
	uint32_t row;
};

int decode_init(struct decode *, struct engine_error *);
void decode_free(struct decode *);

/* Makes the budget hold in every layer, before the first token; logs. */
int decode_evict(struct decode *, struct engine_error *);

/* Runs n > 0 tokens, as a prefill that continues the cache would; logs nothing. The cache's logits
 * are those after the last one. */
int decode_ask(struct decode *, const uint32_t *ids, size_t n, struct engine_error *);

/* Appends the token, evicts, clusters rows that have become enough (grow_clusters.h), and logs:
 * while the device is busy with the token, the host chooses the rows that go, as far as the
 * method lets it. greedy: *next <- the likeliest token, UINT32_MAX when no logit is finite.
 * Otherwise the cache's logits are those after this token. */
int decode_step(struct decode *, uint32_t id, uint32_t *next, struct engine_error *);

/* decode_step() of several at once, each with a token of its own. All of them agree about
 * greedy, and none has been decode_init()ed. One evictor may serve them all. */
struct decode_turn {
	struct decode *d;
	uint32_t id;                    /* the token */
	uint32_t next;                  /* <- as decode_step() */
	/* <- the result of this sequence. A failure leaves the others alone; do not use its
	 * cache again. */
	struct engine_error e;
};

/* As many as the batch has room for. Returns an error, for all, when the device has failed. */
int decode_together(struct batch *, struct decode_turn *, uint32_t n, struct engine_error *);

/* The cache's logits <- those after the last token; of a batch before its next step. */
int decode_logits(struct decode *, struct engine_error *);

/* The cache is what it was at the point, where it was since (sequence_point.h), and the window has
 * the queries of the tokens before it alone. Then these n tokens run, each as a step. Afterwards
 * the cache is only to be saved, with decode_finish(). */
int decode_cut(struct decode *, struct sequence_point *, const uint32_t *ids, size_t n,
    struct engine_error *);

/* decode_logits(), and rows that no later query sees are dropped: the cache is to be saved. */
int decode_finish(struct decode *, struct engine_error *);

#endif

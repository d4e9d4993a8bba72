/* batch.h - one token of each of several sequences: a step reads the weights once for all of them
 *
 * Each row has the positions and the observation of its own sequence, and attends to its own cache.
 * Sequences may have any length, and may be others in the next step. */
#ifndef KVPIPE_BATCH_H
#define KVPIPE_BATCH_H

#include "forward/forward.h"

/* Up to 64 rows the CPU sums in the order of a single row (cpu/cpu_matmul.c), if products are in
 * f32, as in every step: each sequence gets the bytes that it gets alone. */
enum { BATCH_MOST = 64 };

struct batch;

/* Returns a batch for up to `most` sequences at once; NULL without memory. */
struct batch *batch_new(const struct model *, uint32_t most);
void batch_free(struct batch *);                       /* NULL allowed */

/* Makes room for a token in one sequence, before the step that runs it. Returns as run_tokens();
 * after a failure do not use its cache again. The other sequences of the batch are not affected. */
int batch_expect(struct sequence *, uint32_t id, char *err, size_t errlen);

/* A sequence in a step */
struct batch_row {
	struct sequence *sequence;     /* batch_expect() has been called with the token */
	struct observation *obs;       /* NULL: none */
	uint32_t id;                   /* the token that runs */
	uint32_t next;                 /* <- the likeliest next one; UINT32_MAX: no finite logit */
};

/* Appends each token at its cache's next_position. Does not set the caches' logits: batch_logits()
 * gets those of row i until the next step. Returns 0, or MODEL_EIO: the device has failed. */
int batch_run(struct batch *, struct batch_row *, uint32_t n, char *err, size_t errlen);

/* cache->logits <- those of row i of the last step. Returns 0, or MODEL_ENOMEM. */
int batch_logits(struct batch *, uint32_t i, struct cache *);
/* Returns how many steps ran as launches of a captured graph (step_graph.h) */
uint64_t batch_launches(const struct batch *);
int batch_capture_failed(const struct batch *);
/* Returns 0 if row i of the last step is finite, else MODEL_EIO (finite.h). */
int batch_check(struct batch *, uint32_t i, const struct cache *, char *err, size_t errlen);

#endif

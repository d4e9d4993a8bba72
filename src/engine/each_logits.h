/* each_logits.h - the logits after every token that runs, a block of rows at a time
 *
 * All of them would be N x V numbers, gigabytes for a long prompt. Only a block is on the device
 * and on the host at a time; a callback gets the logits row by row. */
#ifndef KVPIPE_EACH_LOGITS_H
#define KVPIPE_EACH_LOGITS_H

#include "engine/engine_error.h"
#include "forward/forward.h"

/* The callback that gets them; take NULL = none. */
struct logits_sink {
	/* logits[V], finite, after the next row; rows come in the order of the text */
	void (*take)(void *with, const float *logits);
	void *with;                     /* the caller's, passed on */
};

struct each_logits {
	const struct model *model;
	struct workspace *ws;
	struct logits_sink sink;
	uint32_t rows;                  /* of a block */
	float *device, *host;           /* [rows][V] */
};

/* Returns the rows of a block, at most those of a workspace of `at_once` rows. */
uint32_t each_logits_rows(const struct model *, uint32_t at_once);
/* Allocates a block. Returns ENGINE_OK, or ENGINE_ENOROOM or ENGINE_ERUN without memory; call
 * each_logits_end() in any case. */
int each_logits_begin(struct each_logits *, const struct logits_sink *, const struct model *,
    struct workspace *, struct engine_error *);
/* Gives the sink the logits after rows x[N][D] (device), which have run through all layers, the
 * first at this position. Waits for the device. ENGINE_ERUN when it has failed or a logit is not
 * finite. */
int each_logits_put(struct each_logits *, const float *x, uint32_t N, uint32_t position,
    struct engine_error *);
void each_logits_end(struct each_logits *);

/* Fails with ENGINE_ERUN, naming the token, unless all V logits after the token at this position
 * are finite. */
int logits_check(const struct model *, const float *logits, uint32_t position,
    struct engine_error *);

#endif

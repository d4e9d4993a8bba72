/* observation.h - the observation window: the queries of the last rows, kept for scoring
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_OBSERVATION_H
#define KVPIPE_OBSERVATION_H

#include "model/model.h"

struct observation {
	uint32_t window;               /* W: how many of the last rows are wanted; 0 = none */
	/* rows at this position and later are kept; set by observation_expect() */
	uint32_t first;
	uint32_t have;                 /* rows below, <= window: the last ones so far */
	uint32_t *pos;                 /* host [W], ascending */
	/* [L] -> host [W][H][E], after rope, not scaled; row order as pos. NULL: this layer's are
	 * not wanted (never so in a window that is saved) */
	float **q;
	int on_device;                 /* 1: q[l] are on the device, and not freed one by one */
	float *buffer;                 /* observation_to_device()'s memory, or NULL */
	uint32_t offset;               /* of the windows in it, in queries */
	/* how many of the last queries are of tokens that were not stored, and their keys: [L] ->
	 * host [G][n_own][E] of the cache's dtype, after rope; NULL: they are in the cache, behind
	 * the rows of each KV head (run_unstored_layer()) */
	uint32_t n_own;
	void **own;
	uint32_t loaded;               /* layers whose stored queries agree */
	const struct observation *next;        /* another window over the same rows, or NULL */
};

/* Returns 0, or MODEL_ENOMEM. */
int observation_init(struct observation *, const struct model *m, uint32_t window);
void observation_free(struct observation *, const struct model *m);
/* Moves the queries to the device, where forward() appends to them without a wait, and back
 * to the host, where they are loaded and saved. Return 0, or MODEL_ENOMEM, and then nothing
 * has changed. */
int observation_to_device(struct observation *, const struct model *m);
int observation_to_host(struct observation *, const struct model *m);
/* On the device: drops the first `drop` queries. */
void observation_slide(struct observation *, const struct model *m, uint32_t drop);
/* Before the rows at positions from, from + 1, ... (n > 0 of them) run: forgets the oldest
 * queries, so that those of the last rows fit, and lists the positions of these, whose queries
 * forward() fills in layer by layer. None of them may be dropped on the way. */
void observation_expect(struct observation *, const struct model *m, uint32_t from, size_t n);

#endif

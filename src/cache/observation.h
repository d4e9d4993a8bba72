/* observation.h - the observation window: the queries of the last rows, kept for scoring
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_OBSERVATION_H
#define KVPIPE_OBSERVATION_H

#include "model/model.h"

struct observation {
	uint32_t window;               /* W: how many of the last queries to keep; 0 = none */
	/* queries at this position and later are kept; set by observation_expect() */
	uint32_t first;
	uint32_t have;                 /* queries below, <= window: the last ones so far */
	uint32_t *pos;                 /* host [W], ascending */
	/* [L] -> host [W][H][E], after rope, not scaled; in the order of pos. NULL: this layer's
	 * are not wanted (never so in a window that is saved) */
	float **q;
	int on_device;                 /* 1: q[l] point into buffer, on the device */
	float *buffer;                 /* observation_to_device()'s memory, or NULL */
	uint32_t offset;               /* of the windows in buffer, in queries */
	/* how many of the last queries are of tokens that were not stored, and the keys of these:
	 * [L] -> host [G][n_own][E] of the cache's dtype, after rope; NULL: they are in the cache,
	 * after the rows of each KV head (run_unstored_layer()) */
	uint32_t n_own;
	void **own;
	uint32_t loaded;               /* layers whose loaded queries have the same positions */
	const struct observation *next;        /* another window over the same rows, or NULL */
};

/* Allocates an empty window. Returns 0, or MODEL_ENOMEM. */
int observation_init(struct observation *, const struct model *m, uint32_t window);
void observation_free(struct observation *, const struct model *m);
/* Move the queries to the device, where forward() appends to them without waiting, and to the host,
 * where they are loaded and saved. Return 0, or MODEL_ENOMEM, and then nothing has changed. */
int observation_to_device(struct observation *, const struct model *m);
int observation_to_host(struct observation *, const struct model *m);
/* Drops the first `drop` queries of a window on the device. */
void observation_slide(struct observation *, const struct model *m, uint32_t drop);
/* Call before n > 0 rows at positions from, from + 1, ... run: drops the oldest queries, so that
 * those of the last new rows fit, and appends the positions of these; forward() fills in their
 * queries layer by layer. None of these rows may be dropped until then. */
void observation_expect(struct observation *, const struct model *m, uint32_t from, size_t n);

#endif

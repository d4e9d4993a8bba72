/* queries.h - the observation queries of a layer: an oBSq section (kv-snapshot(5), 4.5) */
#ifndef KVPIPE_QUERIES_H
#define KVPIPE_QUERIES_H

#include "libkvfile/kvfile.h"

struct queries {
	uint32_t n;             /* W; 0 = none */
	uint32_t *pos;          /* [W] ascending */
	float *q;               /* [W][H][E] */
	/* of tokens that are not stored, whether or not their queries are taken: a later query
	 * sees the keys of earlier ones */
	uint32_t n_own;
	uint32_t *own_pos;      /* [n_own] */
	void *own;              /* [G][n_own][E] of the snapshot's dtype */
};

/* How many there are in the content of an oBSq section, which the reader has checked. */
uint32_t queries_stored(const void *content);

/* Replaces what was there by the last n of them, and all own keys. Dies without memory. */
void queries_take(struct queries *, const void *content, const struct kv_head *, uint32_t n);

/* Leaves none. */
void queries_forget(struct queries *);

#endif

/* noncausal_mass.h - what the rows of a chunk of 256 pay one another without a causal mask: for a
 * row the sum over the chunk's queries of their softmax over the chunk's keys, the mean over the
 * query heads of a KV head (kv-snapshot(5), 4.25)
 *
 * Compactor (Chari, Van Durme 2025), as kvpress's NonCausalAttnPress has it: logits are q.k, not
 * divided by sqrt(E). Chunks begin at the position `first`; rows before it get 0. A chunk
 * that runs in several parts is computed part by part. Letters as in ops.h. */
#ifndef KVPIPE_NONCAUSAL_MASS_H
#define KVPIPE_NONCAUSAL_MASS_H

#include "cache/row_lists.h"

enum { NONCAUSAL_CHUNK = 256 };

struct noncausal {
	uint32_t first;
	char label[48];
	float *mass;                    /* device [H][NONCAUSAL_CHUNK] */
	uint32_t *pos;                  /* device [NONCAUSAL_CHUNK] behind all rows */
	float *host, *numbers;          /* host: as mass; [NONCAUSAL_CHUNK][G] */
	uint64_t *start;                /* host [G] of a chunk's rows */
	uint32_t *len;                  /* host [G] */
};

/* NULL without memory. */
struct noncausal *noncausal_new(const struct model *, uint32_t first);
void noncausal_free(struct noncausal *, const struct model *);  /* NULL is allowed */
/* Returns how many of N rows from `position` on end with a chunk; N if none does. */
uint32_t noncausal_whole(const struct noncausal *, uint32_t position, uint32_t N);
/* Sets the numbers of the last N rows of layer l, whose queries are q[N][H][E] (device), at the
 * positions pos[N] (host). scratch[N][H][E] is on the device. */
void noncausal_run(const struct noncausal *, const struct model *, struct row_lists *, uint32_t l,
    const struct layer_rows *rows, const float *q, float *scratch, const uint32_t *pos,
    uint32_t N);

#endif

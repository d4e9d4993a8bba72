/* reposition.h - new positions for the rows that are left: kv-evict --positions compact
 *
 * In each KV head the rows get the positions right before the next token's, in their order, and
 * keys are turned to them. So the next token sees every head as if its rows were numbered by
 * their place in the cache and the token came right after them (StreamingLLM): attention knows
 * distances only. Where heads hold different numbers of rows, the longest begins at 0. */
#ifndef KVPIPE_REPOSITION_H
#define KVPIPE_REPOSITION_H

#include "methods/methods.h"

struct renumber {
	uint32_t next;          /* the new next position: rows of the longest head, at least 1 */
	double *freq;           /* [E/2] of the model's rotary embedding */
};

/* longest: how many rows stay in the longest head of all layers. Dies. */
void renumber_start(struct renumber *n, const struct kv_model *m, uint32_t longest);
void renumber_end(struct renumber *n);

/* The new position of row i of the count rows that stay in a head. */
static inline uint32_t
renumber_row(const struct renumber *n, uint32_t count, uint32_t i)
{
	return n->next - count + i;
}

/* to[sum of kept->count][E] <- the keys that stay, of the keys [sum of rows->count][E], turned to
 * their new positions. Dies. */
void renumber_keys(const struct renumber *n, void *to, const void *keys, enum kv_dtype dtype,
    uint32_t E, const struct kv_rows *rows, const struct kept *kept);

#endif

/* reposition.h - new positions for the rows that stay: kv-evict --positions compact
 *
 * In each KV head the rows get the positions right before the next token's, in their order, and
 * their keys are rotated to them. So the next token sees every head as if its rows were numbered by
 * their place in the cache and the token came right after them (StreamingLLM, Xiao et al. 2023):
 * attention knows distances only. Where heads hold different numbers of rows, the longest begins
 * at 0. */
#ifndef KVPIPE_REPOSITION_H
#define KVPIPE_REPOSITION_H

#include "engine/engine_error.h"
#include "methods/methods.h"

struct reposition {
	uint32_t next;          /* the new next position: rows of the longest head, at least 1 */
	double *freq;           /* of the model's rotary embedding */
	struct kv_model model;  /* a copy: the reader that it is from may be closed before */
};

/* longest: how many rows stay in the longest head of all layers. Returns an ENGINE_* code. */
int reposition_init(struct reposition *, const struct kv_model *, uint32_t longest,
    struct engine_error *);
void reposition_free(struct reposition *);      /* all zero is allowed */

/* The new position of row i of the count rows that stay in a head. */
static inline uint32_t
reposition_row(const struct reposition *p, uint32_t count, uint32_t i)
{
	return p->next - count + i;
}

/* to[sum of kept->count][E] <- the keys that stay, of the keys [sum of rows->count][E] of a layer,
 * rotated to their new positions. Returns an ENGINE_* code. */
int reposition_keys(const struct reposition *, uint32_t layer, void *to, const void *keys,
    enum kv_dtype dtype, const struct kv_rows *rows, const struct kept *kept,
    struct engine_error *);

#endif

/* reposition.h - new positions for kept rows: kv-evict --positions compact
 *
 * In each KV head the rows get consecutive positions, in order, the last one right before the next
 * token, and their keys are rotated to these. So for the next token the rows are numbered by their
 * place in the cache, as in StreamingLLM (Xiao et al. 2023): attention depends on distances only.
 * Where heads have different numbers of rows, the longest begins at 0. */
#ifndef KVPIPE_REPOSITION_H
#define KVPIPE_REPOSITION_H

#include "engine/engine_error.h"
#include "methods/methods.h"

struct reposition {
	uint32_t next;          /* the new next position: rows of the longest head, at least 1 */
	double *freq;           /* frequencies of the model's rotary embedding */
	struct kv_model model;  /* a copy, so that its reader may be closed */
};

/* Initializes p. longest: kept rows of the longest head of all layers. Returns an ENGINE_* code. */
int reposition_init(struct reposition *, const struct kv_model *, uint32_t longest,
    struct engine_error *);
void reposition_free(struct reposition *);      /* all zero is allowed */

/* Returns the new position of row i of the `count` kept rows of a head. */
static inline uint32_t
reposition_row(const struct reposition *p, uint32_t count, uint32_t i)
{
	return p->next - count + i;
}

/* to[sum of kept->count] <- the kept ones of a layer's keys[sum of rows->count], rows of this type,
 * rotated to their new positions. name: the snapshot's, for messages. Returns an ENGINE_* code. */
int reposition_keys(const struct reposition *, uint32_t layer, void *to, const void *keys,
    enum kv_row_type, const struct kv_rows *rows, const struct kept *kept, const char *name,
    struct engine_error *);

/* Returns the ENGINE_* code for a code of rotate_keys(), of keys of this type in a layer of the
 * snapshot `name`. */
int rotated(struct engine_error *, int rotate_code, const char *name, uint32_t layer,
    enum kv_row_type type);

#endif

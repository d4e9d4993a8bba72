/* kept_rows.h - of what a snapshot holds for the rows of a layer, the part of the rows that stay */
#ifndef KVPIPE_KEPT_ROWS_H
#define KVPIPE_KEPT_ROWS_H

#include "engine/engine_error.h"
#include "methods/methods.h"

struct reposition;

/* *out <- the rows that stay of `rows`, at their positions, or with a reposition (NULL = none) at
 * new ones. Its count is kept->count; the rest is to be freed by kept_positions_free(). Returns an
 * ENGINE_* code. */
int kept_positions(struct kv_rows *out, const struct kv_rows *rows, const struct kept *kept,
    const struct reposition *, struct engine_error *);
void kept_positions_free(struct kv_rows *);

/* value: n lists of each KV head, one behind the other, as mASS and pAID have them: closes the gaps
 * that dropped rows leave, in place. Returns how many values are left. */
size_t host_values(float *value, const struct kv_rows *rows, const struct kept *kept, uint32_t n);

/* *spans <- *n pieces of content, the rows of all KV heads of `size` bytes each, that hold the rows
 * that stay, in order; neighbours are one piece. To be freed. Returns an ENGINE_* code. */
int kept_spans(struct kv_span **spans, size_t *n, const void *content, size_t size,
    const struct kv_rows *rows, const struct kept *kept, struct engine_error *);

#endif

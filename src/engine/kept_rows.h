/* kept_rows.h - selects the kept rows from positions, values and contents of a layer in a
 * snapshot */
#ifndef KVPIPE_KEPT_ROWS_H
#define KVPIPE_KEPT_ROWS_H

#include "engine/engine_error.h"
#include "methods/methods.h"

struct reposition;

/* *out <- the kept ones of `rows`, with their positions, or with those of a reposition (NULL =
 * none). out->count is kept->count; the rest is freed by kept_positions_free(). Returns an ENGINE_*
 * code. */
int kept_positions(struct kv_rows *out, const struct kv_rows *rows, const struct kept *kept,
    const struct reposition *, struct engine_error *);
void kept_positions_free(struct kv_rows *);

/* Removes the values of dropped rows, in place, from n lists for each KV head, one after the other
 * as in mASS and pAID. Returns how many values are left. */
size_t host_values(float *value, const struct kv_rows *rows, const struct kept *kept, uint32_t n);

/* *spans <- the *n pieces of content that hold the kept rows, in order; adjacent rows are one
 * piece. content has the rows of all KV heads, `size` bytes each. To be freed. Returns an ENGINE_*
 * code. */
int kept_spans(struct kv_span **spans, size_t *n, const void *content, size_t size,
    const struct kv_rows *rows, const struct kept *kept, struct engine_error *);

#endif

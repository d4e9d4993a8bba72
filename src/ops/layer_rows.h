/* layer_rows.h - making, freeing and growing struct layer_rows whose KV heads all have the same
 * capacity
 *
 * Letters as in ops.h; errors are KV_* codes. */
#ifndef KVPIPE_LAYER_ROWS_H
#define KVPIPE_LAYER_ROWS_H

#include "libkvfile/kvfile.h"
#include "ops/ops.h"

/* Initializes layer_rows of elements of dtype, without rows and without memory for any. Returns 0,
 * or KV_ENOMEM; call layer_rows_free() in any case. */
int layer_rows_init(struct layer_rows *, uint32_t heads, uint32_t width, enum kv_dtype);
/* As layer_rows_init(), in the shape and the types of other rows. */
int layer_rows_init_as(struct layer_rows *, const struct layer_rows *other);
/* All zero is allowed. */
void layer_rows_free(struct layer_rows *, const struct ops *, struct dev *);
/* Moves the rows to memory for `capacity` rows of each KV head; keys_only: without values. Returns
 * 0, or KV_ENOMEM (and then nothing has changed). */
int layer_rows_resize(struct layer_rows *, const struct ops *, struct dev *, uint32_t capacity,
    int keys_only);

#endif

/* layer_rows.h - lists of rows of the KV heads of a layer (struct layer_rows): life, and growth of
 * those whose KV heads have room for the same number of rows
 *
 * Letters as in ops.h; errors are KV_* codes. */
#ifndef KVPIPE_LAYER_ROWS_H
#define KVPIPE_LAYER_ROWS_H

#include "libkvfile/kvfile.h"
#include "ops/ops.h"

/* No rows, and no memory for any. Returns 0, or KV_ENOMEM; layer_rows_free() is called in any
 * case. */
int layer_rows_init(struct layer_rows *, uint32_t heads, uint32_t width, enum kv_dtype);
/* All zero is allowed. */
void layer_rows_free(struct layer_rows *, const struct ops *, struct dev *);
/* Moves the rows to memory for so many of each KV head; keys_only: values have none. Returns 0, or
 * KV_ENOMEM (and then nothing has changed). */
int layer_rows_resize(struct layer_rows *, const struct ops *, struct dev *, uint32_t capacity,
    int keys_only);

#endif

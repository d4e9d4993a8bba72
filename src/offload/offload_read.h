/* offload_read.h - rows that a step reads, from the file to the slots on the device: what offload.c reads
 * with */
#ifndef KVPIPE_OFFLOAD_READ_H
#define KVPIPE_OFFLOAD_READ_H

#include "offload/offload.h"

/* Memory for the rows of f->slots. Returns 0, or KV_ENOMEM. */
int far_fetch_reserve(struct far_rows *);
void far_fetch_free(struct far_rows *);

/* Reads n rows of KV head g, no more than there are slots, whose keys or values go to slot[] of near. On
 * the device they are after far_fetch_end() only: before it, each KV head once at most. Returns 0, or
 * KV_EIO (the store says why). */
int far_fetch(struct far_rows *, uint32_t l, uint32_t g, const uint32_t *row, const uint32_t *slot,
    uint32_t n, int keys, int values);
void far_fetch_end(struct far_rows *, uint32_t l);
/* Both for all that far_rows_begin() has found to be new in layer l. What fails is in the store. */
void far_fetch_layer(struct far_rows *, uint32_t l);

/* Is the key of this row read, too? */
static inline int
far_has_key(const struct far_keys *k, uint32_t g, uint32_t row)
{
	return k->exact == NULL || k->exact[(size_t)g * k->chunks + row / k->rows] != 0;
}

#endif

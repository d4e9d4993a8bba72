/* offload_read.h - rows of a step, from the store to the slots on the device */
#ifndef KVPIPE_OFFLOAD_READ_H
#define KVPIPE_OFFLOAD_READ_H

#include "offload/offload.h"

/* Allocates memory to stage the rows of all slots. Returns 0, or KV_ENOMEM. */
int offload_read_reserve(struct offload *);
void offload_read_free(struct offload *);

/* Reads keys, values or both of n rows of KV head g, at most as many as there are slots, into rows
 * slot[] of device_rows. They are on the device after offload_read_end(); call this once for each
 * KV head before that. Returns 0, or KV_EIO (store->error). */
int offload_read(struct offload *, uint32_t l, uint32_t g, const uint32_t *row,
    const uint32_t *slot, uint32_t n, int keys, int values);
void offload_read_end(struct offload *, uint32_t l);
/* Reads the new rows of the step of layer l, and calls offload_read_end(). A failure is in
 * store->error. */
void offload_read_layer(struct offload *, uint32_t l);

/* Returns 1 if a step reads the key of this row, not only the value. */
static inline int
offload_has_key(const struct offload_keys *k, uint32_t g, uint32_t row)
{
	return k->exact == NULL || k->exact[(size_t)g * k->chunks + row / k->rows] != 0;
}

#endif

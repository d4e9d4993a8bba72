/* offload_device.h - offloaded layers whose rows are in host memory that the device reads: the
 * device determines which rows of a step are in no slot, and fetches them (fetch_chosen()) */
#ifndef KVPIPE_OFFLOAD_DEVICE_H
#define KVPIPE_OFFLOAD_DEVICE_H

#include "offload/offload.h"

/* Allocates the slot tables of layer l, which has device_rows and host_count. Returns 0, or
 * KV_ENOMEM. */
int offload_device_open(struct offload *, uint32_t l);
/* Allocates the list of the rows of a step, for the capacity of device_rows. Returns 0, or
 * KV_ENOMEM. */
int offload_device_lists(struct offload *, struct offload_layer *);
/* Orders later work of the device after the fetch ahead of this layer. */
void offload_device_order(struct offload *, const struct offload_layer *);
/* offload_start() and offload_wait() of a layer whose slots the device fills */
void offload_device_start(struct offload *, uint32_t l, const struct offload_step *);
const struct chosen *offload_device_wait(struct offload *, uint32_t l);
/* fetched[G] <- how many keys and values the device has fetched so far */
void offload_device_fetched(struct offload *, uint32_t l, uint64_t *fetched);
void offload_device_free(struct offload *, struct offload_layer *);

#endif

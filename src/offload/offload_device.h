/* offload_device.h - layers of offload.h whose rows are in host memory that the device reads: it finds out
 * itself which of them are in slots, and brings the others (fetch_chosen()) */
#ifndef KVPIPE_OFFLOAD_DEVICE_H
#define KVPIPE_OFFLOAD_DEVICE_H

#include "offload/offload.h"

/* Slots of layer l, empty ones; near and stored are there. Returns 0, or KV_ENOMEM. */
int far_device_open(struct far_rows *, uint32_t l);
/* Lists of the rows of a step, for as many as there are in near. Returns 0, or KV_ENOMEM. */
int far_device_lists(struct far_rows *, struct far_layer *);
/* Later work of the device comes behind what it fetches for this layer. */
void far_device_wait(struct far_rows *, const struct far_layer *);
/* far_rows_end() */
const struct chosen *far_device_end(struct far_rows *, uint32_t l);
void far_device_free(struct far_rows *, struct far_layer *);

#endif

/* offload_host.h - offloaded layers whose slots the host fills, from the file, or from the file and
 * host memory */
#ifndef KVPIPE_OFFLOAD_HOST_H
#define KVPIPE_OFFLOAD_HOST_H

#include "offload/offload_read.h"
#include "offload/offload_thread.h"

/* Allocates the slot tables of a layer. Returns 0, or KV_ENOMEM. */
int offload_host_open(struct offload *, struct offload_layer *);
/* Allocates the lists of the rows of a step, on the host and on the device, for the capacity of
 * device_rows. Does not keep their contents. Returns 0, or KV_ENOMEM. */
int offload_host_lists(struct offload *, struct offload_layer *);
void offload_host_free(struct offload *, struct offload_layer *);
/* offload_start(), offload_wait() of a layer whose slots the host fills */
int offload_host_start(struct offload *, uint32_t l, const struct offload_step *);
const struct chosen *offload_host_wait(struct offload *, uint32_t l);

#endif

/* offload_host.h - layers of offload.h whose slots the host fills: from the file, also where keys or values alone
 * are in host memory */
#ifndef KVPIPE_OFFLOAD_HOST_H
#define KVPIPE_OFFLOAD_HOST_H

#include "offload/offload_read.h"
#include "offload/offload_thread.h"

/* What a layer has for each KV head, and for each slot. Returns 0, or KV_ENOMEM. */
int far_host_open(struct far_rows *, struct far_layer *);
/* Lists of the rows of a step, of the layer and on the device, for as many as there are in near. What was in
 * them is gone. Returns 0, or KV_ENOMEM. */
int far_host_lists(struct far_rows *, struct far_layer *);
void far_host_free(struct far_rows *, struct far_layer *);
/* far_rows_end() */
const struct chosen *far_host_end(struct far_rows *, uint32_t l);

#endif

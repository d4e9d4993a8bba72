/* offload_whole.h - offloaded layers that each step reads whole: one layer at a time is on the
 * device
 *
 * For a cache that is larger than memory and attends to all rows (FlexGen, Sheng et al. 2023, reads
 * its cache so). A step reads all offloaded rows once, however many tokens it runs: with
 * speculative decoding that is once for several tokens. The tails, with the appended rows, stay on
 * the device. */
#ifndef KVPIPE_OFFLOAD_WHOLE_H
#define KVPIPE_OFFLOAD_WHOLE_H

#include "offload/offload.h"

/* Returns layer l, of which `rows` has lengths and positions, with keys and values copied from the
 * store and the tail; valid until the next call. Copies the positions of the tail to those of
 * `rows`. NULL: a failure, in store->error. */
const struct layer_rows *offload_whole(struct offload *, uint32_t l, const struct layer_rows *rows);
void offload_whole_free(struct offload *);

#endif

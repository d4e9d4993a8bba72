/* device_block.h - small tensors that lie in one block of a device
 *
 * They are laid out twice, the same pieces in the same order: first without memory, which adds up
 * their size, so that everything can be checked before device memory is allocated; then with
 * memory. */
#ifndef KVPIPE_DEVICE_BLOCK_H
#define KVPIPE_DEVICE_BLOCK_H

#include "ops/ops.h"

struct device_block {
	uint8_t *host, *device;         /* both NULL: first layout */
	size_t used;                    /* bytes so far, a multiple of 64 */
};

/* Reserves bytes. *host, *device <- where to write them, and where the device will have them; both
 * NULL in the first layout. */
void device_block_reserve(struct device_block *, size_t bytes, void **host, void **device);
/* Begins the second layout: allocates `bytes` on host and device. Returns 1, or 0 without memory;
 * call device_block_end() in any case. */
int device_block_begin(struct device_block *, const struct ops *, struct dev *, size_t bytes);
/* Copies the block from the host to the device. Returns NULL, or the text of the failure. */
const char *device_block_put(const struct device_block *, const struct ops *, struct dev *);
/* Frees the host's part of the block; the device's part is the caller's. */
void device_block_end(struct device_block *);

#endif

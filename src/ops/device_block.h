/* device_block.h - small tensors that lie in one block of a device
 *
 * They are laid out twice: first without memory, which adds up their size and lets everything be
 * checked before the device holds anything; then with it, the same pieces in the same order. */
#ifndef KVPIPE_DEVICE_BLOCK_H
#define KVPIPE_DEVICE_BLOCK_H

#include "ops/ops.h"

struct device_block {
	uint8_t *host, *device;         /* both NULL: the first time */
	size_t used;                    /* bytes so far, a multiple of 64 */
};

/* Reserves bytes: what is written to *host, *device will hold. Both NULL the first time. */
void device_block_reserve(struct device_block *, size_t bytes, void **host, void **device);
/* Begins the second time: memory for so many bytes. Returns 0 where there is none;
 * device_block_end() is called in any case. */
int device_block_begin(struct device_block *, const struct ops *, struct dev *, size_t bytes);
/* Copies what was written to the device. Returns NULL, or why that failed. */
const char *device_block_put(const struct device_block *, const struct ops *, struct dev *);
/* Frees what the host has of it; the device's memory is the caller's. */
void device_block_end(struct device_block *);

#endif

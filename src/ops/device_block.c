/* device_block.c - small tensors that lie in one block of a device */
#include <stdlib.h>

#include "ops/device_block.h"

void
device_block_reserve(struct device_block *b, size_t bytes, void **host, void **device)
{
	*host = b->host == NULL ? NULL : b->host + b->used;
	*device = b->host == NULL ? NULL : b->device + b->used;
	b->used += (bytes + 63) / 64 * 64;
}

int
device_block_begin(struct device_block *b, const struct ops *ops, struct dev *dev, size_t bytes)
{
	*b = (struct device_block){ .host = calloc(1, bytes), .device = ops->alloc(dev, bytes) };
	return b->host != NULL && b->device != NULL;
}

const char *
device_block_put(const struct device_block *b, const struct ops *ops, struct dev *dev)
{
	ops->put(dev, b->device, b->host, b->used);
	return ops->sync(dev);
}

void
device_block_end(struct device_block *b)
{
	free(b->host);
	b->host = NULL;
}

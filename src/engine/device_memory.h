/* device_memory.h - an open device, and memory on it that is reused for one layer after another */
#ifndef KVPIPE_DEVICE_MEMORY_H
#define KVPIPE_DEVICE_MEMORY_H

#include "engine/engine_error.h"
#include "libkvfile/kvfile.h"
#include "ops/ops.h"

struct device {
	const struct ops *ops;
	struct dev *dev;
};

/* Device memory that grows and is used again. All zero: none yet. */
struct area {
	void *at;
	size_t size;
};

/* Returns how much to allocate for `wanted` bytes, which do not fit into `had` (NULL: none yet): an
 * eighth more if it grows, since it may grow with each token, and freeing device memory waits for
 * the device. */
static inline size_t
device_growth(const void *had, size_t wanted)
{
	return had != NULL ? wanted + wanted / 8 : wanted;
}

/* Returns 1 if a device pointer is ordinary memory, so that nothing needs to be copied to it. */
int device_shares_memory(const struct device *d);
/* Waits for the device, and fails if it has failed. */
int device_synced(const struct device *d, struct engine_error *e);
/* Waits for the work before that event, and fails if the device has failed. */
int device_waited(const struct device *d, uint64_t event, struct engine_error *e);

/* Returns room for size bytes, without the old contents; or NULL and ENGINE_ENOROOM, with a message
 * that says how much is free. */
void *area_room(const struct device *d, struct area *a, size_t size, struct engine_error *e);
/* As area_room(), filled with data. */
void *area_upload(const struct device *d, struct area *a, const void *data, size_t size,
    struct engine_error *e);
/* *at <- data for ops to read: data itself (NULL if size is 0) if the device shares memory with the
 * host, else a copy in *a. */
int area_share(const struct device *d, struct area *a, void **at, const void *data, size_t size,
    struct engine_error *e);
/* Returns the positions of all KV heads, packed, in the order of the keys in a section. */
void *area_positions(const struct device *d, struct area *a, const struct kv_rows *rows,
    struct engine_error *e);
void area_release(const struct device *d, struct area *a);

#endif

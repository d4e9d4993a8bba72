/* device_memory.h - an open device, and memory on it that is used for one layer after another */
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

/* How much to ask for, where what there was (NULL: nothing yet) is too small: what grows once may
 * grow with each token, and memory of a device is not given back without a wait. */
static inline size_t
device_growth(const void *had, size_t wanted)
{
	return had != NULL ? wanted + wanted / 8 : wanted;
}

/* 1 when a device pointer is ordinary memory, so that nothing needs to be copied there. */
int device_shares_memory(const struct device *d);
/* Fails with what the device has failed with. */
int device_synced(const struct device *d, struct engine_error *e);
/* Waits for the work before that point of ops.event_record(). */
int device_waited(const struct device *d, uint64_t event, struct engine_error *e);

/* Room for size bytes; what was there is lost. NULL and ENGINE_ENOROOM, which says how much there
 * is. */
void *area_room(const struct device *d, struct area *a, size_t size, struct engine_error *e);
/* The same, filled. */
void *area_upload(const struct device *d, struct area *a, const void *data, size_t size,
    struct engine_error *e);
/* *at <- what ops may read: data itself (NULL of size 0 as well) where the device shares memory
 * with the host, else a copy in *a. */
int area_share(const struct device *d, struct area *a, void **at, const void *data, size_t size,
    struct engine_error *e);
/* The positions of all KV heads, one after another, as their keys lie in a section. */
void *area_positions(const struct device *d, struct area *a, const struct kv_rows *rows,
    struct engine_error *e);
void area_release(const struct device *d, struct area *a);

#endif

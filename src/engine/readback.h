/* readback.h - copies numbers that a device makes for one layer after another to the host
 *
 * The host requests the copy when it has submitted the work that makes them, and goes on; when it
 * needs them, they have usually arrived. So it waits once for many layers instead of once for
 * each. */
#ifndef KVPIPE_READBACK_H
#define KVPIPE_READBACK_H

#include "engine/device_memory.h"

/* The most copies in flight */
enum { READBACK_SLOTS = 16 };

/* The copies from one device. All zero: none yet. */
struct readback {
	struct readback_slot {
		struct area area;       /* device memory of the slot */
		float *host;            /* host_alloc()'s; NULL: none */
		size_t capacity;        /* floats in host */
		int busy;
		const float *from;      /* device: source of the copy */
		uint64_t event;         /* after the copy */
	} slot[READBACK_SLOTS];
};

/* Returns the number of a free slot, or the code of an error. *at <- room for n floats on the
 * device, which belongs to the slot. */
int readback_slot(struct readback *, const struct device *, size_t n, float **at,
    struct engine_error *);
/* Starts the copy of n floats at `from`, in the slot's room or elsewhere on the device, after all
 * work so far. */
int readback_begin(struct readback *, const struct device *, int slot, const float *from, size_t n,
    struct engine_error *);
/* Waits for the copy, and frees the slot. *host <- the floats, valid until the next
 * readback_slot(). */
int readback_end(struct readback *, const struct device *, int slot, const float **host,
    struct engine_error *);
/* Frees all memory. */
void readback_release(struct readback *, const struct device *);

#endif

/* readback.h - numbers that a device makes for one layer after another, on their way to the host
 *
 * The host asks for them as soon as the device has been told to make them, and goes on; when it
 * needs them, they have usually come. So it waits once for many layers instead of once for each. */
#ifndef KVPIPE_READBACK_H
#define KVPIPE_READBACK_H

#include "engine/device_memory.h"

/* So many transfers may be under way at once. */
enum { READBACK_SLOTS = 16 };

/* The transfers to the host from one device. All zero: none yet. */
struct readback {
	struct readback_slot {
		struct area area;       /* device memory of the slot */
		float *host;            /* host_alloc()'s; NULL: none */
		size_t capacity;        /* floats in host */
		int busy;
		const float *from;      /* device: what is read */
		uint64_t event;         /* when it has been read */
	} slot[READBACK_SLOTS];
};

/* The number of a free slot, or the code of an error. *at <- room for n floats on the device, which
 * belongs to the slot. */
int readback_slot(struct readback *, const struct device *, size_t n, float **at,
    struct engine_error *);
/* Asks for the n floats that stand at `from` when all work so far is done: in the slot's room, or
 * elsewhere on the device. */
int readback_begin(struct readback *, const struct device *, int slot, const float *from, size_t n,
    struct engine_error *);
/* Waits for them, and frees the slot. *host <- the floats, valid until the next readback_slot(). */
int readback_end(struct readback *, const struct device *, int slot, const float **host,
    struct engine_error *);
/* Frees all memory. */
void readback_release(struct readback *, const struct device *);

#endif

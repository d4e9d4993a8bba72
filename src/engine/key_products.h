/* key_products.h - dot products of vectors and keys by a device, for cluster_keys() */
#ifndef KVPIPE_KEY_PRODUCTS_H
#define KVPIPE_KEY_PRODUCTS_H

#include "engine/device_memory.h"

/* Used by one thread at a time. The caller sets d, width and type; the rest is zero at first. */
struct key_products {
	struct device d;
	uint32_t width;                 /* E */
	enum kv_row_type type;          /* of the keys */
	struct area x, y, keys;
	/* host: the keys of a call in f32, where they are quantised; so many floats */
	float *wide;
	size_t wide_floats;
	struct engine_error error;      /* of the last key_products_make() that failed */
};

/* Frees the memory that later calls would use again, not the device. */
void key_products_release(struct key_products *p);

/* y[n][rows] <- x[n][E] times keys[rows], rows of the type: the callback of methods/cluster.h.
 * with: a struct key_products. All pointers are host memory. Returns 0; or -1, with the message in
 * error. */
int key_products_make(void *with, float *y, const float *x, uint32_t n, const void *keys,
    uint32_t rows);

#endif

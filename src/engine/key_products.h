/* key_products.h - dot products of vectors and keys by a device: what cluster_keys() asks for */
#ifndef KVPIPE_KEY_PRODUCTS_H
#define KVPIPE_KEY_PRODUCTS_H

#include "engine/device_memory.h"

/* For one thread at a time. The device is the caller's; what is not named is zero at the start. */
struct key_products {
	struct device d;
	uint32_t width;                 /* E */
	enum kv_dtype dtype;            /* of the keys */
	struct area x, y, keys;
	struct engine_error error;      /* of the last key_products_make() that failed */
};

/* The memory, not the device. */
void key_products_release(struct key_products *p);

/* y[n][rows] <- x[n][E] times keys[rows][E], as methods/cluster.h wants it. with: a struct
 * key_products. All pointers are host memory. Returns 0; or -1, and the message is in error. */
int key_products_make(void *with, float *y, const float *x, uint32_t n, const void *keys,
    uint32_t rows);

#endif

/* key_products.h - products of vectors and keys by a device: what cluster_keys() asks for */
#ifndef KVPIPE_KEY_PRODUCTS_H
#define KVPIPE_KEY_PRODUCTS_H

#include "cli/device.h"

/* For one thread at a time. With a device that is there already, the rest zero, it needs no
 * products_open(), and ends with products_release(). */
struct products {
	struct device d;
	uint32_t width;                 /* E */
	enum kv_dtype dtype;            /* of the keys */
	struct area x, y, keys;
};

/* A device of its own with so many threads. Dies. */
void products_open(struct products *p, uint32_t threads, uint32_t width, enum kv_dtype dtype);
void products_close(struct products *p);
void products_release(struct products *p);              /* the memory, not the device */

/* As methods/cluster.h wants it; with: a struct products. All pointers are host memory. Dies when
 * the device fails. */
int products_make(void *with, float *y, const float *x, uint32_t n, const void *keys,
    uint32_t rows);

#endif

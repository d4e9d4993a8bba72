/* indexing.h - contents of index sections, made from the keys of a layer: what kv-index writes
 *
 * As kv-snapshot(5), 4.14 to 4.18, has them, but for the hash of the keys, which only a writer
 * knows. All functions die. */
#ifndef KVPIPE_INDEXING_H
#define KVPIPE_INDEXING_H

#include "libkvfile/kvfile.h"
#include "cli/device.h"

/* A layer to make an index of. */
struct indexing_layer {
	const char *file;               /* for messages */
	uint32_t layer;
	const struct kv_head *head;
	const struct kv_rows *rows;
	const void *keys;               /* host [sum S][E] of head->dtype */
};

struct content {
	uint8_t *data;                  /* malloc(3), the caller's to free */
	size_t size;
};

/* pAGE, by the device. */
struct content pages_content(const struct device *d, const struct indexing_layer *l, uint32_t page);

/* cLUS: each KV head's rows from `sink` on. */
struct clustering_options {
	uint32_t sink;
	uint32_t count;                 /* clusters of each KV head; 0: a cluster for 80 rows */
	uint32_t iterations;
	uint64_t seed;
};
struct content clusters_content(const struct indexing_layer *l,
    const struct clustering_options *opt);
/* Closes the devices that clusters_content() keeps from one layer to the next. */
void clusters_end(void);

/* lOWR. Dies when KV heads hold different rows. */
struct factor_options {
	uint32_t rank, chunk, outliers, local;
};
struct content factors_content(const struct device *d, const struct indexing_layer *l,
    const struct factor_options *opt);

#endif

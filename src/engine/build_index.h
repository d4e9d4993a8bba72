/* build_index.h - makes the indexes of a layer from its keys (kv-snapshot(5), 4.14 to 4.18), for
 * kv-index
 *
 * Each function fills a struct built_index, which the caller frees with built_index_free(), also
 * after a failure. Returns ENGINE_OK, or a code with the message in *e. */
#ifndef KVPIPE_BUILD_INDEX_H
#define KVPIPE_BUILD_INDEX_H

#include "engine/device_memory.h"
#include "libkvfile/codec.h"

/* A layer to make an index of. All members are the caller's. */
struct index_source {
	const char *file;               /* for messages */
	uint32_t layer;
	const struct kv_head *head;
	const struct kv_rows *rows;
	const void *keys;               /* host [sum S] rows, of the type of the layer's keys */
};

struct built_index {
	struct kv_index index;          /* for kv_write_index() */
	void *memory[4];                /* its arrays */
};

void built_index_free(struct built_index *);            /* all zero is allowed */

/* pAGE, by the device: the bounds of pages of `page` rows. */
int build_pages(struct built_index *, const struct device *, const struct index_source *,
    uint32_t page, struct engine_error *e);

/* ---- cLUS: clusters of each KV head's rows from `sink` on ---- */

struct cluster_options {
	uint32_t sink;
	uint32_t count;                 /* clusters of each KV head; 0: one for 80 rows */
	uint32_t iterations;
	uint64_t seed;
};

/* Threads that each cluster a KV head at a time, in one layer after another. */
struct cluster_builder {
	struct cluster_worker *worker;  /* [n] */
	uint32_t n;
};

/* Returns the number of threads to use: at most `threads`, and one for each KV head. */
uint32_t cluster_workers(const struct kv_head *, uint32_t threads);
/* Makes a thread for each of the n devices, n > 0, which the caller opened, and closes after
 * cluster_builder_free(). The index does not depend on n. */
int cluster_builder_init(struct cluster_builder *, const struct device *devices, uint32_t n,
    const struct kv_head *, struct engine_error *e);
void cluster_builder_free(struct cluster_builder *);    /* all zero is allowed */

int build_clusters(struct built_index *, struct cluster_builder *, const struct index_source *,
    const struct cluster_options *, struct engine_error *e);

/* ---- lOWR ---- */

struct low_rank_options {
	uint32_t rank;                  /* greatest rank; less with few rows */
	uint32_t chunk;                 /* rows */
	uint32_t outliers;              /* chunks of each KV head that keep their exact keys */
	uint32_t local;                 /* chunks at the end that are not in the index */
};

/* Fails when KV heads hold different rows. */
int build_low_rank(struct built_index *, const struct device *, const struct index_source *,
    const struct low_rank_options *, struct engine_error *e);

#endif

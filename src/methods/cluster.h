/* cluster.h - clusters of keys by direction, for ClusterKV
 *
 * Liu et al. 2024, "ClusterKV: Manipulating LLM KV Cache in Semantic Space for Recallable
 * Compression", section 3.2. One KV head at a time; no threads, no device. */
#ifndef KVPIPE_CLUSTER_H
#define KVPIPE_CLUSTER_H

#include "libkvfile/rowtype.h"

/* CLUSTER_EKEY: a key that is not finite */
enum { CLUSTER_OK = 0, CLUSTER_ENOMEM = -1, CLUSTER_EKEY = -2, CLUSTER_EDEVICE = -3 };

struct cluster_input {
	const void *keys;       /* [rows] of key_type, after rotary embedding */
	uint32_t rows;
	uint32_t width;         /* E */
	enum kv_row_type key_type; /* never 0 */
	enum kv_dtype dtype;    /* of means */
	uint32_t clusters;      /* wanted, 1 .. rows */
	uint32_t iterations;    /* at most */
	uint64_t seed;          /* of the first choice of clusters */
	/* y[n][rows] <- the dot products of x[n][E] and keys[rows] of key_type, summed in f32.
	 * Returns 0, or -1. NULL: slow loops. with: its first argument */
	int (*products)(void *with, float *y, const float *x, uint32_t n, const void *keys,
	    uint32_t rows);
	void *with;
};

/* label[rows] <- the cluster of each key, below *n; mean[in->clusters][E] of dtype, first *n <-
 * the mean key of each cluster; *n <- the number of clusters: as many as wanted, unless the
 * keys have fewer directions. No cluster is empty. Returns CLUSTER_OK or CLUSTER_E*; for
 * CLUSTER_EKEY *n is the row. */
int cluster_keys(const struct cluster_input *in, uint32_t *label, void *mean, uint32_t *n);

/* Returns the seed for one KV head of one layer, rows from `first` on. */
uint64_t cluster_seed(uint64_t seed, uint32_t layer, uint32_t head, uint32_t first);

#endif

/* lowrank.h - keys before rotary embedding as a product of two factors, and what stands for a chunk
 * of them: the host's part of ShadowKV
 *
 * Sun et al. 2024, "ShadowKV: KV Cache in Shadows for High-Throughput Long-Context LLM Inference",
 * sections 3 and 4. */
#ifndef KVPIPE_LOWRANK_H
#define KVPIPE_LOWRANK_H

#include "libkvfile/dtype.h"

/* LOW_RANK_EKEY: keys that are not finite */
enum { LOW_RANK_OK = 0, LOW_RANK_ENOMEM = -1, LOW_RANK_EKEY = -2 };

/* right[n][r] <- in its columns the r directions along which rows are longest, the longest first:
 * the eigenvectors of gram[n][n] (X^T X of the rows X; its upper triangle is read, all of it
 * overwritten) with the greatest eigenvalues, of length 1. X right right^T is the best of rank r.
 * In each column the element that is greatest in size, of equal ones the first, is positive.
 * Returns LOW_RANK_*. */
int low_rank_directions(float *right, double *gram, uint32_t n, uint32_t r);

/* mean[chunks][E] of dtype <- the mean of each chunk of keys[chunks * chunk][E] of dtype;
 * exact[x] <- the x chunks, ascending, that their mean stands for worst: those with the smallest
 * least cosine between a key and the mean (as it is stored); of equal ones, in f32, the lower. A
 * key or a mean of length 0 has cosine 0. Returns LOW_RANK_*. */
int low_rank_landmarks(void *mean, uint32_t *exact, uint32_t x, const void *keys, uint32_t chunks,
    uint32_t chunk, uint32_t E, enum kv_dtype dtype);

#endif

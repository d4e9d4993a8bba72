/* lowrank.h - low-rank factors of keys before rotary embedding, and landmarks of their chunks: the
 * host's part of ShadowKV
 *
 * Sun et al. 2024, "ShadowKV: KV Cache in Shadows for High-Throughput Long-Context LLM
 * Inference", sections 3 and 4. */
#ifndef KVPIPE_LOWRANK_H
#define KVPIPE_LOWRANK_H

#include "libkvfile/dtype.h"

/* LOW_RANK_EKEY: keys that are not finite */
enum { LOW_RANK_OK = 0, LOW_RANK_ENOMEM = -1, LOW_RANK_EKEY = -2 };

/* right[n][r] <- in its columns the eigenvectors, of length 1, of the r greatest eigenvalues of
 * gram[n][n], in descending order. gram is X^T X of the rows X, so that X right right^T is the
 * best approximation of rank r. Reads the upper triangle of gram and overwrites all of it. In
 * each column the element with the greatest absolute value (of equal ones the first) is
 * positive. Returns LOW_RANK_*. */
int low_rank_directions(float *right, double *gram, uint32_t n, uint32_t r);

/* mean[chunks][E] of dtype <- the mean of each chunk of keys[chunks * chunk][E] of dtype;
 * exact[x] <- the x chunks, ascending, that their mean represents worst: those in which the
 * least cosine between a key and the mean (as stored) is smallest; of equal ones, in f32, the
 * lower chunk. A key or a mean of length 0 has cosine 0. Returns LOW_RANK_*. */
int low_rank_landmarks(void *mean, uint32_t *exact, uint32_t x, const void *keys, uint32_t chunks,
    uint32_t chunk, uint32_t E, enum kv_dtype dtype);

#endif

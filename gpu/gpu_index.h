/* gpu_index.h - what gpu_index.cu and gpu_bits.cu share: where entries stand, and a row's scores
 * from its key, without haste */
#ifndef GPU_INDEX_H
#define GPU_INDEX_H

#include "gpu/gpu_internal.h"

/* The entries of a layer as a kernel's argument */
struct index {
	unsigned char *data;
	size_t bytes;                /* of one entry */
	uint32_t G, E, rows;         /* rows: of one entry */
	uint64_t start[MAX_HEADS];
	uint32_t done[MAX_HEADS];    /* entries that are there; packing makes the others */
	uint32_t len[MAX_HEADS];
};

/* Fills x with the entries that are there; 0 after a failure, or when their number of heads is
 * none, or too great, or H is no multiple of it. */
int gpu_index_of(struct dev *, struct index *x, const struct entries *, uint32_t H);

/* Whether they are keys in one bit of such rows. Returns 0 after remembering a failure. */
int gpu_bits_fit(struct dev *, const struct entries *, const struct layer_rows *);

static inline uint32_t
greatest(const uint32_t *n, uint32_t G)
{
	uint32_t g, most = 0;

	for (g = 0; g < G; g++)
		most = n[g] > most ? n[g] : most;
	return most;
}

DEVICE unsigned char *
entry_at(const struct index &x, uint32_t g, uint32_t i)
{
	return x.data + (x.start[g] + i) * x.bytes;
}

/* score[R] (stride apart) of one key, by a warp: lanes stand along the channels. */
template <class T>
DEVICE void
score_key(float *score, size_t stride, const float *q, uint32_t R, const T *key, uint32_t E,
    float scale)
{
	for (uint32_t h = 0; h < R; h++, q += E) {
		float sum = 0;

		for (uint32_t e = threadIdx.x % 32; e < E; e += 32)
			sum += q[e] * widen(key[e]);
		sum = warp_sum(sum);
		if (threadIdx.x % 32 == 0)
			score[h * stride] = sum * scale;
	}
}

#endif

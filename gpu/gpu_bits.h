/* gpu_bits.h - what the files of scores from one-bit keys share: a call, and rows without an
 * entry */
#ifndef GPU_BITS_H
#define GPU_BITS_H

#include "gpu/gpu_index.h"

static constexpr uint32_t
	THREADS = 128,
	WARPS = THREADS / 32,
	TILE = 128,                  /* rows that a warp scores at a time */
	REST = 4;                    /* rows without an entry that a warp scores */

/* One call of a fast kernel */
struct bits_call {
	float *score;
	size_t stride;
	const float *q;
	uint32_t R;                  /* query heads of a KV head */
	uint32_t groups;             /* bits_scores() splits them over so many blockIdx.y */
	uint32_t blocks;             /* blockIdx.x for entries; those behind do the other rows */
	enum kv_dtype dtype;         /* of keys */
	int wide;                    /* lists of scores are aligned to 16 bytes */
	float scale;                 /* 1 / sqrt(E) */
};

/* Scores REST rows of each warp with their keys. */
DEVICE void
score_rest(float *score, const float *q, uint32_t heads, const struct bits_call &call,
    const struct rows &r, uint32_t len, uint32_t g, size_t first)
{
	for (size_t i = first; i < first + REST && i < len; i++) {
		const size_t at = (r.start[g] + i) * r.E;

		if (call.dtype == KV_F32)
			score_key(score + i, call.stride, q, heads, (const float *)r.k + at, r.E,
			    call.scale);
		else if (call.dtype == KV_F16)
			score_key(score + i, call.stride, q, heads, (const f16 *)r.k + at, r.E,
			    call.scale);
		else
			score_key(score + i, call.stride, q, heads, (const bf16 *)r.k + at, r.E,
			    call.scale);
	}
}

/* gpu_bits_lines.cu: one launch. Returns 0, and has launched nothing, where it does not take the
 * shape, or gains nothing. entries, rest: the most of a KV head */
int gpu_bits_by_lines(struct dev *, struct bits_call &, const struct index &, const struct rows &,
    uint32_t entries, uint32_t rest);

#endif

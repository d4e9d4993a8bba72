/* gpu_quantised_warp.h - tiles of rows of quantised types as a warp reads them, with the mapping of
 * gpu_decode_warp.h: a lane has a piece of a row, and ends up with one logit */
#ifndef GPU_QUANTISED_WARP_H
#define GPU_QUANTISED_WARP_H

#include "gpu/gpu_decode_warp.h"
#include "gpu/gpu_quantised.h"

/* A tensor as a lane reads it */
struct tensor_piece {
	const unsigned char *rows;   /* of all KV heads; NULL: nothing is read */
	size_t first;                /* row 0 of the KV head; rows in slots may begin below 0 */
	struct row_format format;
	uint32_t piece;
};

template <class W>
DEVICE struct tensor_piece
piece_of(const void *tensor, const struct row_format &f, const struct rows &c, uint32_t g,
    uint32_t piece)
{
	const bool there = tensor != NULL && piece * 8 < c.E;

	return { there ? (const unsigned char *)tensor : NULL, c.start[g] * f.bytes, f, piece };
}

/* raw[STEPS] <- this lane's pieces of these rows; zeros of those that do not exist */
template <class W>
DEVICE void
load_pieces(struct raw_piece raw[W::STEPS], const struct tensor_piece &t,
    const uint32_t row[W::STEPS])
{
	with_piece_type(t.format.type, [&](auto type) {
UNROLL		for (int u = 0; u < W::STEPS; u++) {
			raw[u] = {};
			if (t.rows != NULL && row[u] != NO_ROW)
				raw[u] = load_raw<type.value>(t.rows + (t.first + (size_t)row[u] *
				    t.format.bytes), t.piece);
		}
	});
}

/* As logit() of gpu_decode_warp.h, of the keys in raw[] */
template <int L, int M>
DEVICE float
raw_logit(const struct softmax_state<bf16, L, M> &r, const struct raw_piece *raw, uint32_t type)
{
	using W = tile<bf16, L, M>;
	float x[L];

	with_piece_type(type, [&](auto t) {
UNROLL		for (int u = 0; u < W::STEPS; u++) {
			float key[8];

			widen_raw<t.value>(key, raw[u]);
UNROLL			for (int m = 0; m < M; m++) {
				float sum = 0;

UNROLL				for (int e = 0; e < 8; e++)
					sum = fmaf(r.query[m][e], key[e], sum);
				x[u * M + m] = sum;
			}
		}
	});
	return sum_over_lanes<L>(x);
}

/* query[8] <- those channels of a query that this lane's pieces of keys have, scaled; q NULL:
 * zeros */
DEVICE void
load_piece_of_query(float query[8], const float *q, const struct tensor_piece &k, float scale)
{
UNROLL	for (int upper = 0; upper < 2; upper++) {
		const float4 x = q != NULL && k.rows != NULL ?
		    *(const float4 *)(q + half_piece(k.format.type, k.piece, upper)) :
		    float4{ 0, 0, 0, 0 };

		query[4 * upper] = x.x * scale;
		query[4 * upper + 1] = x.y * scale;
		query[4 * upper + 2] = x.z * scale;
		query[4 * upper + 3] = x.w * scale;
	}
}

#endif

/* gpu_index.h - what the files of retrieval share: entries as a kernel's argument, the naive
 * score of a key, and queries as operands of tensor cores; gpu_decode_mma.h takes power_for() */
#ifndef GPU_INDEX_H
#define GPU_INDEX_H

#include "gpu/gpu_internal.h"

/* The entries of a layer as a kernel's argument */
struct index {
	unsigned char *data;
	size_t bytes;                /* of one entry */
	uint32_t G, E, rows;         /* rows: of one entry */
	uint64_t start[MAX_HEADS];
	uint32_t done[MAX_HEADS];    /* entries that exist; packing adds those up to len */
	uint32_t len[MAX_HEADS];
};

/* Fills x with the existing entries. Returns 0 after a failure, also when the number of KV
 * heads is 0 or too great, or H is not a multiple of it. An index of rows that are appended
 * to has more entries then: existing_entries(). */
int gpu_index_of(struct dev *, struct index *x, const struct entries *, uint32_t H);

/* Checks that these are one-bit keys of such rows. Returns 0 after remembering a failure. */
int gpu_bits_fit(struct dev *, const struct entries *, const struct layer_rows *);

static inline uint32_t
longest_list(const uint32_t *n, uint32_t G)
{
	uint32_t g, most = 0;

	for (g = 0; g < G; g++)
		most = n[g] > most ? n[g] : most;
	return most;
}

/* gpu_scores.cu: softcaps score[h * stride + i], i < n.n[h / R], if the query asks for it.
 * This is a kernel of its own, and those that compute scores are the same for all models. */
void gpu_cap_scores(struct dev *, float *score, size_t stride, const struct query *,
    struct counts n, uint32_t G);

DEVICE unsigned char *
entry_at(const struct index &x, uint32_t g, uint32_t i)
{
	return x.data + (x.start[g] + i) * x.bytes;
}

/* The entries of KV head g of an index of these rows, to which so many have been appended:
 * those that x has, and those that were completed since, if all that were whole had one. */
DEVICE uint32_t
existing_entries(const struct index &x, const struct rows &r, uint32_t g, uint32_t appended)
{
	return appended == 0 ? x.len[g] : (r.len[g] + appended) / x.rows;
}

/* ---- building entries ---- */

/* The entries of a KV head that a call builds */
struct to_pack {
	uint32_t first, end;
};

/* All that are missing; of a launch of a graph that appends a row, the one that this row
 * completes: those before it are there. */
DEVICE struct to_pack
entries_to_pack(const struct index &x, const struct rows &from, uint32_t g)
{
	const uint32_t appended = appended_rows(from), len = from.len[g] + appended;

	if (appended == 0)
		return { x.done[g], x.len[g] };
	return { (len - 1) / x.rows, len / x.rows };
}

/* v rounded to f16 and clamped to +-65504. Zeros are positive; a NaN, the scale of keys that
 * are all the same infinity, becomes 0. */
DEVICE f16
to_half(float v)
{
	if (!(fabsf(v) > 0x1p-25f))
		return { 0 };
	return narrow<f16>(fmaxf(-65504, fminf(65504, v)));
}

/* Is a key above the middle of its range? Doubling the distance to the minimum is exact,
 * halving the scale may not be. */
DEVICE bool
above(float key, float least, float scale)
{
	const float d = __fsub_rn(key, least);

	return __fadd_rn(d, d) > scale;
}

template <class T> DEVICE T not_a_number(void);
template <> __device__ __forceinline__ float
not_a_number<float>(void)
{
	return __uint_as_float(0x7fc00000);
}
template <> __device__ __forceinline__ f16
not_a_number<f16>(void)
{
	return { 0x7e00 };
}
template <> __device__ __forceinline__ bf16
not_a_number<bf16>(void)
{
	return { 0x7fc0 };
}

/* A bound of a page; adding 0 turns -0 into 0. */
template <class T>
DEVICE T
bound(float v, bool none)
{
	return none ? not_a_number<T>() : narrow<T>(v + 0.0f);
}

/* ---- scores ---- */

DEVICE uint32_t
at_most(size_t n, uint32_t most)
{
	return n < most ? (uint32_t)n : most;
}

/* score[R] (stride apart) <- the logits of one key, by a warp: lanes are along the channels. */
template <class T>
DEVICE void
score_key(float *score, size_t stride, const float *q, uint32_t R, const T *key, uint32_t E,
    float scale)
{
	for (uint32_t h = 0; h < R; h += 4, q += 4 * E) {
		float sum[4] = {};

		for (uint32_t e = threadIdx.x % 32; e < E; e += 32) {
			const float k = widen(key[e]);

UNROLL			for (uint32_t i = 0; i < 4; i++)
				sum[i] += h + i < R ? q[i * E + e] * k : 0;
		}
UNROLL		for (uint32_t i = 0; i < 4; i++) {
			sum[i] = warp_sum(sum[i]);
			if (threadIdx.x % 32 == i && h + i < R)
				score[(h + i) * stride] = sum[i] * scale;
		}
	}
}

/* ---- query heads as the b operand of mma, in split precision ----
 *
 * An f32 query is split into 16-bit parts of 11 bits (f16) or 8 (bf16), each the remainder of
 * those before. Neighbouring columns have two parts of a head, so that 8 columns are a *set*
 * of 4 heads, and the sum of the two columns, which one lane has, is the head's score. Two
 * parts make a *layer*; f16 needs one layer for 22 bits, bf16 has two. */

static constexpr uint32_t SET = 4;

/* The exponent that scales m, the greatest magnitude, to 1 .. 2 */
DEVICE int
power_for(float m)
{
	const int exponent = (int)(__float_as_uint(m) >> 23);

	return 127 - (exponent > 1 ? exponent : 1);
}

/* Splits four channels of a head: to[0], to[4] <- the two parts of a layer; the next layer is
 * at +32. */
template <class T, uint32_t LAYERS>
DEVICE void
split_query(uint2 *to, const float x[4])
{
	float rest[4] = { x[0], x[1], x[2], x[3] };

UNROLL	for (uint32_t part = 0; part < 2 * LAYERS; part++) {
		float now[4];

UNROLL		for (int i = 0; i < 4; i++) {
			now[i] = widen(narrow<T>(rest[i]));
			rest[i] -= now[i];
		}
		to[part / 2 * 32 + part % 2 * 4] =
		    make_uint2(pair<T>(now[0], now[1]), pair<T>(now[2], now[3]));
	}
}

/* to[steps][SETS][LAYERS][32 lanes] <- q[heads][E] as b fragments; by all warps of the block,
 * a barrier must follow. power[SETS * SET] <- the exponent of the scale of each head. Step k
 * of lane 4n + c has four channels of column n: those of quad 4k + c or, where lanes load two
 * quads at a time (QUADS 2), of quad 8(k/2) + 2c + k%2; zeros behind the last. PAGES: there
 * are 2E channels, min(q, 0) and then max(q, 0). */
template <class T, uint32_t SETS, uint32_t LAYERS, uint32_t QUADS, bool PAGES>
DEVICE void
make_queries(uint2 *to, int *power, const float *q, uint32_t heads, uint32_t E, uint32_t steps,
    uint32_t warps)
{
	constexpr uint32_t STEP = SETS * LAYERS * 32;
	const uint32_t lane = threadIdx.x % 32;

	for (uint32_t h = threadIdx.x / 32; h < SETS * SET; h += warps) {
		uint2 *const column = to + h / SET * LAYERS * 32 + h % SET * 8;
		const float *row = q + (size_t)h * E;
		const uint32_t there = h >= heads ? 0 : PAGES ? 2 * E : E;
		float most = 0;

		for (uint32_t e = lane; e < E && h < heads; e += 32)
			most = fmaxf(most, fabsf(row[e]));
		const int p = power_for(warp_max(most));
		if (lane == 0)
			power[h] = p;
		for (uint32_t i = lane; i < 4 * steps; i += 32) {
			const uint32_t k = i / 4, c = i % 4;
			const uint32_t quad = QUADS == 1 ? i : k / 2 * 8 + 2 * c + k % 2;
			float x[4];

UNROLL			for (uint32_t j = 0; j < 4; j++) {
				const uint32_t e = 4 * quad + j;

				x[j] = e < there ? scalbnf(row[PAGES && e >= E ? e - E : e], p) : 0;
				if (PAGES)
					x[j] = e < E ? fminf(x[j], 0) : fmaxf(x[j], 0);
			}
			split_query<T, LAYERS>(column + k * STEP + c, x);
		}
	}
}

/* The bytes that make_queries() writes */
static inline __host__ __device__ uint32_t
query_bytes(uint32_t steps, uint32_t sets, uint32_t layers)
{
	return steps * sets * layers * 32 * (uint32_t)sizeof(uint2);
}

/* Blocks for each of n lists, the longest of which is work for `all` blocks: as many as are
 * resident at a time, with `resident` on an SM, or up to four times as many, for balance
 * where lists differ in length. */
static inline uint32_t
blocks_per_list(const struct dev *d, uint32_t all, uint32_t n, uint32_t resident)
{
	const uint32_t turns = parts_of((size_t)all * n, (size_t)d->sms * resident);

	return all == 0 ? 0 : parts_of(all, turns < 4 ? turns : 4);
}

#endif

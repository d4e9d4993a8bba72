/* gpu_decode_warp.h - how a warp of gpu_decode.cu goes through rows, tile by tile
 *
 * A lane has 16 bytes of a row: it copies them to shared memory, some tiles ahead, and reads
 * back what it copied itself, so that tiles need no barriers, and what is on its way needs no
 * registers. */
#ifndef GPU_DECODE_WARP_H
#define GPU_DECODE_WARP_H

#include "gpu/gpu_internal.h"

constexpr uint32_t WARPS = 4;            /* of a block; each takes every fourth tile */

/* ---- tiles ---- */

/* How a warp reads a tile: L lanes for a row (those that the row does not need have zeros), and
 * as many rows that there is one logit for each lane. Lane s * L + c has piece c of the rows
 * s, s + SIDES, ... of the tile, and the logit of query row c % M with row c / M * SIDES + s. */
template <class T, int L, int M>
struct tile {
	static constexpr int EACH = 16 / sizeof(T);      /* elements of a lane's piece */
	static constexpr int SIDES = 32 / L;             /* rows side by side */
	static constexpr int STEPS = L / M;              /* pieces of a lane */
	static constexpr int ROWS = SIDES * STEPS;
	/* Keys or values of a tile each: one is being used, the others are under way. */
	static constexpr int SLOTS = STEPS >= 4 ? 4 : 16 / STEPS;
	static constexpr size_t RING = (size_t)SLOTS * STEPS * 32;       /* pieces */
};

/* Rows [first, end) of the list of KV head g, as a lane sees them */
struct way {
	uint32_t g, first, end;
	uint32_t next;           /* one row of the tile that is asked for next */
	uint32_t entry, later;   /* where that is; and for the tile after it */
	const char *k, *v;       /* this lane's piece of row 0; NULL: it has none */
	size_t bytes;            /* of a row */
};

DEVICE uint32_t
entry_of(const struct way &way, const struct row_list &list, uint32_t i)
{
	return list.at != NULL && i < way.end ? list.at[way.g * list.stride + i / list.rows] : 0;
}

/* row[] <- this lane's rows of the next tile. Each of the first lanes knows of one row. */
template <class W>
DEVICE void
next_rows(uint32_t row[W::STEPS], struct way &way, const struct row_list &list)
{
	const uint32_t side = threadIdx.x % 32 / (32 / W::SIDES);
	uint32_t mine = way.next;

	if (list.at != NULL)
		mine = way.entry * list.rows + way.next % list.rows;
	if (way.next >= way.end)
		mine = NO_ROW;
	way.next += WARPS * W::ROWS;
	way.entry = way.later;
	way.later = entry_of(way, list, way.next + WARPS * W::ROWS);
UNROLL	for (int u = 0; u < W::STEPS; u++)
		row[u] = __shfl_sync(ALL_LANES, mine, u * W::SIDES + side);
}

/* Copies this lane's pieces of those rows to a slot of the ring, later. */
template <class W>
DEVICE void
ask(uint4 *ring, uint32_t piece, const char *from, const uint32_t row[W::STEPS], size_t bytes)
{
	uint4 *to = ring + piece % W::SLOTS * W::STEPS * 32;

UNROLL	for (int u = 0; u < W::STEPS; u++)
		cp_async16(to + u * 32, from + row[u] * bytes, from != NULL && row[u] != NO_ROW);
	cp_async_commit();
}

template <class T>
DEVICE void
widen_piece(float x[16 / sizeof(T)], const uint4 &piece)
{
	const uint32_t word[4] = { piece.x, piece.y, piece.z, piece.w };

UNROLL	for (int i = 0; i < 4; i++)
		if constexpr (sizeof(T) == 4) {
			x[i] = __uint_as_float(word[i]);
		} else {
			x[2 * i] = widen(T{ (uint16_t)word[i] });
			x[2 * i + 1] = widen(T{ (uint16_t)(word[i] >> 16) });
		}
}

/* ---- the arithmetic of a tile ---- */

/* Of this lane: channels of its piece for each query row; maximum of the logits of query row
 * lane % M so far, in the whole warp, and the sum of this lane's own weights */
template <class T, int L, int M>
struct running {
	float query[M][tile<T, L, M>::EACH], out[M][tile<T, L, M>::EACH];
	float top, sum;
};

/* Value i of each of L lanes is added up in lane i: half of the values go to the lanes that keep
 * them, half of those that are left .. */
template <int L>
DEVICE float
sum_over_lanes(float x[L])
{
	const bool upper = threadIdx.x & L / 2;

	if constexpr (L > 1) {
UNROLL		for (int i = 0; i < L / 2; i++) {
			const float give = upper ? x[i] : x[i + L / 2];
			const float keep = upper ? x[i + L / 2] : x[i];

			x[i] = keep + __shfl_xor_sync(ALL_LANES, give, L / 2);
		}
		return sum_over_lanes<L / 2>(x);
	}
	return x[0];
}

/* This lane's logit */
template <class T, int L, int M>
DEVICE float
logit(const struct running<T, L, M> &r, const uint4 *slot)
{
	using W = tile<T, L, M>;
	float x[L], key[W::EACH];

UNROLL	for (int u = 0; u < W::STEPS; u++) {
		widen_piece<T>(key, slot[u * 32]);
UNROLL		for (int m = 0; m < M; m++) {
			float sum = 0;

UNROLL			for (int e = 0; e < W::EACH; e++)
				sum = fmaf(r.query[m][e], key[e], sum);
			x[u * M + m] = sum;
		}
	}
	return sum_over_lanes<L>(x);
}

/* The weight 2^(s - maximum) of this lane's logit. When a maximum has appended, what there is is
 * scaled; after the first tiles that is rare. */
template <class T, int L, int M>
DEVICE float
weight(struct running<T, L, M> &r, float s)
{
	float top = s, p;

UNROLL	for (int bit = M; bit < 32; bit *= 2)
		top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, bit));
	top = fmaxf(top, r.top);
	if (__any_sync(ALL_LANES, top > r.top)) {
		const float less = top == -INFINITY ? 1 : exp2_fast(r.top - top);

		r.sum *= less;
UNROLL		for (int m = 0; m < M; m++) {
			const float of_m = __shfl_sync(ALL_LANES, less, m);

UNROLL			for (int e = 0; e < tile<T, L, M>::EACH; e++)
				r.out[m][e] *= of_m;
		}
		r.top = top;
	}
	p = s == -INFINITY ? 0 : exp2_fast(s - r.top);
	r.sum += p;
	return p;
}

/* p: the weight of this lane's logit */
template <class T, int L, int M>
DEVICE void
add_values(struct running<T, L, M> &r, const uint4 *slot, float p)
{
	using W = tile<T, L, M>;
	float value[W::EACH];

UNROLL	for (int u = 0; u < W::STEPS; u++) {
		widen_piece<T>(value, slot[u * 32]);
UNROLL		for (int m = 0; m < M; m++) {
			const float of_m = __shfl_sync(ALL_LANES, p, u * M + m, L);

UNROLL			for (int e = 0; e < W::EACH; e++)
				r.out[m][e] = fmaf(of_m, value[e], r.out[m][e]);
		}
	}
}

/* ---- all tiles of a warp ---- */

/* Asks for the first tiles of this warp, so that there is nothing but one piece to ask for in
 * each step of read_rows(). row[] is then that of the last of them. */
template <class W>
DEVICE void
start(uint32_t row[W::STEPS], uint4 *ring, struct way &way, const struct row_list &list)
{
	way.next = way.first + threadIdx.x / 32 * W::ROWS + threadIdx.x % W::ROWS;
	way.entry = entry_of(way, list, way.next);
	way.later = entry_of(way, list, way.next + WARPS * W::ROWS);
	for (uint32_t piece = 0; piece < W::SLOTS; piece += 2) {
		next_rows<W>(row, way, list);
		ask<W>(ring, piece, way.k, row, way.bytes);
		if (piece + 2 < W::SLOTS)
			ask<W>(ring, piece + 1, way.v, row, way.bytes);
	}
}

/* This warp's tiles. pos NULL: all rows are seen; else those whose position is not greater than
 * limit. */
template <class T, int L, int M>
DEVICE void
read_rows(struct running<T, L, M> &r, uint32_t row[tile<T, L, M>::STEPS], uint4 *ring,
    struct way &way, const struct row_list &list, const uint32_t *pos, uint32_t limit)
{
	using W = tile<T, L, M>;
	const uint32_t c = threadIdx.x % L, side = threadIdx.x % 32 / L;
	uint32_t at = way.first + threadIdx.x / 32 * W::ROWS;

	for (uint32_t piece = 0; at < way.end; piece += 2, at += WARPS * W::ROWS) {
		const uint32_t mine = at + c / M * W::SIDES + side;
		const bool seen = mine < way.end && (pos == NULL || pos[mine] <= limit);
		float s, p;

		cp_async_wait<W::SLOTS - 2>();
		ask<W>(ring, piece + W::SLOTS - 1, way.v, row, way.bytes);
		s = logit(r, ring + piece % W::SLOTS * W::STEPS * 32);
		p = weight(r, seen ? s : -INFINITY);
		next_rows<W>(row, way, list);
		cp_async_wait<W::SLOTS - 2>();
		ask<W>(ring, piece + W::SLOTS, way.k, row, way.bytes);
		add_values(r, ring + (piece + 1) % W::SLOTS * W::STEPS * 32, p);
	}
	cp_async_wait<0>();
}

#endif

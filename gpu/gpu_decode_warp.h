/* gpu_decode_warp.h - the main loop of a warp of gpu_decode.cu: cp.async pipeline and online
 * softmax
 *
 * A lane has 16 bytes of a row. It copies them to shared memory by cp.async, some tiles
 * ahead, and reads back only what it copied itself: so tiles need no barriers, and loads in
 * flight no registers. */
#ifndef GPU_DECODE_WARP_H
#define GPU_DECODE_WARP_H

#include "gpu/gpu_internal.h"

constexpr uint32_t WARPS = 4;            /* of a block; each takes every fourth tile */

/* The results of the warps of a block for M query rows, in shared memory, where the ring was */
template <int M, int WIDTH>
struct warp_sums {
	float top[WARPS][M], sum[WARPS][M], out[WARPS][M][WIDTH];
};

/* ---- tiles ---- */

template <class T, int L, int QUERIES> struct softmax_state;

/* How a warp maps to a tile of rows: L lanes for a row (superfluous ones have zeros), M query
 * rows, and as many rows that each lane ends up with one logit. Lane s * L + c has piece c of
 * the rows s, s + SIDES, ... of the tile, and the logit of query row c % M with row c / M *
 * SIDES + s. */
template <class T, int L, int QUERIES>
struct tile {
	using state = softmax_state<T, L, QUERIES>;
	using sums = warp_sums<QUERIES, L * 16 / sizeof(T)>;
	static constexpr int M = QUERIES;
	static constexpr size_t ELEMENT = sizeof(T);
	static constexpr int EACH = 16 / sizeof(T);      /* elements of a lane's piece */
	static constexpr int SIDES = 32 / L;             /* rows that a load covers */
	static constexpr int STEPS = L / M;              /* pieces of a lane */
	static constexpr int ROWS = SIDES * STEPS;
	/* Ring slots, each with the keys or the values of a tile: one in use, the others in
	 * flight */
	static constexpr int SLOTS = STEPS >= 4 ? 4 : 16 / STEPS;
	static constexpr size_t RING = (size_t)SLOTS * STEPS * 32;       /* pieces */

	/* The query row whose logit a lane has; its piece of a row */
	DEVICE uint32_t query_of(uint32_t lane) { return lane % M; }
	DEVICE uint32_t key_piece(uint32_t lane) { return lane % L; }
	DEVICE uint32_t value_piece(uint32_t lane) { return lane % L; }
};

/* Online softmax, this lane's part: query and output channels of its piece for each query
 * row; for query row lane % M the maximum logit so far over the warp, and the sum of this
 * lane's own weights */
template <class T, int L, int M>
struct softmax_state {
	uint32_t row[tile<T, L, M>::STEPS];      /* this lane's of the tile that is loaded next */
	float query[M][tile<T, L, M>::EACH], out[M][tile<T, L, M>::EACH];
	float top, sum;
};

/* A lane's position in the rows [first, end) of the list of KV head g */
struct cursor {
	uint32_t g, first, end;
	uint32_t next;           /* a row of the tile that is loaded next, as index into the list */
	uint32_t entry, later;   /* its entry; that of the same row of the tile after it */
	const char *k, *v;       /* this lane's piece of row 0; NULL: it has none */
	size_t bytes;            /* of a row */
};

DEVICE uint32_t
entry_of(const struct cursor &cursor, const struct row_list &list, uint32_t i)
{
	return list.at != NULL && i < cursor.end ?
	    list.at[cursor.g * list.stride + entry_number(list, i)] : 0;
}

/* Returns the row of the next tile that this lane knows: one for each of the first lanes. */
template <class W>
DEVICE uint32_t
next_row(struct cursor &cursor, const struct row_list &list)
{
	uint32_t mine = cursor.next;

	if (list.at != NULL)
		mine += (cursor.entry - entry_number(list, mine)) * list.rows;
	if (cursor.next >= cursor.end)
		mine = NO_ROW;
	cursor.next += WARPS * W::ROWS;
	cursor.entry = cursor.later;
	cursor.later = entry_of(cursor, list, cursor.next + WARPS * W::ROWS);
	return mine;
}

/* r.row <- this lane's rows of the next tile; shuffles distribute them. */
template <class T, int L, int M>
DEVICE void
next_rows(struct softmax_state<T, L, M> &r, struct cursor &cursor, const struct row_list &list)
{
	using W = tile<T, L, M>;
	const uint32_t side = threadIdx.x % 32 / (32 / W::SIDES);
	const uint32_t mine = next_row<W>(cursor, list);

UNROLL	for (int u = 0; u < W::STEPS; u++)
		r.row[u] = __shfl_sync(ALL_LANES, mine, u * W::SIDES + side);
}

/* Starts the copy of this lane's pieces of those rows to a slot of the ring. Addresses are
 * computed as integers: from may be NULL and a row NO_ROW, and then the piece is not read. */
template <class W>
DEVICE void
load_piece(uint4 *ring, uint32_t piece, const char *from, const uint32_t row[W::STEPS],
    size_t bytes)
{
	uint4 *to = ring + piece % W::SLOTS * W::STEPS * 32 + threadIdx.x % 32;

UNROLL	for (int u = 0; u < W::STEPS; u++)
		cp_async16(to + u * 32, (const void *)((uintptr_t)from + row[u] * bytes),
		    from != NULL && row[u] != NO_ROW);
	cp_async_commit();
}

template <class T, int L, int M>
DEVICE void
load_keys(const struct softmax_state<T, L, M> &r, uint4 *ring, uint32_t piece,
    const struct cursor &cursor)
{
	load_piece<tile<T, L, M>>(ring, piece, cursor.k, r.row, cursor.bytes);
}

template <class T, int L, int M>
DEVICE void
load_values(const struct softmax_state<T, L, M> &r, uint4 *ring, uint32_t piece,
    const struct cursor &cursor)
{
	load_piece<tile<T, L, M>>(ring, piece, cursor.v, r.row, cursor.bytes);
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

/* Transposing reduction: lane i returns the sum over L lanes of x[i]. In each step a lane
 * gives away half of its values. */
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

/* This lane's logit: dot products of its pieces, reduced over the lanes of a row */
template <class T, int L, int M>
DEVICE float
logit(const struct softmax_state<T, L, M> &r, const uint4 *slot)
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

/* One step of the online softmax: returns the weight 2^(s - maximum) of this lane's logit.
 * Where the maximum grows, sums and outputs are rescaled; after the first tiles that is rare. */
template <class T, int L, int M>
DEVICE float
softmax_step(struct softmax_state<T, L, M> &r, float s)
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

/* out += weights . values of a tile; p is the weight of this lane's logit. */
template <class T, int L, int M>
DEVICE void
add_values(struct softmax_state<T, L, M> &r, const uint4 *slot, float p)
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

/* ---- the pipeline ---- */

/* The cursor <- this warp's first tile */
template <class W>
DEVICE void
begin_rows(struct cursor &cursor, const struct row_list &list)
{
	cursor.next = cursor.first + threadIdx.x / 32 * W::ROWS + threadIdx.x % W::ROWS;
	cursor.entry = entry_of(cursor, list, cursor.next);
	cursor.later = entry_of(cursor, list, cursor.next + WARPS * W::ROWS);
}

/* Prologue: starts the loads of this warp's first tiles, so that each step of for_row_tiles()
 * has one load to start. r.row is that of the last of them then. */
template <class T, int L, int M>
DEVICE void
prologue(struct softmax_state<T, L, M> &r, uint4 *ring, struct cursor &cursor,
    const struct row_list &list)
{
	using W = tile<T, L, M>;

	begin_rows<W>(cursor, list);
	for (uint32_t piece = 0; piece < W::SLOTS; piece += 2) {
		next_rows(r, cursor, list);
		load_keys(r, ring, piece, cursor);
		if (piece + 2 < W::SLOTS)
			load_values(r, ring, piece + 1, cursor);
	}
}

/* The main loop over this warp's tiles. pos NULL: all rows are seen; else those that this lane's
 * query row sees, which is at position `here`. */
template <bool LIMITED, class T, int L, int M>
DEVICE void
for_row_tiles(struct softmax_state<T, L, M> &r, uint4 *ring, struct cursor &cursor,
    const struct row_list &list, const uint32_t *pos, uint32_t here, const struct limits &limits)
{
	using W = tile<T, L, M>;
	const uint32_t c = threadIdx.x % L, side = threadIdx.x % 32 / L;
	uint32_t at = cursor.first + threadIdx.x / 32 * W::ROWS;

	for (uint32_t piece = 0; at < cursor.end; piece += 2, at += WARPS * W::ROWS) {
		const uint32_t mine = at + c / M * W::SIDES + side;
		const bool seen = mine < cursor.end && (pos == NULL || (LIMITED ?
		    in_reach(here, pos[mine], limits.reach) : pos[mine] <= here));
		float s, p;

		cp_async_wait<W::SLOTS - 2>();
		load_values(r, ring, piece + W::SLOTS - 1, cursor);
		s = logit(r, ring + piece % W::SLOTS * W::STEPS * 32 + threadIdx.x % 32);
		if (LIMITED && limits.cap > 0)
			s = softcapped(s, limits);
		p = softmax_step(r, seen ? s : -INFINITY);
		next_rows(r, cursor, list);
		cp_async_wait<W::SLOTS - 2>();
		load_keys(r, ring, piece + W::SLOTS, cursor);
		add_values(r, ring + (piece + 1) % W::SLOTS * W::STEPS * 32 +
		    threadIdx.x % 32, p);
	}
	cp_async_wait<0>();
}

#endif

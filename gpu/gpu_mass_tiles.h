/* gpu_mass_tiles.h - attention mass on tensor cores: the blocks of the kernels of gpu_mass_tiles.cu
 * and gpu_quantised_mass.cu, which differ in how keys are loaded
 *
 * Keys are the rows of the product (m) and queries its columns (n), so that the mass of a row
 * from all queries accumulates in a register, and lanes exchange nothing before the end. A warp
 * keeps WARP_KEYS keys in registers as a fragments, read from memory once, while all queries of
 * one or more query heads stream through shared memory, packed as b fragments by pack_queries():
 * neither operand is ever rearranged. No atomics; every sum has one order. A logit is the same
 * in partial_sums() and add_mass(), so the mass that a query gives to all rows is 1 up to
 * rounding.
 *
 * The order of the channels in a product is free as long as both operands have the same. It
 * is chosen such that a lane's part of a key for two steps of 16 channels is 16 contiguous
 * bytes: see first_channel(). */
#ifndef GPU_MASS_TILES_H
#define GPU_MASS_TILES_H

#include "gpu/gpu_mass.h"

enum {
	WARPS = 8, WARP_KEYS = 32, BLOCK_KEYS = WARPS * WARP_KEYS,
	TILE_UNITS = 4,              /* units of a stage in shared memory */
	PACKED_UNITS = 4,            /* up to so many units of a head a block has all heads */
};

template <uint32_t E>
struct unit_tile {
	uint4 q[TILE_UNITS][E / 16][32];
	struct query_info info[TILE_UNITS][MMA_QUERIES];
};

/* The keys of a warp; key[m][step] is the a fragment of rows 16m .. 16m + 15. */
template <uint32_t E>
struct keys {
	uint32_t key[2][E / 16][4];
	const uint32_t *pos;         /* shared [WARP_KEYS] positions; NO_POSITION: no such row */
	uint32_t first, last;        /* positions; last is NO_POSITION where there are fewer rows */
	uint32_t end;                /* LIMITED: the last position that there is */
	uint32_t n;                  /* rows */
};

/* How many of the rows of a warp the queries of a unit see */
enum seen { NO_ROWS, SOME_ROWS, ALL_ROWS };

/* Completes keys of which n is set, at positions pos[] */
template <uint32_t E>
DEVICE void
place_keys(struct keys<E> *to, uint32_t *to_pos, const uint32_t *pos)
{
	const uint32_t lane = threadIdx.x % 32;

	to_pos[lane] = lane < to->n ? pos[lane] : NO_POSITION;
	to->pos = to_pos;
	to->first = to->n > 0 ? pos[0] : NO_POSITION;
	to->last = to->n == WARP_KEYS ? pos[WARP_KEYS - 1] : NO_POSITION;
	to->end = to->n > 0 ? pos[to->n - 1] : NO_POSITION;
}

template <class T, uint32_t E>
DEVICE void
load_keys(struct keys<E> *to, uint32_t *to_pos, const struct rows *r, uint32_t g, uint32_t begin)
{
	const uint32_t lane = threadIdx.x % 32, len = r->len[g];
	const T *k = (const T *)r->k + (r->start[g] + begin) * E;
	const uint32_t *pos = r->pos + r->start[g] + begin;

	to->n = begin >= len ? 0 : min(len - begin, (uint32_t)WARP_KEYS);
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t s = i * 8 + lane / 4;
		uint32_t (*key)[4] = to->key[i / 2], at = i % 2;

		for (uint32_t step = 0; step + 1 < E / 16; step += 2) {
			const uint4 w = s < to->n ?
			    load_once(k + s * E + first_channel<E>(step, lane % 4)) :
			    make_uint4(0, 0, 0, 0);

			key[step][at] = w.x;
			key[step][at + 2] = w.y;
			key[step + 1][at] = w.z;
			key[step + 1][at + 2] = w.w;
		}
		if (E % 32 != 0) {
			const uint2 w = s < to->n ?
			    *(const uint2 *)(k + s * E + first_channel<E>(E / 16 - 1, lane % 4)) :
			    make_uint2(0, 0);

			key[E / 16 - 1][at] = w.x;
			key[E / 16 - 1][at + 2] = w.y;
		}
	}
	place_keys(to, to_pos, pos);
}

/* logit[m][p][2a + b] <- the logit of row 16m + 8a + lane / 4 of the warp with query 8p + 2
 * (lane % 4) + b of the unit. Computes nothing where no row is seen. */
template <class T, uint32_t E, bool LIMITED>
DEVICE enum seen
multiply(float logit[2][2][4], const struct keys<E> *k, const uint4 q[E / 16][32],
    const struct query_info *info, const struct limits &limits)
{
	if (info[MMA_QUERIES - 1].pos < k->first)
		return NO_ROWS;
	if (LIMITED && is_past(k->end, info[0].pos, limits.reach))
		return NO_ROWS;
	for (uint32_t i = 0; i < 16; i++)
		logit[i / 8][i / 4 % 2][i % 4] = 0;
	for (uint32_t step = 0; step < E / 16; step++) {
		const uint4 w = q[step][threadIdx.x % 32];
		const uint32_t left[2] = { w.x, w.y }, right[2] = { w.z, w.w };

		for (uint32_t m = 0; m < 2; m++) {
			mma(T{}, logit[m][0], k->key[m][step], left);
			mma(T{}, logit[m][1], k->key[m][step], right);
		}
	}
	for (uint32_t i = 0; LIMITED && limits.cap > 0 && i < 16; i++)
		logit[i / 8][i / 4 % 2][i % 4] =
		    softcapped(logit[i / 8][i / 4 % 2][i % 4], limits);
	if (LIMITED && is_past(k->first, info[MMA_QUERIES - 1].pos, limits.reach))
		return SOME_ROWS;
	return info[0].pos < k->last ? SOME_ROWS : ALL_ROWS;
}

/* Calls work(logit, info of its query, masked) for each logit of a lane; masked: the query
 * does not see the row. */
template <bool SOME, bool LIMITED, class F>
DEVICE void
for_logits(float logit[2][2][4], const struct query_info *info, const uint32_t *pos, uint32_t reach,
    F &&work)
{
	const uint32_t lane = threadIdx.x % 32;

	for (uint32_t p = 0; p < 2; p++) {
		/* two infos in one access */
		const uint4 two = *(const uint4 *)&info[p * 8 + lane % 4 * 2];
		const struct query_info of[2] = { { __uint_as_float(two.x), two.y },
			{ __uint_as_float(two.z), two.w } };

		for (uint32_t row = 0; row < 4; row++)
			for (uint32_t b = 0; b < 2; b++)
				work(logit[row / 2][p][row % 2 * 2 + b], of[b], SOME && (LIMITED ?
				    !in_reach(of[b].pos, pos[row * 8 + lane / 4], reach) :
				    of[b].pos < pos[row * 8 + lane / 4]));
	}
}

/* A block's position in the units of its heads, first .. end - 1 of each */
struct unit_cursor { uint32_t head, unit, left; };

DEVICE void
next_unit(struct unit_cursor *at, uint32_t first, uint32_t end)
{
	at->left--;
	if (++at->unit == end) {
		at->unit = first;
		at->head++;
	}
}

/* Starts the copy of the next units, at most a tile of them, and advances *at. */
template <uint32_t E>
DEVICE void
load_units(struct unit_tile<E> *to, const struct packed_queries *from, struct unit_cursor *at,
    uint32_t first, const uint32_t &end)
{
	const uint32_t t = threadIdx.x;
	const size_t unit = (size_t)at->head * from->units + at->unit;
	const uint4 *q = from->q + unit * (E * 2) + t;
	const struct query_info *info = from->info + unit * MMA_QUERIES + 2 * t;

	for (uint32_t i = 0; i < TILE_UNITS && at->left > 0; i++) {
		const uint32_t next = at->unit + 1 == end ? 1 + first + from->units - end : 1;

		if (t < E * 2)
			cp_async16(&to->q[i][0][0] + t, q, true);
		if (t < MMA_QUERIES / 2)
			cp_async16(&to->info[i][2 * t], info, true);
		q += next * (E * 2);
		info += next * MMA_QUERIES;
		next_unit(at, first, end);
	}
	cp_async_commit();
}

/* The main loop, double-buffered: calls work(tile, position of its first unit, units in it)
 * for the queries of the units first .. end - 1 of each head, while the next tile is loaded. A
 * barrier before each call protects what the threads shared in the call before. */
template <uint32_t E, class F>
DEVICE void
for_tiles(struct unit_tile<E> *tiles, const struct packed_queries *q, uint32_t head, uint32_t heads,
    uint32_t first, const uint32_t &end, F &&work)
{
	struct unit_cursor next = { head, first, heads * (end - first) }, at;

	if (next.left == 0)
		return;
	at = next;
	load_units(&tiles[0], q, &next, first, end);
	for (uint32_t turn = 0;; turn ^= 1) {
		const struct unit_cursor then = next;

		cp_async_wait<0>();
		__syncthreads();
		if (next.left > 0)
			load_units(&tiles[turn ^ 1], q, &next, first, end);
		work(&tiles[turn], at, at.left - then.left);
		if (then.left == 0)
			return;
		at = then;
	}
}

/* The partial sum of a lane's query number x over the rows of the warp, in all lanes that
 * have this query */
DEVICE struct partial_sum
column_sum(const float logit[2][2][4], uint32_t x)
{
	const float *a = &logit[0][x / 2][x % 2], *b = &logit[1][x / 2][x % 2];
	struct partial_sum p = { fmaxf(fmaxf(a[0], a[2]), fmaxf(b[0], b[2])), 0 };

	for (int bit = 4; bit < 32; bit *= 2)
		p.m = fmaxf(p.m, __shfl_xor_sync(ALL_LANES, p.m, bit));
	const float m = p.m == -INFINITY ? 0 : p.m;

	p.l = exp2_fast(a[0] - m) + exp2_fast(a[2] - m) +
	    (exp2_fast(b[0] - m) + exp2_fast(b[2] - m));
	for (int bit = 4; bit < 32; bit *= 2)
		p.l += __shfl_xor_sync(ALL_LANES, p.l, bit);
	return p;
}

/* The number of units of a head for which before(its info) is true: the first ones */
template <class F>
DEVICE uint32_t
units_before(const struct packed_queries &q, uint32_t head, F &&before)
{
	uint32_t first = 0, end = q.units;

	while (first < end) {
		const uint32_t mid = (first + end) / 2;
		const size_t unit = (size_t)head * q.units + mid;

		if (before(q.info + unit * MMA_QUERIES))
			first = mid + 1;
		else
			end = mid;
	}
	return first;
}

/* The units of a head that see any of the rows from `begin` on that a block has, of KV head g */
struct unit_range { uint32_t first, end; };

DEVICE struct unit_range
units_in_reach(const struct packed_queries &q, uint32_t head, const struct rows &r, uint32_t g,
    uint32_t begin, uint32_t reach)
{
	const uint32_t *const pos = r.pos + r.start[g], len = r.len[g];

	if (begin >= len)
		return { 0, 0 };
	const uint32_t least = pos[begin], most = pos[min(begin + BLOCK_KEYS, len) - 1];
	const uint32_t first = units_before(q, head, [&](const struct query_info *info) {
		return info[MMA_QUERIES - 1].pos < least;
	});
	const uint32_t end = units_before(q, head, [&](const struct query_info *info) {
		return !is_past(most, info[0].pos, reach);
	});
	return { first, end };
}

/* The partial sums of block blockIdx.x of the queries in other units: nothing */
DEVICE void
clear_parts(struct partial_sum *parts, size_t stride, struct unit_range units, uint32_t N,
    uint32_t H, uint32_t head, uint32_t heads)
{
	for (uint32_t n = threadIdx.x; n < N; n += WARPS * 32) {
		const uint32_t unit = n / MMA_QUERIES;
		const bool done = unit >= units.first && unit < units.end;

		for (uint32_t h = head; h < head + heads && !done; h++)
			parts[((size_t)n * H + h) * stride + blockIdx.x] = { -INFINITY, 0 };
	}
}

/* First pass, log-sum-exp: one block for BLOCK_KEYS rows of a KV head and `heads` of its
 * query heads. parts[(n * H + h) * stride + x] <- the partial sum of query n over the rows of
 * block x. load(keys, positions, KV head, row) loads those of a warp. */
template <class T, uint32_t E, bool LIMITED, class LOAD>
DEVICE void
sums_of_block(struct partial_sum *parts, size_t stride, const struct packed_queries &q,
    const struct rows &r, uint32_t N, uint32_t H, uint32_t heads, const struct limits &limits,
    LOAD &&load)
{
	DYN_SHARED(struct unit_tile<E>, tiles);
	SHARED(uint32_t[BLOCK_KEYS], pos);
	SHARED(struct partial_sum[WARPS][TILE_UNITS * MMA_QUERIES], of_warp);
	const uint32_t t = threadIdx.x, warp = t / 32, lane = t % 32, head = blockIdx.y * heads;
	struct unit_range units = { 0, q.units };
	/* an argument: no register */
	const uint32_t &end = *(LIMITED ? &units.end : &q.units);
	struct keys<E> k;

	if constexpr (LIMITED) {
		units = units_in_reach(q, head, r, head / (H / r.G), blockIdx.x * BLOCK_KEYS,
		    limits.reach);
		clear_parts(parts, stride, units, N, H, head, heads);
		if (units.first == units.end)
			return;
	}
	load(&k, pos + warp * WARP_KEYS, head / (H / r.G),
	    blockIdx.x * BLOCK_KEYS + warp * WARP_KEYS);
	for_tiles(tiles, &q, head, heads, units.first, end, [&](const struct unit_tile<E> *tile,
	    struct unit_cursor at, uint32_t n) {
		for (uint32_t i = 0; i < n; i++) {
			float logit[2][2][4];
			struct partial_sum p[4];
			const enum seen seen =
			    multiply<T, E, LIMITED>(logit, &k, tile->q[i], tile->info[i], limits);

			if (seen == SOME_ROWS)
				for_logits<true, LIMITED>(logit, tile->info[i], k.pos, limits.reach,
				    [](float &x, const struct query_info &, bool masked) {
					x = masked ? -INFINITY : x;
				});
			for (uint32_t x = 0; x < 4; x++)
				p[x] = seen != NO_ROWS ? column_sum(logit, x) :
				    partial_sum{ -INFINITY, 0 };
			if (lane < 4)
				for (uint32_t x = 0; x < 4; x++)
					of_warp[warp][i * MMA_QUERIES + x / 2 * 8 + lane * 2 +
					    x % 2] = p[x];
		}
		__syncthreads();
		for (uint32_t i = 0; i < t / MMA_QUERIES && i < n; i++)
			next_unit(&at, units.first, end);
		const uint32_t query = at.unit * MMA_QUERIES + t % MMA_QUERIES;

		if (t >= n * MMA_QUERIES || query >= N)
			return;
		struct partial_sum p = of_warp[0][t];

		for (uint32_t w = 1; w < WARPS; w++)
			p = add_sums(p, of_warp[w][t]);
		parts[((size_t)query * H + at.head) * stride + blockIdx.x] = p;
	});
}

/* sum[i] += the mass that the queries of a unit give to row 8i + lane / 4 of the warp */
template <bool SOME, bool LIMITED>
DEVICE void
add_unit(float sum[4], float logit[2][2][4], const struct query_info *info, const uint32_t *pos,
    uint32_t reach, enum over_queries over)
{
	for_logits<SOME, LIMITED>(logit, info, pos, reach,
	    [](float &x, const struct query_info &of, bool masked) {
		x = masked ? 0 : exp2_fast(x - of.lse);
	});
	if (over == QUERIES_SUM)
		for (uint32_t i = 0; i < 16; i++)
			sum[i / 8 * 2 + i / 2 % 2] += logit[i / 8][i / 4 % 2][i % 4];
	else
		for (uint32_t i = 0; i < 16; i++)
			sum[i / 8 * 2 + i / 2 % 2] = accumulate(sum[i / 8 * 2 + i / 2 % 2],
			    logit[i / 8][i / 4 % 2][i % 4], QUERIES_MAX);
}

/* Reduces the sums of the lanes over the queries of a head, writes them to to[row of the
 * warp], and resets them. */
DEVICE void
flush_mass(float *to, float sum[4], uint32_t rows, enum over_queries over, bool add)
{
	const uint32_t lane = threadIdx.x % 32, row = lane % 4 * 8 + lane / 4;
	float mine = 0;

	for (uint32_t i = 0; i < 4; i++) {
		float x = sum[i];

		for (int bit = 1; bit < 4; bit *= 2)
			x = accumulate(x, __shfl_xor_sync(ALL_LANES, x, bit), over);
		if (lane % 4 == i)
			mine = x;
		sum[i] = 0;
	}
	if (row < rows)
		to[row] = add ? accumulate(to[row], mine, over) : mine;
}

/* mass <- 0 for the rows of a block that no query sees */
DEVICE void
clear_mass(float *mass, size_t stride, uint32_t begin, uint32_t len, uint32_t head, uint32_t heads)
{
	for (uint32_t h = head; h < head + heads && begin + threadIdx.x < len; h++)
		mass[h * stride + begin + threadIdx.x] = 0;
}

/* Second pass, mass: one block for BLOCK_KEYS rows of a KV head and `heads` of its query
 * heads. The mass of each head accumulates in registers and is added to mass (or, !add,
 * stored) at its end. The last heads come first: their keys are still in L2 after the first
 * pass. */
template <class T, uint32_t E, bool LIMITED, class LOAD>
DEVICE void
mass_of_block(float *mass, size_t stride, const struct packed_queries &q, const struct rows &r,
    uint32_t H, uint32_t heads, enum over_queries over, bool add, const struct limits &limits,
    LOAD &&load)
{
	DYN_SHARED(struct unit_tile<E>, tiles);
	SHARED(uint32_t[BLOCK_KEYS], pos);
	const uint32_t head = (gridDim.y - 1 - blockIdx.y) * heads, g = head / (H / r.G);
	const uint32_t begin = blockIdx.x * BLOCK_KEYS, row = begin + threadIdx.x / 32 * WARP_KEYS;
	struct unit_range units = { 0, q.units };
	const uint32_t &end = *(LIMITED ? &units.end : &q.units);
	float sum[4] = { 0, 0, 0, 0 };
	struct keys<E> k;

	if (begin >= r.len[g])
		return;
	if constexpr (LIMITED) {
		units = units_in_reach(q, head, r, g, begin, limits.reach);
		if (units.first == units.end) {
			if (!add)
				clear_mass(mass, stride, begin, r.len[g], head, heads);
			return;
		}
	}
	load(&k, pos + (row - begin), g, row);
	if constexpr (!LIMITED)
		units.first = units_before(q, head, [&](const struct query_info *info) {
			return info[MMA_QUERIES - 1].pos < r.pos[r.start[g] + begin];
		});
	for_tiles(tiles, &q, head, heads, units.first, end, [&](const struct unit_tile<E> *tile,
	    struct unit_cursor at, uint32_t n) {
		for (uint32_t i = 0; i < n; i++) {
			float logit[2][2][4];
			const enum seen seen =
			    multiply<T, E, LIMITED>(logit, &k, tile->q[i], tile->info[i], limits);

			if (seen == ALL_ROWS)
				add_unit<false, LIMITED>(sum, logit, tile->info[i], k.pos,
				    limits.reach, over);
			else if (seen == SOME_ROWS)
				add_unit<true, LIMITED>(sum, logit, tile->info[i], k.pos,
				    limits.reach, over);
			if (at.unit == end - 1)
				flush_mass(mass + at.head * stride + row, sum, k.n, over, add);
			next_unit(&at, units.first, end);
		}
	});
	for (uint32_t h = head; h < head + heads && units.first == q.units; h++)
		flush_mass(mass + h * stride + row, sum, k.n, over, add);
}

/* ---- calls ---- */

template <uint32_t WIDTH> struct width { static constexpr uint32_t E = WIDTH; };

/* Calls work(T{}, width<E>{}) with the types of a fast call. */
template <class F>
static inline void
with_shape(const struct call *c, F &&work)
{
	const auto with_width = [&](auto t) {
		switch (c->rows.E) {
		case 64:
			work(t, width<64>{});
			break;
		case 80:
			work(t, width<80>{});
			break;
		case 96:
			work(t, width<96>{});
			break;
		case 128:
			work(t, width<128>{});
			break;
		}
	};

	if (c->dtype == KV_BF16)
		with_width(bf16{});
	else
		with_width(f16{});
}

/* Query heads of a block: one where that is enough work, else all of its KV head, so that
 * keys are read once. */
static inline uint32_t
heads_of_block(const struct call *c)
{
	return c->query.N <= PACKED_UNITS * MMA_QUERIES ? c->query.H / c->rows.G : 1;
}

#endif

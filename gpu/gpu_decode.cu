/* gpu_decode.cu - attention of few queries over many rows, or over those of a list
 *
 * Each key and value is used for few products, so what counts is that memory is busy all the
 * time, on every SM, whatever the lengths of the KV heads are.
 *
 * The plan: the rows of all KV heads, one after the other, are cut into equal shares, one for each
 * block. A share may end within a KV head, and may have the rows of several: each block leaves a
 * part for each KV head that it met (maximum, sum, and unnormalised output of each query
 * row), and a second kernel puts the parts of a KV head together, in the order of its rows. The
 * first kernel could do that in the block that ends last, which a counter would tell. But
 * whether the fences for that are right cannot be tested in the emulator, which runs blocks
 * one after another; a second kernel needs none.
 *
 * Every block works the plan out for itself, from the lengths alone; the grid does not depend on
 * them, so that the kernels can be recorded (gpu_record.cu).
 *
 * In a block, each warp takes every fourth tile of a few rows. A lane has 16 bytes of a row:
 * it copies them to shared memory, some tiles ahead, and reads back what it copied itself, so that
 * tiles need no barriers, and what is on its way needs no registers. To keep HBM
 * busy for 0.8 us, 26 KB must be under way on each of 132 SMs; two blocks of four warps with
 * three pieces of 2 KB each have 48 KB.
 *
 * Arithmetic is f32 throughout, products by FMA. Tensor cores would want queries and weights
 * rounded to 16 bits. Up to 8 query rows are read from one copy of the keys, which fits into
 * registers; with more the work is done again for every 8, by blocks that run side by side, so that
 * all but the first find the rows in the second-level cache. */
#include "gpu/gpu_internal.h"

constexpr uint32_t WARPS = 4, THREADS = 32 * WARPS;
constexpr uint32_t BLOCKS = 2;           /* of an SM */
constexpr uint32_t LEAST_ROWS = 64;      /* of a share: two tiles for each warp */
constexpr uint32_t NO_ROW = UINT32_MAX;

/* One call */
struct work {
	struct rows c;
	struct picks list;
	const float *q;          /* [N][H][E] */
	const uint32_t *qpos;    /* [N]; NULL: all rows are seen */
	float scale;             /* of logits: so that 2^logit is what is summed */
	uint32_t N, H;
	uint32_t shares, groups; /* of rows; of query rows */
	/* Part i + g is what share i has of KV head g: each query row's maximum and sum, and
	 * its output. A share's first KV head is not before the last of the share before it. */
	float2 *part_sum;        /* [shares + G][N * R] */
	float *part_out;         /* [shares + G][N * R][E] */
};

/* ---- the plan ----
 *
 * grown: grown_by(), which a thread asks for once. Asked for in a loop over KV heads it would be read
 * from memory for each of them, one after the other. */

DEVICE uint32_t
rows_of(const struct work &w, uint32_t g, uint32_t grown)
{
	return w.list.n[g] + grown;
}

/* Rows of KV heads [0, g) together */
DEVICE uint64_t
rows_before(const struct work &w, uint32_t g, uint32_t grown)
{
	uint64_t n = (uint64_t)g * grown;

	for (uint32_t i = 0; i < g; i++)
		n += w.list.n[i];
	return n;
}

/* Rows of one share */
DEVICE uint64_t
rows_of_share(const struct work &w, uint32_t grown)
{
	const uint64_t n = (rows_before(w, w.c.G, grown) + w.shares - 1) / w.shares;

	return n < LEAST_ROWS ? LEAST_ROWS : (n + 7) / 8 * 8;
}

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
entry_of(const struct way &way, const struct picks &list, uint32_t i)
{
	return list.at != NULL && i < way.end ? list.at[way.g * list.stride + i / list.rows] : 0;
}

/* row[] <- this lane's rows of the next tile. Each of the first lanes knows of one row. */
template <class W>
DEVICE void
next_rows(uint32_t row[W::STEPS], struct way &way, const struct picks &list)
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
		copy_ahead(to + u * 32, from + row[u] * bytes, from != NULL && row[u] != NO_ROW);
	copies_group();
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

/* The weight 2^(s - maximum) of this lane's logit. When a maximum has grown, what there is is
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

/* ---- a share ---- */

/* The queries of a group, scaled; zeros instead of those behind the last */
template <class T, int L, int M>
DEVICE void
begin(struct running<T, L, M> &r, const struct work &w, uint32_t g, uint32_t group)
{
	using W = tile<T, L, M>;
	const uint32_t R = w.H / w.c.G, c = threadIdx.x % L;

	r.top = -INFINITY;
	r.sum = 0;
UNROLL	for (int m = 0; m < M; m++) {
		const uint32_t i = group * M + m;
		const size_t row = (size_t)(i / R) * w.H + g * R + i % R;
		const float4 *from = (const float4 *)(w.q + row * w.c.E + c * W::EACH);
		const bool there = i < w.N * R && c * W::EACH < w.c.E;

UNROLL		for (int e = 0; e < W::EACH; e += 4) {
			const float4 x = there ? from[e / 4] : float4{ 0, 0, 0, 0 };

			r.query[m][e] = x.x * w.scale;
			r.query[m][e + 1] = x.y * w.scale;
			r.query[m][e + 2] = x.z * w.scale;
			r.query[m][e + 3] = x.w * w.scale;
			r.out[m][e] = r.out[m][e + 1] = r.out[m][e + 2] = r.out[m][e + 3] = 0;
		}
	}
}

/* Asks for the first tiles of this warp, so that there is nothing but one piece to ask for in each
 * step of read_rows(). row[] is then that of the last of them. */
template <class W>
DEVICE void
start(uint32_t row[W::STEPS], uint4 *ring, struct way &way, const struct picks &list)
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
    struct way &way, const struct picks &list, const uint32_t *pos, uint32_t limit)
{
	using W = tile<T, L, M>;
	const uint32_t c = threadIdx.x % L, side = threadIdx.x % 32 / L;
	uint32_t at = way.first + threadIdx.x / 32 * W::ROWS;

	for (uint32_t piece = 0; at < way.end; piece += 2, at += WARPS * W::ROWS) {
		const uint32_t mine = at + c / M * W::SIDES + side;
		const bool seen = mine < way.end && (pos == NULL || pos[mine] <= limit);
		float s, p;

		copies_wait<W::SLOTS - 2>();
		ask<W>(ring, piece + W::SLOTS - 1, way.v, row, way.bytes);
		s = logit(r, ring + piece % W::SLOTS * W::STEPS * 32);
		p = weight(r, seen ? s : -INFINITY);
		next_rows<W>(row, way, list);
		copies_wait<W::SLOTS - 2>();
		ask<W>(ring, piece + W::SLOTS, way.k, row, way.bytes);
		add_values(r, ring + (piece + 1) % W::SLOTS * W::STEPS * 32, p);
	}
	copies_wait<0>();
}

/* What warps leave in shared memory, where the ring was, for one another */
template <class T, int L, int M>
struct left {
	float top[WARPS][M], sum[WARPS][M], out[WARPS][M][L * tile<T, L, M>::EACH];
};

/* The sums of this warp, of all its lanes */
template <class T, int L, int M>
DEVICE void
leave(struct left<T, L, M> &to, struct running<T, L, M> &r)
{
	using W = tile<T, L, M>;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

UNROLL	for (int bit = M; bit < 32; bit *= 2)
		r.sum += __shfl_xor_sync(ALL_LANES, r.sum, bit);
	if (lane < M) {
		to.top[warp][lane] = r.top;
		to.sum[warp][lane] = r.sum;
	}
UNROLL	for (int m = 0; m < M; m++)
UNROLL		for (int e = 0; e < W::EACH; e++) {
UNROLL			for (int bit = L; bit < 32; bit *= 2)
				r.out[m][e] += __shfl_xor_sync(ALL_LANES, r.out[m][e], bit);
			if (lane < L)
				to.out[warp][m][lane * W::EACH + e] = r.out[m][e];
		}
}

/* A part <- the sums of the block's warps */
template <class T, int L, int M>
DEVICE void
write_part(const struct work &w, const struct left<T, L, M> &from, uint32_t part, uint32_t group)
{
	const uint32_t queries = w.N * (w.H / w.c.G), first = group * M;

	for (uint32_t i = threadIdx.x; i < M * w.c.E; i += THREADS) {
		const uint32_t m = i / w.c.E, e = i % w.c.E;
		const size_t to = (size_t)part * queries + first + m;
		float top = -INFINITY, sum = 0, out = 0;

		if (first + m >= queries)
			break;
		for (uint32_t x = 0; x < WARPS; x++)
			top = fmaxf(top, from.top[x][m]);
		for (uint32_t x = 0; x < WARPS && top > -INFINITY; x++) {
			const float share = exp2_fast(from.top[x][m] - top);

			sum += share * from.sum[x][m];
			out += share * from.out[x][m][e];
		}
		w.part_out[to * w.c.E + e] = out;
		if (e == 0)
			w.part_sum[to] = make_float2(top, sum);
	}
}

/* Rows [first, end) of the list of KV head g, for a group of query rows */
template <class T, int L, int M>
DEVICE void
attend_rows(const struct work &w, uint4 *shared, uint32_t g, uint32_t first, uint32_t end,
    uint32_t part, uint32_t group)
{
	using W = tile<T, L, M>;
	const uint32_t R = w.H / w.c.G, lane = threadIdx.x % 32, c = lane % L;
	const uint32_t *pos = w.c.pos + w.c.start[g];
	const size_t bytes = w.c.E * sizeof(T), at = w.c.start[g] * bytes + c * 16;
	const bool there = c * 16 < bytes;
	struct way way = { g, first, end, 0, 0, 0, there ? (const char *)w.c.k + at : NULL,
		there && w.c.v != NULL ? (const char *)w.c.v + at : NULL, bytes };
	uint4 *ring = shared + threadIdx.x / 32 * W::RING + lane;
	struct running<T, L, M> r;
	uint32_t row[W::STEPS], limit = NO_ROW;

	start<W>(row, ring, way, w.list);
	/* Positions ascend: where the first query sees the last row, all see all. */
	if (w.qpos == NULL || pos[end - 1] <= w.qpos[group * M / R])
		pos = NULL;
	else
		limit = w.qpos[min(group * M + lane % M, w.N * R - 1) / R];
	begin(r, w, g, group);
	read_rows(r, row, ring, way, w.list, pos, limit);
	__syncthreads();
	leave(*(struct left<T, L, M> *)shared, r);
	__syncthreads();
	write_part(w, *(const struct left<T, L, M> *)shared, part, group);
	__syncthreads();
}

/* A share, for a group of query rows. The groups of a share are neighbours, so that they read the
 * same rows at about the same time. */
template <class T, int L, int M>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
attend_share(const __grid_constant__ struct work w)
{
	DYN_SHARED(uint4, shared);
	const uint32_t share = blockIdx.x / w.groups, group = blockIdx.x % w.groups;
	const uint32_t grown = grown_by(w.c);
	const uint64_t rows = rows_of_share(w, grown), first = share * rows, end = first + rows;
	uint64_t at = 0, next;

	next_may_start();
	earlier_done();
	for (uint32_t g = 0; g < w.c.G && at < end; g++, at = next) {
		next = at + rows_of(w, g, grown);
		if (next <= first || next == at)
			continue;
		attend_rows<T, L, M>(w, shared, g, (uint32_t)(at < first ? first - at : 0),
		    (uint32_t)((next < end ? next : end) - at), share + g, group);
	}
}

/* ---- the parts of a KV head, together ---- */

/* A block for each query row and head. Each warp takes every fourth part, a lane has four channels
 * of it: then all loads of a KV head with a few dozen parts are under way at once. */
static __global__ void __launch_bounds__(THREADS)
join_parts(float *o, float *lse, const __grid_constant__ struct work w)
{
	DYN_SHARED(float, factor);                   /* [shares], then [WARPS][E] */
	SHARED(float[2][WARPS], of_warp);
	float4 *out = (float4 *)(factor + (w.shares + 3) / 4 * 4);
	const uint32_t R = w.H / w.c.G, h = blockIdx.x % w.H, g = h / R, E = w.c.E;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, grown = grown_by(w.c);
	const uint64_t rows = rows_of_share(w, grown), before = rows_before(w, g, grown);
	const uint32_t n = rows_of(w, g, grown), first = (uint32_t)(before / rows);
	const uint32_t parts = n == 0 ? 0 : (uint32_t)((before + n - 1) / rows) - first + 1;
	const size_t stride = w.N * R, from = (first + g) * stride + blockIdx.x / w.H * R + h % R;
	float top = -INFINITY, sum = 0;

	earlier_done();
	next_may_start();        /* not before: weights would push rows out of the cache */
	for (uint32_t i = threadIdx.x; i < parts; i += THREADS)
		top = fmaxf(top, w.part_sum[from + i * stride].x);
	of_warp[0][warp] = warp_max(top);
	__syncthreads();
	for (uint32_t x = 0; x < WARPS; x++)
		top = fmaxf(top, of_warp[0][x]);
	for (uint32_t i = threadIdx.x; i < parts; i += THREADS) {
		const float2 p = w.part_sum[from + i * stride];

		factor[i] = top == -INFINITY ? 0 : exp2_fast(p.x - top);
		sum += factor[i] * p.y;
	}
	of_warp[1][warp] = warp_sum(sum);
	__syncthreads();
	for (uint32_t e = lane; e < E / 4 && o != NULL; e += 32) {
		float4 all = { 0, 0, 0, 0 };

UNROLL_BY(8)		for (uint32_t i = warp; i < parts; i += WARPS) {
			const float4 x = ((const float4 *)(w.part_out + (from + i * stride) * E))[e];

			all.x = fmaf(factor[i], x.x, all.x);
			all.y = fmaf(factor[i], x.y, all.y);
			all.z = fmaf(factor[i], x.z, all.z);
			all.w = fmaf(factor[i], x.w, all.w);
		}
		out[warp * (E / 4) + e] = all;
	}
	__syncthreads();
	sum = of_warp[1][0] + of_warp[1][1] + of_warp[1][2] + of_warp[1][3];
	for (uint32_t e = threadIdx.x; e < E && o != NULL; e += THREADS) {
		const float *x = (const float *)out + e;

		o[(size_t)blockIdx.x * E + e] =
		    sum == 0 ? 0 : (x[0] + x[E] + x[2 * E] + x[3 * E]) / sum;
	}
	if (threadIdx.x == 0 && lse != NULL)
		lse[blockIdx.x] = sum == 0 ? -INFINITY : (top + log2f(sum)) * (float)M_LN2;
}

/* ---- the ops ---- */

template <class T, int L, int M>
static void
launch_shares(struct dev *d, const struct work &w)
{
	const size_t ring = WARPS * tile<T, L, M>::RING * sizeof(uint4);
	const size_t shared = max(ring, sizeof(struct left<T, L, M>));

	LAUNCH_EARLY(d, (attend_share<T, L, M>), w.shares * w.groups, THREADS, shared, w);
}

/* Query rows of a group; lanes of a row */
template <class T>
static void
launch_tiles(struct dev *d, const struct work &w, uint32_t M)
{
	const size_t pieces = w.c.E * sizeof(T) / 16;

	if (M == 4 && pieces <= 8)
		launch_shares<T, 8, 4>(d, w);
	else if (M == 4 && pieces <= 16)
		launch_shares<T, 16, 4>(d, w);
	else if (M == 4)
		launch_shares<T, 32, 4>(d, w);
	else if (pieces <= 8)
		launch_shares<T, 8, 8>(d, w);
	else if (pieces <= 16)
		launch_shares<T, 16, 8>(d, w);
	else
		launch_shares<T, 32, 8>(d, w);
}

/* Does the fast kernel take it? Rows are read in pieces of 16 bytes, at most 32 of them. */
static int
in_pieces(const struct work *w, size_t bytes)
{
	const uintptr_t at = (uintptr_t)w->c.k | (uintptr_t)w->c.v | (uintptr_t)w->q;

	return bytes > 0 && bytes <= 32 * 16 && (bytes | at) % 16 == 0;
}

/* w: rows, list, queries; of o and lse each may be NULL */
static void
attend_parts(struct dev *d, float *o, float *lse, struct work *w, enum kv_dtype dtype)
{
	const uint32_t R = w->H / w->c.G, M = w->N * R <= 4 ? 4 : 8;
	const size_t queries = (size_t)w->N * R;
	size_t parts;
	float *part;

	if (d->reference || !in_pieces(w, w->c.E * kv_dtype_size(dtype))) {
		gpu_attend_any(d, o, lse, w->q, &w->c, &w->list, dtype, w->qpos, w->N, w->H);
		return;
	}
	w->scale = (float)(M_LOG2E / sqrt((double)w->c.E));
	w->groups = parts_of(queries, M);
	w->shares = max(1u, BLOCKS * d->sms / w->groups);
	parts = (w->shares + w->c.G) * queries;
	if ((part = (float *)gpu_scratch(d, SCRATCH_PARTS, parts * (w->c.E + 2) * sizeof *part)) == NULL)
		return;
	w->part_out = part;
	w->part_sum = (float2 *)(part + parts * w->c.E);
	if (o == NULL)
		w->c.v = NULL;
	with_type(dtype, [&](auto t) { launch_tiles<decltype(t)>(d, *w, M); });
	LAUNCH_EARLY(d, join_parts, w->N * w->H, THREADS,
	    (parts_of(w->shares, 4) * 4 + WARPS * w->c.E) * sizeof *part, o, lse, *w);
}

void
gpu_attend_few(struct dev *d, float *o, float *lse, const float *q, const struct layer_rows *l,
    const uint32_t *qpos, uint32_t N, uint32_t H)
{
	struct work w = {};

	if (N == 0 || H == 0 || !gpu_growing_rows_of(d, &w.c, l, H, "attend") ||
	    !gpu_picks_of(d, &w.list, l, NULL))
		return;
	w.q = q;
	w.qpos = qpos;
	w.N = N;
	w.H = H;
	attend_parts(d, o, lse, &w, l->dtype);
}

void
gpu_attend_chosen(struct dev *d, float *o, const float *q, const struct layer_rows *l,
    const struct chosen *chosen, uint32_t H)
{
	struct work w = {};

	if (H == 0 || !gpu_rows_of(d, &w.c, l, H, "attend_chosen") ||
	    !gpu_picks_of(d, &w.list, l, chosen))
		return;
	w.q = q;
	w.N = 1;
	w.H = H;
	attend_parts(d, o, NULL, &w, l->dtype);
}

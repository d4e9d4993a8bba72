/* gpu_decode.cu - decode attention: split-KV (flash decoding) of up to 8 query rows, over all
 * rows of the cache or over selected rows
 *
 * Each key and value takes part in few products, so the limit is memory bandwidth: every SM must
 * have loads in flight all the time, whatever the lengths of the KV heads are.
 *
 * Split-KV over ragged heads: the rows of all KV heads, concatenated, are cut into equal splits,
 * one for each block. A split may end within a KV head and may have rows of several. For each KV
 * head in its split a block writes a partial result (maximum, sum and unnormalised output of
 * each query row); a second kernel combines the partial results of a KV head in the order of its
 * rows. The block that finishes last could do that, found by an atomic counter; but the emulator
 * runs blocks one after another and cannot test the fences for that, and a second kernel needs
 * none.
 *
 * Each block computes the splits from the lengths; the grid does not depend on these, so that
 * the kernels can be captured (gpu_graph.cu). Through a sliding window the queries see a range of
 * the rows of each KV head: each block of a limited call finds these ranges first, a thread for
 * each KV head, and they are what is split.
 *
 * Within a block each warp takes every fourth tile of rows (gpu_decode_warp.h). With a latency
 * of 0.8 us, HBM needs 26 KB in flight on each of 132 SMs; two blocks of four warps with three
 * pieces of 2 KB each have 48 KB.
 *
 * Arithmetic is f32, products are FMAs on CUDA cores: tensor cores would need queries and
 * weights rounded to 16 bits. GQA packing: up to 8 query rows that read the same KV head
 * share one read of its keys, and fit into registers. More are done in groups of 8 by
 * neighbouring blocks, all but the first of which find the rows in L2. */
#include "gpu/gpu_decode_warp.h"

constexpr uint32_t THREADS = 32 * WARPS;
constexpr uint32_t BLOCKS = 2;           /* of an SM */
constexpr uint32_t MIN_SPLIT_ROWS = 64;  /* two tiles for each warp */

/* The rows of a KV head that a limited call reads */
struct visible { uint32_t first, n; };

/* One call */
struct decode_call {
	struct rows c;
	struct row_list list;
	const float *q;          /* [N][H][E] */
	const uint32_t *qpos;    /* [N]; NULL: all rows are seen */
	float scale;             /* log2(e) / sqrt(E): weights are 2^logit */
	uint32_t N, H;
	uint32_t splits, groups; /* of the rows; of the query rows */
	/* Partial result number i + g is that of split i for KV head g: maximum and sum of
	 * each query row, and its output. The number is unique: the first KV head of a split
	 * is not before the last one of the split before. */
	float2 *part_sum;        /* [splits + G][N * R] */
	float *part_out;         /* [splits + G][N * R][E] */
	struct limits limits;
	struct visible *visible; /* [G] what the first kernel of a limited call has found */
};

/* ---- the splits ----
 *
 * appended: appended_rows(), which a thread reads once; in a loop over KV heads it would be
 * read from memory for each of them, one after the other. A limited call splits visible[G]
 * instead of all rows. */

template <bool LIMITED>
DEVICE uint32_t
rows_of(const struct decode_call &w, const struct visible *visible, uint32_t g, uint32_t appended)
{
	return LIMITED ? visible[g].n : w.list.n[g] + appended;
}

/* Rows of KV heads [0, g) together */
template <bool LIMITED>
DEVICE uint64_t
rows_before(const struct decode_call &w, const struct visible *visible, uint32_t g,
    uint32_t appended)
{
	uint64_t n = LIMITED ? 0 : (uint64_t)g * appended;

	for (uint32_t i = 0; i < g; i++)
		n += LIMITED ? visible[i].n : w.list.n[i];
	return n;
}

/* Rows of one split */
template <bool LIMITED>
DEVICE uint64_t
rows_of_split(const struct decode_call &w, const struct visible *visible, uint32_t appended)
{
	const uint64_t n =
	    (rows_before<LIMITED>(w, visible, w.c.G, appended) + w.splits - 1) / w.splits;

	return n < MIN_SPLIT_ROWS ? MIN_SPLIT_ROWS : (n + 7) / 8 * 8;
}

/* visible[G] <- what a limited call reads: the rows that a query sees, and those between. Where the
 * window leaves out no row before the queries: all, also those behind them, so that splits and
 * result are those of a call without a window. */
DEVICE void
find_visible(struct visible *visible, const struct decode_call &w, uint32_t appended)
{
	const uint32_t g = threadIdx.x;

	static_assert(THREADS >= MAX_HEADS);
	if (g < w.c.G) {
		const uint32_t *const pos = w.c.pos + w.c.start[g];
		struct visible v = { 0, w.list.n[g] + appended };

		if (w.limits.reach != UINT32_MAX) {
			const uint32_t n = seen_rows(pos, v.n, w.qpos[w.N - 1]);
			const uint32_t first = first_seen(pos, seen_rows(pos, n, w.qpos[0]),
			    w.qpos[0], w.limits.reach);

			if (first > 0)
				v = { first, n - first };
		}
		visible[g] = v;
		if (blockIdx.x == 0)
			w.visible[g] = v;
	}
	__syncthreads();
}

/* ---- one split ---- */

/* Loads the queries of a group, scaled, zeros behind the last one, and initialises the
 * softmax state. */
template <class T, int L, int M>
DEVICE void
load_queries(struct softmax_state<T, L, M> &r, const struct decode_call &w, uint32_t g,
    uint32_t group)
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

/* The results of the warps of a block, in shared memory, where the ring was */
template <class T, int L, int M>
struct warp_sums {
	float top[WARPS][M], sum[WARPS][M], out[WARPS][M][L * tile<T, L, M>::EACH];
};

/* Reduces the softmax state over the lanes of this warp and stores it. */
template <class T, int L, int M>
DEVICE void
store_warp_sums(struct warp_sums<T, L, M> &to, struct softmax_state<T, L, M> &r)
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

/* Combines the results of the block's warps and writes the partial result. */
template <class T, int L, int M>
DEVICE void
write_part(const struct decode_call &w, const struct warp_sums<T, L, M> &from, uint32_t part,
    uint32_t group)
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
			const float factor = exp2_fast(from.top[x][m] - top);

			sum += factor * from.sum[x][m];
			out += factor * from.out[x][m][e];
		}
		w.part_out[to * w.c.E + e] = out;
		if (e == 0)
			w.part_sum[to] = make_float2(top, sum);
	}
}

/* The rows [first, end) of the list of KV head g, for a group of query rows */
template <class T, int L, int M, bool LIMITED>
DEVICE void
attend_rows(const struct decode_call &w, uint4 *shared, uint32_t g, uint32_t first, uint32_t end,
    uint32_t part, uint32_t group)
{
	using W = tile<T, L, M>;
	const uint32_t R = w.H / w.c.G, lane = threadIdx.x % 32, c = lane % L;
	const uint32_t *pos = w.c.pos + w.c.start[g];
	const size_t bytes = w.c.E * sizeof(T), at = w.c.start[g] * bytes + c * 16;
	const bool there = c * 16 < bytes;
	struct cursor cursor = { g, first, end, 0, 0, 0, there ? (const char *)w.c.k + at : NULL,
		there && w.c.v != NULL ? (const char *)w.c.v + at : NULL, bytes };
	uint4 *ring = shared + threadIdx.x / 32 * W::RING + lane;
	struct softmax_state<T, L, M> r;
	uint32_t row[W::STEPS], here = NO_ROW;

	prologue<W>(row, ring, cursor, w.list);
	/* Positions ascend: where the first query sees the last row and, through a window, the
	 * last query the first row, all queries see all rows. */
	if (w.qpos == NULL || (pos[end - 1] <= w.qpos[group * M / R] &&
	    (!LIMITED || w.qpos[min(group * M + M - 1, w.N * R - 1) / R] - pos[first] <=
	    w.limits.reach)))
		pos = NULL;
	else
		here = w.qpos[min(group * M + lane % M, w.N * R - 1) / R];
	load_queries(r, w, g, group);
	for_row_tiles<LIMITED>(r, row, ring, cursor, w.list, pos, here, w.limits);
	__syncthreads();
	store_warp_sums(*(struct warp_sums<T, L, M> *)shared, r);
	__syncthreads();
	write_part(w, *(const struct warp_sums<T, L, M> *)shared, part, group);
	__syncthreads();
}

/* First kernel: one block for each split and group of query rows. The groups of a split are
 * neighbours in the grid, so that they read the same rows at about the same time. */
template <class T, int L, int M, bool LIMITED>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
attend_split(const __grid_constant__ struct decode_call w)
{
	DYN_SHARED(uint4, shared);
	SHARED(struct visible[MAX_HEADS], visible);
	const uint32_t split = blockIdx.x / w.groups, group = blockIdx.x % w.groups;
	const uint32_t appended = appended_rows(w.c);
	if constexpr (LIMITED) {
		pdl_wait();
		find_visible(visible, w, appended);
	}
	const uint64_t rows = rows_of_split<LIMITED>(w, visible, appended);
	const uint64_t first = split * rows, end = first + rows;
	uint64_t at = 0, next;

	pdl_trigger();
	pdl_wait();
	for (uint32_t g = 0; g < w.c.G && at < end; g++, at = next) {
		next = at + rows_of<LIMITED>(w, visible, g, appended);
		if (next <= first || next == at)
			continue;
		const uint32_t before = LIMITED ? visible[g].first : 0;
		attend_rows<T, L, M, LIMITED>(w, shared, g,
		    before + (uint32_t)(at < first ? first - at : 0),
		    before + (uint32_t)((next < end ? next : end) - at), split + g, group);
	}
}

/* ---- combining the splits ---- */

/* Second kernel: one block for each query row and head. Each warp takes every fourth partial
 * result, a lane four channels of it: so all loads of a KV head with a few dozen splits are
 * in flight at once. */
template <bool LIMITED>
static __global__ void __launch_bounds__(THREADS)
combine_splits(float *o, float *lse, const __grid_constant__ struct decode_call w)
{
	DYN_SHARED(float, factor);                   /* [splits], then [WARPS][E] */
	SHARED(float[2][WARPS], of_warp);
	float4 *out = (float4 *)(factor + (w.splits + 3) / 4 * 4);
	const uint32_t R = w.H / w.c.G, h = blockIdx.x % w.H, g = h / R, E = w.c.E;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t appended = appended_rows(w.c);
	if constexpr (LIMITED)
		pdl_wait();
	const uint64_t rows = rows_of_split<LIMITED>(w, w.visible, appended);
	const uint64_t before = rows_before<LIMITED>(w, w.visible, g, appended);
	const uint32_t n = rows_of<LIMITED>(w, w.visible, g, appended);
	const uint32_t first = (uint32_t)(before / rows);
	const uint32_t parts = n == 0 ? 0 : (uint32_t)((before + n - 1) / rows) - first + 1;
	const size_t stride = w.N * R, from = (first + g) * stride + blockIdx.x / w.H * R + h % R;
	float top = -INFINITY, sum = 0;

	pdl_wait();
	pdl_trigger();           /* not earlier: prefetched weights would evict rows from L2 */
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
			const float *part = w.part_out + (from + i * stride) * E;
			const float4 x = ((const float4 *)part)[e];

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
launch_splits(struct dev *d, const struct decode_call &w)
{
	const size_t ring = WARPS * tile<T, L, M>::RING * sizeof(uint4);
	const size_t shared = max(ring, sizeof(struct warp_sums<T, L, M>));

	with_limited(w.limits, [&](auto limited) {
		LAUNCH_PDL(d, (attend_split<T, L, M, limited.value>), w.splits * w.groups, THREADS,
		    shared, w);
	});
}

/* Chooses M, the query rows of a group, and L, the lanes of a row. */
template <class T>
static void
launch_tiles(struct dev *d, const struct decode_call &w, uint32_t M)
{
	const size_t pieces = w.c.E * sizeof(T) / 16;

	if (M == 4 && pieces <= 8)
		launch_splits<T, 8, 4>(d, w);
	else if (M == 4 && pieces <= 16)
		launch_splits<T, 16, 4>(d, w);
	else if (M == 4)
		launch_splits<T, 32, 4>(d, w);
	else if (pieces <= 8)
		launch_splits<T, 8, 8>(d, w);
	else if (pieces <= 16)
		launch_splits<T, 16, 8>(d, w);
	else
		launch_splits<T, 32, 8>(d, w);
}

/* Does the fast kernel take the shape? Rows are read in pieces of 16 bytes, at most 32 of
 * them. */
static int
takes_pieces(const struct decode_call *w, size_t bytes)
{
	const uintptr_t at = (uintptr_t)w->c.k | (uintptr_t)w->c.v | (uintptr_t)w->q;

	return bytes > 0 && bytes <= 32 * 16 && (bytes | at) % 16 == 0;
}

/* w: rows and list are set. query: its pos is NULL where all rows are seen. o and lse may each be
 * NULL. */
static void
attend_decode(struct dev *d, float *o, float *lse, struct decode_call *w,
    const struct query *query, enum kv_dtype dtype)
{
	const uint32_t R = query->H / w->c.G, M = query->N * R <= 4 ? 4 : 8;
	const size_t queries = (size_t)query->N * R;
	size_t parts;
	float *part;

	w->q = query->q;
	w->qpos = query->pos;
	w->N = query->N;
	w->H = query->H;
	if (d->reference || !takes_pieces(w, w->c.E * kv_dtype_size(dtype))) {
		gpu_attend_naive(d, o, lse, query, &w->c, &w->list, dtype);
		return;
	}
	w->scale = (float)(M_LOG2E / sqrt((double)w->c.E));
	w->groups = parts_of(queries, M);
	w->splits = max(1u, BLOCKS * d->sms / w->groups);
	parts = (w->splits + w->c.G) * queries;
	part = (float *)gpu_scratch(d, SCRATCH_PARTS, parts * (w->c.E + 2) * sizeof *part +
	    w->c.G * sizeof *w->visible);
	if (part == NULL)
		return;
	w->part_out = part;
	w->part_sum = (float2 *)(part + parts * w->c.E);
	w->limits = limits_of(query, M_LOG2E);
	w->visible = (struct visible *)(w->part_sum + parts);
	if (o == NULL)
		w->c.v = NULL;
	with_type(dtype, [&](auto t) { launch_tiles<decltype(t)>(d, *w, M); });
	with_limited(w->limits, [&](auto limited) {
		LAUNCH_PDL(d, (combine_splits<limited.value>), w->N * w->H, THREADS,
		    (parts_of(w->splits, 4) * 4 + WARPS * w->c.E) * sizeof *part, o, lse, *w);
	});
}

void
gpu_attend_decode(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l)
{
	struct decode_call w = {};

	if (query->N > 0 && query->H > 0 &&
	    gpu_capturable_rows_of(d, &w.c, l, query->H, "attend") &&
	    gpu_row_list_of(d, &w.list, l, NULL))
		attend_decode(d, o, lse, &w, query, l->dtype);
}

void
gpu_attend_chosen(struct dev *d, float *o, const struct query *query, const struct layer_rows *l,
    const struct chosen *chosen)
{
	struct query all = *query;
	struct decode_call w = {};

	all.pos = NULL;
	if (query->H > 0 && gpu_one_query_row(d, query) &&
	    gpu_rows_of(d, &w.c, l, query->H, "attend_chosen") &&
	    gpu_row_list_of(d, &w.list, l, chosen))
		attend_decode(d, o, NULL, &w, &all, l->dtype);
}

/* gpu_decode_split.h - decode attention: one split of the rows of a call, and what combines the
 * splits: the blocks of gpu_decode.cu's kernels */
#ifndef GPU_DECODE_SPLIT_H
#define GPU_DECODE_SPLIT_H

#include "gpu/gpu_decode_mma.h"

constexpr uint32_t THREADS = 32 * WARPS;
constexpr uint32_t BLOCKS = 2;           /* of an SM */
constexpr uint32_t MIN_SPLIT_ROWS = 64;  /* two tiles for each warp */

/* The rows of a KV head that a limited call reads */
struct visible { uint32_t first, n; };

/* One call */
struct decode_call {
	struct rows c;
	struct row_list list;
	float *o, *lse;          /* as attend()'s; each may be NULL */
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

/* ---- the host's part ---- */

/* The query rows of a group */
static inline uint32_t
group_rows(const struct decode_call *w)
{
	return w->N * (w->H / w->c.G) <= 4 ? 4 : 8;
}

/* Completes w, whose rows and list are set, but for partial results. query: its pos is NULL where
 * all rows are seen. o and lse may each be NULL. blocks: of an SM */
static inline void
complete_call(const struct dev *d, struct decode_call *w, float *o, float *lse,
    const struct query *query, uint32_t blocks)
{
	w->o = o;
	w->lse = lse;
	w->q = query->q;
	w->qpos = query->pos;
	w->N = query->N;
	w->H = query->H;
	if (o == NULL)
		w->c.v = NULL;
	w->scale = (float)(M_LOG2E / sqrt((double)w->c.E));
	w->groups = parts_of((size_t)w->N * (w->H / w->c.G), group_rows(w));
	w->splits = max(1u, blocks * d->sms / w->groups);
	w->limits = limits_of(query, M_LOG2E);
}

/* Bytes of the partial results of so many splits, a multiple of 16 */
static inline size_t
parts_size(const struct decode_call *w, uint32_t splits)
{
	const size_t parts = (size_t)(splits + w->c.G) * w->N * (w->H / w->c.G);

	return (parts * (w->c.E + 2) * sizeof(float) + w->c.G * sizeof *w->visible + 15) / 16 * 16;
}

static inline void
place_parts(struct decode_call *w, uint32_t splits, char *at)
{
	const size_t parts = (size_t)(splits + w->c.G) * w->N * (w->H / w->c.G);

	w->part_out = (float *)at;
	w->part_sum = (float2 *)(w->part_out + parts * w->c.E);
	w->visible = (struct visible *)(w->part_sum + parts);
}

/* The dynamic shared memory of combine_block() */
static inline size_t
combine_shared(const struct decode_call *w)
{
	return (parts_of(w->splits, 4) * 4 + WARPS * w->c.E) * sizeof(float);
}

/* The splits that have rows, at most. Of all rows also when some have been appended that there is
 * room for, as they are between launches of a graph */
static inline uint32_t
used_splits(const struct decode_call *w, const struct layer_rows *l)
{
	const bool all = w->list.at == NULL && l->capacity != NULL;
	uint64_t rows = 0;

	for (uint32_t g = 0; g < w->c.G; g++)
		rows += all ? l->capacity[g] : w->list.n[g];
	return (uint32_t)min((uint64_t)w->splits,
	    max((uint64_t)1, (rows + MIN_SPLIT_ROWS - 1) / MIN_SPLIT_ROWS));
}

/* Most calls of one launch: their table is on the stack. */
constexpr uint32_t TOGETHER = 32;

/* gpu_decode.cu: c and list of w, and the query, of one of several calls. Returns 0 where it cannot
 * be one. */
int gpu_rows_of_call(struct dev *, struct decode_call *w, struct query *,
    const struct attention *);

/* gpu_decode_quantised.cu: the first of n calls, together; returns how many. 0: the first one has
 * no quantised rows, or is to be done alone. */
uint32_t gpu_decode_quantised_each(struct dev *, const struct attention *, uint32_t n);

/* gpu_decode_quantised.cu: the call with quantised rows, of which c and list are set */
void gpu_decode_quantised(struct dev *, float *o, float *lse, struct decode_call *,
    const struct query *, const struct layer_rows *);

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
find_visible(struct visible *visible, const struct decode_call &w, uint32_t appended,
    uint32_t block)
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
		if (block == 0)
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

/* The query of this lane */
template <class T, int WIDTH>
DEVICE void
load_queries(struct mma_state<T, WIDTH> &r, const struct decode_call &w, uint32_t g,
    uint32_t group)
{
	using W = mma_tile<T, WIDTH>;
	const uint32_t R = w.H / w.c.G, i = group * W::M + W::query_of(threadIdx.x % 32);
	const size_t row = (size_t)(i / R) * w.H + g * R + i % R;

	load_query(r, i < w.N * R ? w.q + row * w.c.E : NULL, w.c.E, w.scale);
}

/* Reduces the softmax state over the lanes of this warp and stores it. place(lane, e): the channel
 * of the lane's number e. */
template <class T, int L, int M, class F>
DEVICE void
store_warp_sums_at(typename tile<T, L, M>::sums &to, struct softmax_state<T, L, M> &r, F &&place)
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
				to.out[warp][m][place(lane, e)] = r.out[m][e];
		}
}

template <class T, int L, int M>
DEVICE void
store_warp_sums(typename tile<T, L, M>::sums &to, struct softmax_state<T, L, M> &r)
{
	store_warp_sums_at<T, L, M>(to, r, [](uint32_t lane, int e) {
		return lane * tile<T, L, M>::EACH + e;
	});
}

/* Combines the results of the block's warps and writes the partial result. */
template <int M, int WIDTH>
DEVICE void
write_part(const struct decode_call &w, const struct warp_sums<M, WIDTH> &from, uint32_t part,
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
template <class W, bool LIMITED>
DEVICE void
attend_rows(const struct decode_call &w, uint4 *shared, uint32_t g, uint32_t first, uint32_t end,
    uint32_t part, uint32_t group)
{
	const uint32_t R = w.H / w.c.G, lane = threadIdx.x % 32;
	const uint32_t *pos = w.c.pos + w.c.start[g];
	const size_t bytes = w.c.E * W::ELEMENT, at = w.c.start[g] * bytes;
	const uint32_t k = W::key_piece(lane) * 16, v = W::value_piece(lane) * 16;
	struct cursor cursor = { g, first, end, 0, 0, 0,
		k < bytes ? (const char *)w.c.k + at + k : NULL,
		v < bytes && w.c.v != NULL ? (const char *)w.c.v + at + v : NULL, bytes };
	uint4 *ring = shared + threadIdx.x / 32 * W::RING;
	constexpr uint32_t M = W::M;
	typename W::state r;
	uint32_t here = NO_ROW;

	prologue(r, ring, cursor, w.list);
	/* Positions ascend: where the first query sees the last row and, through a window, the
	 * last query the first row, all queries see all rows. Read before the queries, and compared
	 * after: no load waits for another one. */
	const bool by_position = w.qpos != NULL;
	const uint32_t last_row = by_position ? pos[end - 1] : 0;
	const uint32_t first_query = by_position ? w.qpos[group * M / R] : 0;
	const uint32_t first_row = LIMITED && by_position ? pos[first] : 0;
	const uint32_t last_query = LIMITED && by_position ?
	    w.qpos[min(group * M + M - 1, w.N * R - 1) / R] : 0;
	load_queries(r, w, g, group);
	if (last_row <= first_query && (!LIMITED || last_query - first_row <= w.limits.reach))
		pos = NULL;
	else
		here = w.qpos[min(group * M + W::query_of(lane), w.N * R - 1) / R];
	for_row_tiles<LIMITED>(r, ring, cursor, w.list, pos, here, w.limits);
	__syncthreads();
	store_warp_sums(*(typename W::sums *)shared, r);
	__syncthreads();
	write_part(w, *(const typename W::sums *)shared, part, group);
	__syncthreads();
}

/* to <- one of several calls, by the block */
DEVICE void
load_call(struct decode_call &to, const struct decode_call &from)
{
	static_assert(sizeof to % sizeof(uint32_t) == 0);
	for (uint32_t i = threadIdx.x; i < sizeof to / sizeof(uint32_t); i += THREADS)
		((uint32_t *)&to)[i] = ((const uint32_t *)&from)[i];
	__syncthreads();
}

/* First kernel: one block for each split and group of query rows. The groups of a split are
 * neighbours in the grid, so that they read the same rows at about the same time. */
template <class W, bool LIMITED>
DEVICE void
attend_block(const struct decode_call &w, uint32_t block)
{
	DYN_SHARED(uint4, shared);
	SHARED(struct visible[MAX_HEADS], visible);
	const uint32_t split = block / w.groups, group = block % w.groups;
	const uint32_t appended = appended_rows(w.c);
	if constexpr (LIMITED) {
		pdl_wait();
		find_visible(visible, w, appended, block);
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
		attend_rows<W, LIMITED>(w, shared, g,
		    before + (uint32_t)(at < first ? first - at : 0),
		    before + (uint32_t)((next < end ? next : end) - at), split + g, group);
	}
}

/* ---- combining the splits ---- */

/* Second kernel: one block for each query row and head. Each warp takes every fourth partial
 * result, a lane four channels of it: so all loads of a KV head with a few dozen splits are
 * in flight at once. */
template <bool LIMITED>
DEVICE void
combine_block(const struct decode_call &w, uint32_t block)
{
	DYN_SHARED(float, factor);                   /* [splits], then [WARPS][E] */
	SHARED(float[2][WARPS], of_warp);
	float4 *out = (float4 *)(factor + (w.splits + 3) / 4 * 4);
	const uint32_t R = w.H / w.c.G, h = block % w.H, g = h / R, E = w.c.E;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t appended = appended_rows(w.c);
	if constexpr (LIMITED)
		pdl_wait();
	const uint64_t rows = rows_of_split<LIMITED>(w, w.visible, appended);
	const uint64_t before = rows_before<LIMITED>(w, w.visible, g, appended);
	const uint32_t n = rows_of<LIMITED>(w, w.visible, g, appended);
	const uint32_t first = (uint32_t)(before / rows);
	const uint32_t parts = n == 0 ? 0 : (uint32_t)((before + n - 1) / rows) - first + 1;
	const size_t stride = w.N * R, from = (first + g) * stride + block / w.H * R + h % R;
	float top = -INFINITY, sum = 0;

	pdl_wait();
	pdl_trigger();           /* not earlier: prefetched weights would evict rows from L2 */
	for (uint32_t i = threadIdx.x; i < parts; i += THREADS)
		top = fmaxf(top, w.part_sum[from + i * stride].x);
	top = warp_max(top);
	if (lane == 0)
		of_warp[0][warp] = top;
	__syncthreads();
	for (uint32_t x = 0; x < WARPS; x++)
		top = fmaxf(top, of_warp[0][x]);
	for (uint32_t i = threadIdx.x; i < parts; i += THREADS) {
		const float2 p = w.part_sum[from + i * stride];

		factor[i] = top == -INFINITY ? 0 : exp2_fast(p.x - top);
		sum += factor[i] * p.y;
	}
	sum = warp_sum(sum);
	if (lane == 0)
		of_warp[1][warp] = sum;
	__syncthreads();
	for (uint32_t e = lane; e < E / 4 && w.o != NULL; e += 32) {
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
	for (uint32_t e = threadIdx.x; e < E && w.o != NULL; e += THREADS) {
		const float *x = (const float *)out + e;

		w.o[(size_t)block * E + e] =
		    sum == 0 ? 0 : (x[0] + x[E] + x[2 * E] + x[3 * E]) / sum;
	}
	if (threadIdx.x == 0 && w.lse != NULL)
		w.lse[block] = sum == 0 ? -INFINITY : (top + log2f(sum)) * (float)M_LN2;
}

/* The second kernel of a call, and of several calls in one launch */
template <bool LIMITED>
static __global__ void __launch_bounds__(THREADS)
combine_splits(const __grid_constant__ struct decode_call w)
{
	combine_block<LIMITED>(w, blockIdx.x);
}

template <bool LIMITED>
static __global__ void __launch_bounds__(THREADS)
combine_splits_each(const struct decode_call *calls)
{
	SHARED(struct decode_call, w);

	load_call(w, calls[blockIdx.y]);
	if (blockIdx.x < w.N * w.H)
		combine_block<LIMITED>(w, blockIdx.x);
}

#endif

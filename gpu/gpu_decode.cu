/* gpu_decode.cu - attention of few queries over many rows, or over those of a list
 *
 * Each key and value is used for few products, so what counts is that memory is busy all the
 * time, on every SM, whatever the lengths of the KV heads are.
 *
 * The plan: the rows of all KV heads, one after the other, are cut into equal shares, one for
 * each block. A share may end within a KV head, and may have the rows of several: each block
 * leaves a part for each KV head that it met (maximum, sum, and unnormalised output of each
 * query row), and a second kernel puts the parts of a KV head together, in the order of its
 * rows. The first kernel could do that in the block that ends last, which a counter would tell.
 * But whether the fences for that are right cannot be tested in the emulator, which runs blocks
 * one after another; a second kernel needs none.
 *
 * Every block works the plan out for itself, from the lengths alone; the grid does not depend on
 * them, so that the kernels can be recorded (gpu_graph.cu).
 *
 * In a block, each warp takes every fourth tile of a few rows (gpu_decode_warp.h). To keep HBM
 * busy for 0.8 us, 26 KB must be under way on each of 132 SMs; two blocks of four warps with
 * three pieces of 2 KB each have 48 KB.
 *
 * Arithmetic is f32 throughout, products by FMA. Tensor cores would want queries and weights
 * rounded to 16 bits. Up to 8 query rows are read from one copy of the keys, which fits into
 * registers; with more the work is done again for every 8, by blocks that run side by side,
 * so that all but the first find the rows in the second-level cache. */
#include "gpu/gpu_decode_warp.h"

constexpr uint32_t THREADS = 32 * WARPS;
constexpr uint32_t BLOCKS = 2;           /* of an SM */
constexpr uint32_t LEAST_ROWS = 64;      /* of a share: two tiles for each warp */

/* One call */
struct work {
	struct rows c;
	struct row_list list;
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
 * appended: appended_rows(), which a thread asks for once. Asked for in a loop over KV heads
 * it would be read from memory for each of them, one after the other. */

DEVICE uint32_t
rows_of(const struct work &w, uint32_t g, uint32_t appended)
{
	return w.list.n[g] + appended;
}

/* Rows of KV heads [0, g) together */
DEVICE uint64_t
rows_before(const struct work &w, uint32_t g, uint32_t appended)
{
	uint64_t n = (uint64_t)g * appended;

	for (uint32_t i = 0; i < g; i++)
		n += w.list.n[i];
	return n;
}

/* Rows of one share */
DEVICE uint64_t
rows_of_share(const struct work &w, uint32_t appended)
{
	const uint64_t n = (rows_before(w, w.c.G, appended) + w.shares - 1) / w.shares;

	return n < LEAST_ROWS ? LEAST_ROWS : (n + 7) / 8 * 8;
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

/* A share, for a group of query rows. The groups of a share are neighbours, so that they read
 * the same rows at about the same time. */
template <class T, int L, int M>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
attend_share(const __grid_constant__ struct work w)
{
	DYN_SHARED(uint4, shared);
	const uint32_t share = blockIdx.x / w.groups, group = blockIdx.x % w.groups;
	const uint32_t appended = appended_rows(w.c);
	const uint64_t rows = rows_of_share(w, appended), first = share * rows, end = first + rows;
	uint64_t at = 0, next;

	pdl_trigger();
	pdl_wait();
	for (uint32_t g = 0; g < w.c.G && at < end; g++, at = next) {
		next = at + rows_of(w, g, appended);
		if (next <= first || next == at)
			continue;
		attend_rows<T, L, M>(w, shared, g, (uint32_t)(at < first ? first - at : 0),
		    (uint32_t)((next < end ? next : end) - at), share + g, group);
	}
}

/* ---- the parts of a KV head, together ---- */

/* A block for each query row and head. Each warp takes every fourth part, a lane has four
 * channels of it: then all loads of a KV head with a few dozen parts are under way at once. */
static __global__ void __launch_bounds__(THREADS)
join_parts(float *o, float *lse, const __grid_constant__ struct work w)
{
	DYN_SHARED(float, factor);                   /* [shares], then [WARPS][E] */
	SHARED(float[2][WARPS], of_warp);
	float4 *out = (float4 *)(factor + (w.shares + 3) / 4 * 4);
	const uint32_t R = w.H / w.c.G, h = blockIdx.x % w.H, g = h / R, E = w.c.E;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, appended = appended_rows(w.c);
	const uint64_t rows = rows_of_share(w, appended), before = rows_before(w, g, appended);
	const uint32_t n = rows_of(w, g, appended), first = (uint32_t)(before / rows);
	const uint32_t parts = n == 0 ? 0 : (uint32_t)((before + n - 1) / rows) - first + 1;
	const size_t stride = w.N * R, from = (first + g) * stride + blockIdx.x / w.H * R + h % R;
	float top = -INFINITY, sum = 0;

	pdl_wait();
	pdl_trigger();        /* not before: weights would push rows out of the cache */
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

	LAUNCH_PDL(d, (attend_share<T, L, M>), w.shares * w.groups, THREADS, shared, w);
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
		const struct query query = { w->q, w->qpos, w->N, w->H, 0 };

		gpu_attend_naive(d, o, lse, &query, &w->c, &w->list, dtype);
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
	LAUNCH_PDL(d, join_parts, w->N * w->H, THREADS,
	    (parts_of(w->shares, 4) * 4 + WARPS * w->c.E) * sizeof *part, o, lse, *w);
}

void
gpu_attend_decode(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l)
{
	struct work w = {};

	if (query->N == 0 || query->H == 0 || !gpu_whole_window(d, query) ||
	    !gpu_capturable_rows_of(d, &w.c, l, query->H, "attend") ||
	    !gpu_row_list_of(d, &w.list, l, NULL))
		return;
	w.q = query->q;
	w.qpos = query->pos;
	w.N = query->N;
	w.H = query->H;
	attend_parts(d, o, lse, &w, l->dtype);
}

void
gpu_attend_chosen(struct dev *d, float *o, const struct query *query, const struct layer_rows *l,
    const struct chosen *chosen)
{
	struct work w = {};

	if (query->H == 0 || !gpu_one_query_row(d, query) ||
	    !gpu_rows_of(d, &w.c, l, query->H, "attend_chosen") ||
	    !gpu_row_list_of(d, &w.list, l, chosen))
		return;
	w.q = query->q;
	w.N = 1;
	w.H = query->H;
	attend_parts(d, o, NULL, &w, l->dtype);
}

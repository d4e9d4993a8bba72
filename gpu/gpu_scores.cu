/* gpu_scores.cu - scores of rows from their keys (q.k), and of pages from their bounds (Quest);
 * softcap of scores
 *
 * Both are matrix products with the queries. The score of a page, the sum over channels of max(q
 * * least, q * greatest), is min(q, 0) . least + max(q, 0) . greatest: a product of twice the
 * width with the entry as it is stored.
 *
 * The fast kernel, for elements of 16 bits, uses tensor cores, so that data read from memory
 * once is multiplied by all query heads for free: rows, or pages, are the a operand as they
 * are stored, 16 bytes for a lane; the queries, in split precision (gpu_index.h), are the b
 * operand. An infinite key or bound may give a NaN where the formula has a number. It is not
 * launched by PDL (port.h): load_once() reads must not change while the kernel runs, and the
 * kernel before may write the keys. */
#include "gpu/gpu_index.h"
#include "gpu/gpu_quantised.h"

static constexpr uint32_t
	THREADS = 128,
	WARPS = THREADS / 32,
	TILE = 16,                   /* rows or pages that a warp scores at a time */
	AHEAD = 4;                   /* loads of a lane in flight, of 64 bytes of an item each */

/* G lists of items: rows with their keys, or pages */
struct items {
	const unsigned char *data;
	size_t bytes;                /* of one */
	uint32_t E, G;
	uint64_t start[MAX_HEADS];
	uint32_t len[MAX_HEADS];
};

struct score_call {
	float *score;
	size_t stride;
	const float *q;
	uint32_t R, groups;          /* query heads of a KV head, split over so many blockIdx.y */
	float scale;                 /* 1 / sqrt(E) */
};

/* ---- the naive kernels ---- */

/* One warp for each row */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_key_scores(const struct score_call c, const struct items x)
{
	const uint32_t g = blockIdx.y, i = blockIdx.x * WARPS + threadIdx.x / 32;

	if (i < x.len[g])
		score_key(c.score + (size_t)g * c.R * c.stride + i, c.stride,
		    c.q + (size_t)g * c.R * x.E, c.R, (const T *)x.data + (x.start[g] + i) * x.E,
		    x.E, c.scale);
}

/* One warp for each page */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_page_scores(const struct score_call c, const struct items x)
{
	const uint32_t g = blockIdx.y, i = blockIdx.x * WARPS + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x % 32;

	if (i >= x.len[g])
		return;
	const T *const least = (const T *)(x.data + (x.start[g] + i) * x.bytes);
	const T *const most = least + x.E;
	for (uint32_t h = g * c.R; h < (g + 1) * c.R; h++) {
		float sum = 0;

		for (uint32_t e = lane; e < x.E; e += 32) {
			const float q = c.q[(size_t)h * x.E + e];

			sum += fmaxf(q * widen(least[e]), q * widen(most[e]));
		}
		sum = warp_sum(sum);
		if (lane == 0)
			c.score[h * c.stride + i] = sum * c.scale;
	}
}

/* ---- the fast kernel ---- */

/* Layers of query parts: two parts of f16 have 22 bits, four of bf16 have all 24. */
template <class T> struct parts;
template <> struct parts<f16> { static constexpr uint32_t layers = 1; };
template <> struct parts<bf16> { static constexpr uint32_t layers = 2; };

/* Steps of 16 channels: two for each load of 16 bytes */
static inline __host__ __device__ uint32_t
steps_of(size_t bytes)
{
	return (uint32_t)((bytes + 63) / 64 * 2);
}

/* sum[set][layer] += the products of the items at row[2], one of each half of the tile, with
 * the queries. Lane 4g + c reads, of items g and g + 8, bytes 16c .. 16c + 15 of each 64;
 * zeros behind the end. AHEAD loads are issued before the first is used. */
template <class T, uint32_t SETS>
DEVICE void
multiply(float sum[SETS * parts<T>::layers][4], const unsigned char *const row[2], uint32_t bytes,
    const uint2 *queries)
{
	const uint32_t lane = threadIdx.x % 32;

	for (uint32_t from = 0; from < bytes; from += AHEAD * 64) {
		uint4 x[AHEAD], y[AHEAD];

UNROLL		for (uint32_t i = 0; i < AHEAD; i++) {
			const uint32_t at = from + 64 * i + lane % 4 * 16;

			x[i] = y[i] = make_uint4(0, 0, 0, 0);
			if (at < bytes) {
				x[i] = load_once(row[0] + at);
				y[i] = load_once(row[1] + at);
			}
		}
UNROLL		for (uint32_t k = 0; k < 2 * AHEAD && from + k / 2 * 64 < bytes; k++) {
			const uint4 v = x[k / 2], w = y[k / 2];
			const uint32_t a[4] = { k % 2 == 0 ? v.x : v.z, k % 2 == 0 ? w.x : w.z,
				k % 2 == 0 ? v.y : v.w, k % 2 == 0 ? w.y : w.w };

UNROLL			for (uint32_t s = 0; s < SETS * parts<T>::layers; s++, queries += 32) {
				const uint2 q = queries[lane];
				const uint32_t b[2] = { q.x, q.y };

				mma(T{}, sum[s], a, b);
			}
		}
	}
}

/* Warps take tiles of one KV head round-robin. */
template <class T, uint32_t SETS, bool PAGES>
static __global__ void __launch_bounds__(THREADS)
scores(const struct score_call call, const struct items x)
{
	constexpr uint32_t LAYERS = parts<T>::layers;
	DYN_SHARED(uint2, queries);
	SHARED(int[SETS * SET], power);
	const uint32_t g = blockIdx.y / call.groups, lane = threadIdx.x % 32, n = x.len[g];
	const uint32_t group = blockIdx.y % call.groups * (SETS * SET);
	const uint32_t heads = at_most(call.R - group, SETS * SET), first = g * call.R + group;
	const uint32_t tiles = (n + TILE - 1) / TILE;
	float *const score = call.score + first * call.stride;

	if (blockIdx.x * WARPS >= tiles)
		return;
	make_queries<T, SETS, LAYERS, 2, PAGES>(queries, power,
	    call.q + (size_t)first * x.E, heads, x.E, steps_of(x.bytes), WARPS);
	__syncthreads();
	for (uint32_t tile = blockIdx.x * WARPS + threadIdx.x / 32; tile < tiles;
	    tile += gridDim.x * WARPS) {
		const uint32_t item[2] = { tile * TILE + lane / 4, tile * TILE + lane / 4 + 8 };
		const unsigned char *row[2];
		float sum[SETS * LAYERS][4] = {};

		for (int i = 0; i < 2; i++)            /* behind the end: the last item again */
			row[i] = x.data + (x.start[g] + at_most(item[i], n - 1)) * x.bytes;
		multiply<T, SETS>(sum, row, (uint32_t)x.bytes, queries);
UNROLL		for (uint32_t s = 0; s < SETS; s++) {
			const uint32_t h = s * SET + lane % 4;
			const float unit = scalbnf(call.scale, -power[h]);

UNROLL			for (uint32_t i = 0; i < 2; i++) {
				float all = 0;

UNROLL				for (uint32_t j = LAYERS; j-- > 0;)
					all += sum[s * LAYERS + j][2 * i + 1] +
					    sum[s * LAYERS + j][2 * i];
				if (h < heads && item[i] < n)
					score[h * call.stride + item[i]] = all * unit;
			}
		}
	}
}

/* ---- softcap ---- */

/* Lists of query heads along blockIdx.y */
static __global__ void __launch_bounds__(THREADS)
cap_scores(float *score, size_t stride, const __grid_constant__ struct lists l, uint32_t R,
    const struct limits limits)
{
	const uint32_t n = l.n[blockIdx.y / R] + grown(l);

	pdl_trigger();
	pdl_wait();
	score += blockIdx.y * stride;
	for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
		score[i] = softcapped(score[i], limits);
}

void
gpu_cap_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    struct counts n, uint32_t G)
{
	struct lists l;

	if (query->softcap > 0 && gpu_lists_of(d, &l, n, NULL, G, "scores") && l.most > 0)
		LAUNCH_PDL(d, cap_scores,
		    dim3(blocks_per_list(d, parts_of(l.most, THREADS), query->H, 16), query->H),
		    THREADS, 0, score, stride, l, query->H / G, limits_of(query, 1));
}

/* ---- the ops ---- */

template <class T, uint32_t SETS, bool PAGES>
static void
launch(struct dev *d, struct score_call &c, const struct items &x, uint32_t most)
{
	c.groups = parts_of(c.R, SETS * SET);
	LAUNCH(d, (scores<T, SETS, PAGES>), dim3(blocks_per_list(d, parts_of(most, TILE * WARPS),
	    x.G * c.groups, 5), x.G * c.groups), THREADS,
	    query_bytes(steps_of(x.bytes), SETS, parts<T>::layers), c, x);
}

template <class T, bool PAGES>
static void
score_fast(struct dev *d, struct score_call &c, const struct items &x, uint32_t most)
{
	if (c.R <= SET)
		launch<T, 1, PAGES>(d, c, x, most);
	else
		launch<T, 2, PAGES>(d, c, x, most);
}

/* Does the fast kernel take the shape? Items must be multiples of 16 bytes, and the queries
 * fit into shared memory. */
static int
fast(const struct dev *d, const struct items &x, enum kv_dtype dtype)
{
	return !d->reference && dtype != KV_F32 && x.bytes % 16 == 0 && x.E % 4 == 0 &&
	    (uintptr_t)x.data % 16 == 0 && query_bytes(steps_of(x.bytes), 2, 2) <= d->most_shared;
}

template <bool PAGES>
static void
score_items(struct dev *d, struct score_call &c, const struct items &x, enum kv_dtype dtype)
{
	const uint32_t most = longest_list(x.len, x.G);
	const dim3 each(parts_of(most, WARPS), x.G);

	if (most == 0 || !gpu_ok(d))
		return;
	if (fast(d, x, dtype) && dtype == KV_F16)
		score_fast<f16, PAGES>(d, c, x, most);
	else if (fast(d, x, dtype))
		score_fast<bf16, PAGES>(d, c, x, most);
	else
		with_type(dtype, [&](auto t) {
			using T = decltype(t);

			if (PAGES)
				LAUNCH(d, reference_page_scores<T>, each, THREADS, 0, c, x);
			else
				LAUNCH(d, reference_key_scores<T>, each, THREADS, 0, c, x);
		});
}

/* x <- items of G lists. Returns 0 after remembering a failure. */
static int
items_of(struct dev *d, struct items *x, const void *data, size_t bytes, uint32_t E, uint32_t G,
    const uint64_t *start, const uint32_t *len, uint32_t H)
{
	uint32_t g;

	gpu_fixes_lengths(d);
	if (G == 0 || G > MAX_HEADS || E == 0 || H % G != 0)
		gpu_fail(d, "scores: %u query heads over %u KV heads of width %u", H, G, E);
	if (!gpu_ok(d))
		return 0;
	*x = { .data = (const unsigned char *)data, .bytes = bytes, .E = E, .G = G, .start = {},
		.len = {} };
	for (g = 0; g < G; g++) {
		x->start[g] = start[g];
		x->len[g] = len[g];
	}
	return 1;
}

void
gpu_key_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct layer_rows *rows)
{
	const size_t bytes = rows->width * kv_dtype_size(rows->dtype);
	struct items x;

	if (!gpu_one_query_row(d, query) || !items_of(d, &x, rows->k, bytes, rows->width,
	    rows->heads, rows->start, rows->len, query->H))
		return;
	struct score_call c = { .score = score, .stride = stride, .q = query->q,
		.R = query->H / x.G, .groups = 1, .scale = (float)(1 / sqrt((double)x.E)) };
	if (is_quantised(rows_k_type(rows))) {
		struct rows r;

		if (gpu_rows_of(d, &r, rows, query->H, "scores"))
			gpu_scores_quantised(d, score, stride, query, &r, rows, NULL,
			    longest_list(x.len, x.G));
	} else
		score_items<false>(d, c, x, rows->dtype);
	gpu_cap_scores(d, score, stride, query, { rows->len, 0 }, x.G);
}

void
gpu_page_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct entries *pages, enum kv_dtype dtype)
{
	struct items x;

	if (!gpu_one_query_row(d, query) || !items_of(d, &x, pages->data, pages->bytes,
	    pages->width, pages->heads, pages->start, pages->len, query->H))
		return;
	if (x.bytes != 2 * x.E * kv_dtype_size(dtype)) {
		gpu_fail(d, "index: pages of %zu bytes, width %u", x.bytes, x.E);
		return;
	}
	struct score_call c = { .score = score, .stride = stride, .q = query->q,
		.R = query->H / x.G, .groups = 1, .scale = (float)(1 / sqrt((double)x.E)) };
	score_items<true>(d, c, x, dtype);
	gpu_cap_scores(d, score, stride, query, { pages->len, 0 }, x.G);
}

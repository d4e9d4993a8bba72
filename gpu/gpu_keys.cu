/* gpu_keys.cu - the scores of knorm (minus the norm of a key) and keydiff (minus its cosine with
 * the mean direction of the keys)
 *
 * Sums are in double precision, as in methods/, so that a choice on a GPU is the CPU's but for
 * the order of the sums. The limit is memory bandwidth: each key is read once or twice.
 *
 * A key is split over lanes of 8 elements each, their number rounded up to a power of two, so
 * that a warp reads several keys at a time; each lane has HELD loads in flight. */
#include "gpu/gpu_quantised.h"

constexpr uint32_t THREADS = 256, WARPS = THREADS / 32;
constexpr uint32_t V = 8;                /* elements of a lane */
constexpr uint32_t WIDEST = 32 * V;      /* E, of the fast kernels */
constexpr uint32_t HELD = 4;
constexpr uint32_t CHUNK = 64;           /* keys whose directions a block sums */

/* How the keys of a warp are mapped to its lanes */
struct lane_map {
	uint32_t lanes, lane;            /* lanes of a key; which of them this one is */
	uint32_t keys;                   /* that the warp loads together */
	uint32_t row;                    /* this lane's first key; the next: + keys */
};

/* The map for the keys from `first` on */
DEVICE struct lane_map
map_lanes(uint32_t lanes, uint32_t first)
{
	const uint32_t lane = threadIdx.x % 32;

	return { lanes, lane % lanes, 32 / lanes, first + lane / lanes };
}

/* The sum over the lanes of a key, in all of them */
DEVICE double
sum_lanes(double x, uint32_t lanes)
{
	for (uint32_t bit = lanes / 2; bit > 0; bit /= 2)
		x += __shfl_xor_sync(ALL_LANES, x, bit);
	return x;
}

/* k <- this lane's elements of its HELD keys; zeros behind the end */
template <class T>
DEVICE void
load_keys(pack<T, V> k[HELD], const struct rows &rows, uint32_t g, const struct lane_map &s,
    uint32_t end)
{
	const T *keys = (const T *)rows.k + rows.start[g] * rows.E + s.lane * V;

UNROLL	for (uint32_t j = 0; j < HELD; j++) {
		const uint32_t row = s.row + j * s.keys;

		k[j] = {};
		if (row < end && s.lane * V < rows.E)
			k[j] = *(const pack<T, V> *)(keys + (size_t)row * rows.E);
	}
}

template <class T>
DEVICE double
square(const pack<T, V> &k)
{
	double sum = 0;

UNROLL	for (uint32_t e = 0; e < V; e++)
		sum += (double)widen(k.at[e]) * widen(k.at[e]);
	return sum;
}

/* score <- minus the norm of each key; or, with anchors[G][E] of norm 1 or 0, minus the
 * cosine */
template <class T, bool ANCHORED>
static __global__ void __launch_bounds__(THREADS)
score_keys(float *score, size_t stride, const struct rows rows, const double *anchors,
    uint32_t lanes)
{
	const uint32_t g = blockIdx.y, n = rows.len[g], each = HELD * (32 / lanes);
	const struct lane_map s = map_lanes(lanes, (blockIdx.x * WARPS + threadIdx.x / 32) * each);
	double anchor[V] = {};
	pack<T, V> k[HELD];

	load_keys(k, rows, g, s, n);
	if (ANCHORED && s.lane * V < rows.E)
UNROLL		for (uint32_t e = 0; e < V; e++)
			anchor[e] = anchors[g * rows.E + s.lane * V + e];
UNROLL	for (uint32_t j = 0; j < HELD; j++) {
		const uint32_t row = s.row + j * s.keys;
		const double sum = sum_lanes(square(k[j]), lanes);
		double dot = 0;

		if (ANCHORED) {
UNROLL			for (uint32_t e = 0; e < V; e++)
				dot += widen(k[j].at[e]) * anchor[e];
			dot = sum_lanes(dot, lanes);
		}
		if (s.lane == 0 && row < n)
			score[g * stride + row] = !ANCHORED ? (float)-sqrt(sum) :
			    sum == 0 ? 0 : (float)(-dot / sqrt(sum));
	}
}

/* First stage of a sum over keys: part[g][chunk][E] <- the sum of the directions of CHUNK keys;
 * blockIdx.x is the chunk, of `chunks` */
template <class T>
static __global__ void __launch_bounds__(THREADS)
sum_directions(double *part, const struct rows rows, uint32_t chunks, uint32_t lanes)
{
	SHARED(double[WARPS][WIDEST], of);
	const uint32_t g = blockIdx.y, each = HELD * (32 / lanes), warp = threadIdx.x / 32;
	const uint32_t first = blockIdx.x * CHUNK, end = min(rows.len[g], first + CHUNK);
	const struct lane_map whole = map_lanes(lanes, 0);
	double sum[V] = {};

	for (uint32_t at = first + warp * each; at < end; at += WARPS * each) {
		const struct lane_map s = map_lanes(lanes, at);
		pack<T, V> k[HELD];

		load_keys(k, rows, g, s, end);
UNROLL		for (uint32_t j = 0; j < HELD; j++) {
			const double squared = sum_lanes(square(k[j]), lanes);
			const double scale = squared == 0 ? 0 : 1 / sqrt(squared);

UNROLL			for (uint32_t e = 0; e < V; e++)
				sum[e] += widen(k[j].at[e]) * scale;
		}
	}
UNROLL	for (uint32_t e = 0; e < V; e++) {
		for (uint32_t bit = 16; bit >= lanes; bit /= 2)        /* the warp's keys */
			sum[e] += __shfl_xor_sync(ALL_LANES, sum[e], bit);
		if (threadIdx.x % 32 < lanes)
			of[warp][whole.lane * V + e] = sum[e];
	}
	__syncthreads();
	if (threadIdx.x < rows.E) {
		double all = 0;

		for (uint32_t w = 0; w < WARPS; w++)
			all += of[w][threadIdx.x];
		part[((size_t)g * chunks + blockIdx.x) * rows.E + threadIdx.x] = all;
	}
}

/* Second stage: anchors[g][E] <- the sum of the chunks, scaled to norm 1 unless it is 0; one
 * block for each KV head */
static __global__ void __launch_bounds__(WIDEST)
sum_chunks(double *anchors, const double *part, const struct rows rows, uint32_t chunks)
{
	SHARED(double[WIDEST / 32], of);
	const uint32_t g = blockIdx.x, e = threadIdx.x, mine = (rows.len[g] + CHUNK - 1) / CHUNK;
	double sum = 0, squared = 0;

	part += (size_t)g * chunks * rows.E + e;
	for (uint32_t i = 0; e < rows.E && i < mine; i++)
		sum += part[(size_t)i * rows.E];
	const double warp = sum_lanes(sum * sum, 32);
	if (e % 32 == 0)
		of[e / 32] = warp;
	__syncthreads();
	for (uint32_t w = 0; w < WIDEST / 32; w++)
		squared += of[w];
	if (e < rows.E)
		anchors[g * rows.E + e] = squared == 0 ? 0 : sum / sqrt(squared);
}

/* ---- the naive kernels ---- */

template <class T>
DEVICE double
whole_square(const T *k, uint32_t E)
{
	double sum = 0;

	for (uint32_t e = 0; e < E; e++)
		sum += (double)widen(k[e]) * widen(k[e]);
	return sum;
}

/* One thread for each row, blockIdx.y is the KV head. anchors NULL: norms */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_score_keys(float *score, size_t stride, const struct rows rows, const double *anchors)
{
	const uint32_t g = blockIdx.y, row = blockIdx.x * THREADS + threadIdx.x, E = rows.E;
	double dot = 0, length = 0;

	if (row >= rows.len[g])
		return;
	const T *k = (const T *)rows.k + (rows.start[g] + row) * E;
	const double sum = whole_square(k, E);
	for (uint32_t e = 0; anchors != NULL && e < E; e++) {
		dot += widen(k[e]) * anchors[g * E + e];
		length += anchors[g * E + e] * anchors[g * E + e];
	}
	score[g * stride + row] = anchors == NULL ? (float)-sqrt(sum) :
	    sum == 0 || length == 0 ? 0 : (float)(-dot / sqrt(sum) / sqrt(length));
}

/* One thread for each channel, blockIdx.y is the KV head. The anchors are not scaled. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_anchors(double *anchors, const struct rows rows)
{
	const uint32_t g = blockIdx.y, e = blockIdx.x * THREADS + threadIdx.x, E = rows.E;
	double all = 0;

	if (e >= E)
		return;
	for (uint32_t row = 0; row < rows.len[g]; row++) {
		const T *k = (const T *)rows.k + (rows.start[g] + row) * E;
		const double sum = whole_square(k, E);

		all += sum == 0 ? 0 : widen(k[e]) / sqrt(sum);
	}
	anchors[g * E + e] = all;
}

/* ---- keys of quantised types ----
 *
 * One warp for each key, for all widths. Transformed keys are as long as those that they stand for,
 * and have the same angles. */

DEVICE double
square_of(const unsigned char *key, const struct row_format &f, uint32_t E)
{
	double sum = 0;

	for_channels(key, f, E, threadIdx.x % 32, 32, [&](uint32_t, float x) {
		sum += (double)x * x;
	});
	return sum_lanes(sum, 32);
}

/* anchors NULL: norms */
static __global__ void __launch_bounds__(THREADS)
score_quantised(float *score, size_t stride, const struct rows rows, const double *anchors,
    const struct row_format f)
{
	const uint32_t g = blockIdx.y, row = blockIdx.x * WARPS + threadIdx.x / 32;
	double dot = 0;

	if (row >= rows.len[g])
		return;
	const unsigned char *key = (const unsigned char *)rows.k + (rows.start[g] + row) * f.bytes;
	const double sum = square_of(key, f, rows.E);
	if (anchors != NULL)
		for_channels(key, f, rows.E, threadIdx.x % 32, 32, [&](uint32_t e, float x) {
			dot += x * anchors[g * rows.E + e];
		});
	dot = sum_lanes(dot, 32);
	if (threadIdx.x % 32 == 0)
		score[g * stride + row] = anchors == NULL ? (float)-sqrt(sum) :
		    sum == 0 ? 0 : (float)(-dot / sqrt(sum));
}

/* part[g][chunk][E] <- as sum_directions() */
static __global__ void __launch_bounds__(THREADS)
sum_quantised_directions(double *part, const struct rows rows, const struct row_format f)
{
	DYN_SHARED(double, of);                        /* [WARPS][E] */
	const uint32_t g = blockIdx.y, E = rows.E, end = min(rows.len[g], (blockIdx.x + 1) * CHUNK);
	double *const mine = of + threadIdx.x / 32 * E;

	for (uint32_t e = threadIdx.x % 32; e < E; e += 32)
		mine[e] = 0;
	for (uint32_t r = blockIdx.x * CHUNK + threadIdx.x / 32; r < end; r += WARPS) {
		const unsigned char *key = (const unsigned char *)rows.k +
		    (rows.start[g] + r) * f.bytes;
		const double squared = square_of(key, f, E);
		const double scale = squared == 0 ? 0 : 1 / sqrt(squared);

		for_channels(key, f, E, threadIdx.x % 32, 32, [&](uint32_t e, float x) {
			mine[e] += x * scale;
		});
	}
	__syncthreads();
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		double all = 0;

		for (uint32_t w = 0; w < WARPS; w++)
			all += of[w * E + e];
		part[((size_t)g * gridDim.x + blockIdx.x) * E + e] = all;
	}
}

/* anchors[g][E] <- as sum_chunks(); one block for each KV head */
static __global__ void __launch_bounds__(THREADS)
sum_quantised_chunks(double *anchors, const double *part, const struct rows rows, uint32_t chunks)
{
	SHARED(double[WARPS], of);
	const uint32_t g = blockIdx.x, E = rows.E, mine = (rows.len[g] + CHUNK - 1) / CHUNK;
	double squared = 0;

	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		double sum = 0;

		for (uint32_t i = 0; i < mine; i++)
			sum += part[((size_t)g * chunks + i) * E + e];
		anchors[g * E + e] = sum;
		squared += sum * sum;
	}
	squared = sum_lanes(squared, 32);
	if (threadIdx.x % 32 == 0)
		of[threadIdx.x / 32] = squared;
	__syncthreads();
	squared = 0;
	for (uint32_t w = 0; w < WARPS; w++)
		squared += of[w];
	for (uint32_t e = threadIdx.x; e < E; e += THREADS)
		anchors[g * E + e] = squared == 0 ? 0 : anchors[g * E + e] / sqrt(squared);
}

/* ---- the ops ---- */

/* Lanes of a key in the fast kernels; 0: they do not take the shape */
static uint32_t
lanes_for(const struct dev *d, const struct layer_rows *l)
{
	const size_t unit = V * kv_dtype_size(l->dtype);
	uint32_t lanes = 1;

	if (d->reference || l->width % V != 0 || l->width > WIDEST || (uintptr_t)l->k % unit != 0)
		return 0;
	while (lanes * V < l->width)
		lanes *= 2;
	return lanes;
}

static uint32_t
longest(const struct layer_rows *l)
{
	uint32_t most = 0, g;

	for (g = 0; g < l->heads; g++)
		most = most > l->len[g] ? most : l->len[g];
	return most;
}

template <class T, bool ANCHORED>
static void
make_scores(struct dev *d, float *score, size_t stride, const struct rows &rows, uint32_t most,
    const double *anchors, uint32_t lanes)
{
	if (lanes > 0)
		LAUNCH(d, (score_keys<T, ANCHORED>),
		    dim3(parts_of(most, WARPS * HELD * (32 / lanes)), rows.G), THREADS, 0, score,
		    stride, rows, anchors, lanes);
	else
		LAUNCH(d, reference_score_keys<T>, dim3(parts_of(most, THREADS), rows.G), THREADS,
		    0, score, stride, rows, anchors);
}

/* Either op on keys of quantised types. anchors: [G][E], and behind it room for the chunks; NULL:
 * norms */
static void
launch_quantised(struct dev *d, float *score, size_t stride, const struct rows &rows, uint32_t most,
    double *anchors, const struct layer_rows *l)
{
	const uint32_t chunks = parts_of(most, CHUNK);
	struct row_formats f;

	if (!gpu_formats_of(d, &f, l, "keys"))
		return;
	if (anchors != NULL) {
		double *part = anchors + (size_t)rows.G * rows.E;

		LAUNCH(d, sum_quantised_directions, dim3(chunks, rows.G), THREADS,
		    WARPS * rows.E * sizeof(double), part, rows, f.k);
		LAUNCH(d, sum_quantised_chunks, rows.G, THREADS, 0, anchors, part, rows, chunks);
	}
	LAUNCH(d, score_quantised, dim3(parts_of(most, WARPS), rows.G), THREADS, 0, score, stride,
	    rows, anchors, f.k);
}

void
gpu_knorm(struct dev *d, float *score, size_t stride, const struct layer_rows *l)
{
	const uint32_t most = longest(l), lanes = lanes_for(d, l);
	struct rows rows;

	if (!gpu_rows_of(d, &rows, l, l->heads, "knorm") || most == 0)
		return;
	if (is_quantised(rows_k_type(l))) {
		launch_quantised(d, score, stride, rows, most, NULL, l);
		return;
	}
	with_type(l->dtype, [&](auto t) {
		make_scores<decltype(t), false>(d, score, stride, rows, most, NULL, lanes);
	});
}

void
gpu_keydiff(struct dev *d, float *score, size_t stride, const struct layer_rows *l)
{
	const uint32_t most = longest(l), lanes = lanes_for(d, l), chunks = parts_of(most, CHUNK);
	const size_t anchor = (size_t)l->heads * l->width;
	struct rows rows;
	double *anchors;

	if (!gpu_rows_of(d, &rows, l, l->heads, "keydiff") || most == 0)
		return;
	anchors = (double *)gpu_scratch(d, SCRATCH_PARTS, anchor * (1 + chunks) * sizeof *anchors);
	if (anchors == NULL)
		return;
	if (is_quantised(rows_k_type(l))) {
		launch_quantised(d, score, stride, rows, most, anchors, l);
		return;
	}
	with_type(l->dtype, [&](auto t) {
		using T = decltype(t);

		if (lanes > 0) {
			LAUNCH(d, sum_directions<T>, dim3(chunks, rows.G), THREADS, 0,
			    anchors + anchor, rows, chunks, lanes);
			LAUNCH(d, sum_chunks, rows.G, WIDEST, 0, anchors, anchors + anchor, rows,
			    chunks);
		} else
			LAUNCH(d, reference_anchors<T>, dim3(parts_of(rows.E, THREADS), rows.G),
			    THREADS, 0, anchors, rows);
		make_scores<T, true>(d, score, stride, rows, most, anchors, lanes);
	});
}

/* gpu_rows.cu - elementwise and row-wise ops: embedding lookup, RMSNorm, rounding, SwiGLU
 *
 * They are bound by memory bandwidth, or in decoding, with one row, by launch latency. So a
 * thread moves 16 bytes at a time where rows are aligned to that (gpu_rows.h), and a row is
 * split over as many threads as it has work for. */
#include "gpu/gpu_block.h"
#include "gpu/gpu_rows.h"

constexpr unsigned THREADS = 256;

/* ---- embed ---- */

/* Gather of rows of the table: blockIdx.x is the row, a thread has V elements of it */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
embed(float *x, const T *table, const uint32_t *tok, uint32_t out, uint32_t D)
{
	const uint32_t i = V * (blockIdx.y * THREADS + threadIdx.x), row = tok[blockIdx.x];
	pack<T, V> p = {};
	float f[V];

	if (i >= D)
		return;
	if (row < out)
		p = *(const pack<T, V> *)(table + (size_t)row * D + i);
	for (int e = 0; e < V; e++)
		f[e] = row < out ? widen(p.at[e]) : NAN;
	store_floats<V>(x + (size_t)blockIdx.x * D + i, f);
}

void
gpu_embed_ids(struct dev *d, float *x, const struct mat *table, const uint32_t *tok, uint32_t N)
{
	const uint32_t D = table->in;

	if (N == 0 || D == 0)
		return;
	with_type(mat_elements(table), [&](auto t) {
		using T = decltype(t);
		constexpr int V = 16 / sizeof t;
		const T *data = (const T *)table->data;

		if (aligned_16(d, data, D * sizeof t) && aligned_16(d, x, D * sizeof *x))
			LAUNCH(d, (embed<T, V>), dim3(N, parts_of(D, V * THREADS)), THREADS, 0, x,
			    data, tok, table->out, D);
		else
			LAUNCH(d, (embed<T, 1>), dim3(N, parts_of(D, THREADS)), THREADS, 0, x, data,
			    tok, table->out, D);
	});
}

void
gpu_embed(struct dev *d, float *x, const struct mat *table, const uint32_t *tok, uint32_t N)
{
	const uint32_t *list;

	for (uint32_t n = 0; n < N; n++)
		if (tok[n] >= table->out)
			gpu_fail(d, "embed: token %u of a vocabulary of %u", tok[n], table->out);
	if (N > 0 && (list = (const uint32_t *)gpu_list(d, tok, N * sizeof *tok)) != NULL)
		gpu_embed_ids(d, x, table, list, N);
}

/* ---- rmsnorm ---- */

/* 1 / sqrt(mean of squares + eps) in all threads of the block, from the partial sum of each */
DEVICE float
rms_scale(float sum, uint32_t D, float eps)
{
	SHARED(float[32], part);

	sum = warp_sum(sum);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = 0;
	for (unsigned i = 0; i < blockDim.x / 32; i++)
		sum += part[i];
	return 1 / sqrtf(sum / (float)D + eps);
}

/* One block for each row */
static __global__ void __launch_bounds__(THREADS)
reference_rmsnorm(float *y, const float *x, const float *w, uint32_t D, float eps)
{
	const float *row = x + (size_t)blockIdx.x * D;
	float sum = 0;

	for (uint32_t i = threadIdx.x; i < D; i += THREADS)
		sum += row[i] * row[i];
	const float scale = rms_scale(sum, D, eps);
	for (uint32_t i = threadIdx.x; i < D; i += THREADS)
		y[(size_t)blockIdx.x * D + i] = row[i] * scale * w[i];
}

constexpr unsigned NORM_THREADS = 1024, HELD = 4;      /* at most; loads of 16 bytes of a thread */

/* RMSNorm with the row in registers; the loads of w overlap with the sum. scales is not NULL
 * where T is f16, whose rows may have to be divided by a scale. */
template <class T>
static __global__ void __launch_bounds__(NORM_THREADS)
rmsnorm(T *y, float *scales, const float *x, const float *w, uint32_t D, float eps)
{
	const uint32_t n = blockDim.x, fours = D / 4, t = threadIdx.x;
	const pack<float, 4> *row = (const pack<float, 4> *)(x + (size_t)blockIdx.x * D);
	pack<float, 4> v[HELD] = {}, u[HELD] = {};
	float sum = 0, most = 0, by = 1;

UNROLL	for (uint32_t j = 0; j < HELD; j++)
		if (t + j * n < fours)
			v[j] = row[t + j * n];
UNROLL	for (uint32_t j = 0; j < HELD; j++)
		if (t + j * n < fours)
			u[j] = ((const pack<float, 4> *)w)[t + j * n];
UNROLL	for (uint32_t j = 0; j < HELD; j++)
		for (int e = 0; e < 4; e++)
			sum += v[j].at[e] * v[j].at[e];
	const float scale = rms_scale(sum, D, eps);
UNROLL	for (uint32_t j = 0; j < HELD; j++)
		for (int e = 0; e < 4; e++) {
			v[j].at[e] *= scale * u[j].at[e];
			most = fmaxf(most, fabsf(v[j].at[e]));
		}
	if (scales != NULL) {
		by = scale_of(block_max(most));
		if (t == 0)
			scales[blockIdx.x] = by;
		by = 1 / by;
	}
UNROLL	for (uint32_t j = 0; j < HELD; j++) {
		for (int e = 0; e < 4; e++)
			v[j].at[e] *= by;
		if (t + j * n < fours)
			store_narrow<T, 4>(y + (size_t)blockIdx.x * D + 4 * (t + j * n), v[j].at);
	}
}

/* Does a row fit into the registers of a block, and is it aligned to 16 bytes? */
static bool
held_by_block(const struct dev *d, const float *x, const float *w, uint32_t D)
{
	return D <= 4 * HELD * NORM_THREADS && aligned_16(d, x, D * sizeof *x) &&
	    aligned_16(d, w, 0);
}

/* Few rows: as many threads as there is work for, for the latency of a row. Many rows: fewer
 * threads with more work each, so that more blocks are resident. */
static unsigned
norm_threads(const struct dev *d, uint32_t N, uint32_t D)
{
	const unsigned threads = parts_of(D, 4 * 32 * (N < 2 * d->sms ? 1 : HELD)) * 32;

	return threads < NORM_THREADS ? threads : NORM_THREADS;
}

void
gpu_rmsnorm(struct dev *d, float *y, const float *x, const float *w, uint32_t N, uint32_t D,
    float eps)
{
	if (N == 0)
		return;
	if (held_by_block(d, x, w, D) && aligned_16(d, y, 0))
		LAUNCH(d, rmsnorm<float>, N, norm_threads(d, N, D), 0, y, NULL, x, w, D, eps);
	else
		LAUNCH(d, reference_rmsnorm, N, THREADS, 0, y, x, w, D, eps);
}

int
gpu_norm_narrow(struct dev *d, struct narrow *to, enum kv_dtype dtype, const float *x,
    const struct norm *norm, uint32_t N, uint32_t D)
{
	const unsigned threads = norm_threads(d, N, D);

	if (!held_by_block(d, x, norm->w, D) || !gpu_narrow_alloc(d, to, dtype, N, D))
		return 0;
	if (dtype == KV_F16)
		LAUNCH(d, rmsnorm<f16>, N, threads, 0, (f16 *)to->at, to->scale, x, norm->w, D,
		    norm->eps);
	else
		LAUNCH(d, rmsnorm<bf16>, N, threads, 0, (bf16 *)to->at, NULL, x, norm->w, D,
		    norm->eps);
	return 1;
}

/* ---- round ---- */

template <class T>
static __global__ void __launch_bounds__(THREADS)
round_to(float *x, size_t n)
{
	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
	    i += (size_t)gridDim.x * THREADS)
		x[i] = widen(narrow<T>(x[i]));
}

void
gpu_round(struct dev *d, float *x, size_t n, enum kv_dtype dtype)
{
	const unsigned grid = grid_of(n, THREADS);

	if (n == 0 || dtype == KV_F32)
		return;
	if (dtype == KV_F16)
		LAUNCH(d, round_to<f16>, grid, THREADS, 0, x, n);
	else
		LAUNCH(d, round_to<bf16>, grid, THREADS, 0, x, n);
}

/* ---- swiglu ---- */

DEVICE float
silu(float x)
{
	return x / (1 + expf(-x));
}

/* x/2 (1 + tanh(u)) = x / (1 + exp(-2u)) */
DEVICE float
gelu(float x)
{
	return x / (1 + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
}

/* to[V] <- silu(gate) * up, or gelu */
template <int V, bool GELU = false, class T>
DEVICE void
gated(float *to, const T *gate, const T *up)
{
	float u[V];

	load_floats<V>(to, gate);
	load_floats<V>(u, up);
	for (int e = 0; e < V; e++)
		to[e] = (GELU ? gelu(to[e]) : silu(to[e])) * u[e];
}

template <int V, bool GELU>
static __global__ void __launch_bounds__(THREADS)
glu(float *y, const float *gate, const float *up, size_t n)
{
	for (size_t i = V * ((size_t)blockIdx.x * THREADS + threadIdx.x); i < n;
	    i += (size_t)gridDim.x * V * THREADS) {
		float g[V];

		gated<V, GELU>(g, gate + i, up + i);
		store_floats<V>(y + i, g);
	}
}

template <bool GELU>
static void
launch_glu(struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t F)
{
	const size_t n = (size_t)N * F;
	const bool wide = aligned_16(d, y, n * 4) && aligned_16(d, gate, 0) && aligned_16(d, up, 0);
	const unsigned grid = grid_of(n, (wide ? 4 : 1) * THREADS);

	if (n == 0)
		return;
	if (wide)
		LAUNCH(d, (glu<4, GELU>), grid, THREADS, 0, y, gate, up, n);
	else
		LAUNCH(d, (glu<1, GELU>), grid, THREADS, 0, y, gate, up, n);
}

void
gpu_swiglu(struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t F)
{
	launch_glu<false>(d, y, gate, up, N, F);
}

void
gpu_geglu(struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t F)
{
	launch_glu<true>(d, y, gate, up, N, F);
}

/* ---- mix ---- */

static __global__ void __launch_bounds__(THREADS)
mix(float *y, const float *x, size_t n, float a, float b)
{
	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
	    i += (size_t)gridDim.x * THREADS)
		y[i] = b == 0 ? a * x[i] : a * x[i] + b * y[i];
}

void
gpu_mix(struct dev *d, float *y, const float *x, size_t n, float a, float b)
{
	if (n > 0)
		LAUNCH(d, mix, grid_of(n, THREADS), THREADS, 0, y, x, n, a, b);
}

/* ---- repeat_heads ---- */

/* A thread writes an element of y[n][times][E]. */
static __global__ void __launch_bounds__(THREADS)
repeat_heads(float *y, const float *x, size_t n, uint32_t times, uint32_t E)
{
	const size_t all = n * times * E;

	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all;
	    i += (size_t)gridDim.x * THREADS)
		y[i] = x[i / E / times * E + i % E];
}

void
gpu_repeat_heads(struct dev *d, float *y, const float *x, size_t n, uint32_t times, uint32_t E)
{
	const unsigned grid = grid_of(n * times * E, THREADS);

	if (grid > 0)
		LAUNCH(d, repeat_heads, grid, THREADS, 0, y, x, n, times, E);
}

/* ---- softcap ---- */

static __global__ void __launch_bounds__(THREADS)
softcap(float *x, size_t n, float cap)
{
	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
	    i += (size_t)gridDim.x * THREADS)
		x[i] = cap * tanhf(x[i] / cap);
}

void
gpu_softcap(struct dev *d, float *x, size_t n, float cap)
{
	if (n > 0)
		LAUNCH(d, softcap, grid_of(n, THREADS), THREADS, 0, x, n, cap);
}

constexpr unsigned GATED_THREADS = 1024;       /* at most */

/* SwiGLU with a 16-bit result, one block for each row; rows of gate and up are `stride` apart. f16
 * rows, which need a scale, are computed twice; the second time gate and up are in L2. */
template <class T, int V, class FROM>
static __global__ void __launch_bounds__(GATED_THREADS)
gated_rows(T *y, float *scales, const FROM *gate, const FROM *up, uint32_t F, size_t stride)
{
	const uint32_t first = V * threadIdx.x, step = V * blockDim.x;
	float by = 1, most = 0, g[V];

	y += (size_t)blockIdx.x * F;
	gate += blockIdx.x * stride;
	up += blockIdx.x * stride;
	if (scales != NULL) {
		for (uint32_t i = first; i < F; i += step) {
			gated<V>(g, gate + i, up + i);
			for (int e = 0; e < V; e++)
				most = fmaxf(most, fabsf(g[e]));
		}
		by = scale_of(block_max(most));
		if (threadIdx.x == 0)
			scales[blockIdx.x] = by;
		by = 1 / by;
	}
	for (uint32_t i = first; i < F; i += step) {
		gated<V>(g, gate + i, up + i);
		for (int e = 0; e < V; e++)
			g[e] *= by;
		store_narrow<T, V>(y + i, g);
	}
}

/* Threads of a block: fewer with more work each where there are many rows */
static unsigned
gated_threads(const struct dev *d, uint32_t N)
{
	return N < 2 * d->sms ? GATED_THREADS : THREADS;
}

int
gpu_swiglu_narrow(struct dev *d, struct narrow *to, enum kv_dtype dtype, const float *gate,
    const float *up, uint32_t N, uint32_t F)
{
	const bool wide = aligned_16(d, gate, F * sizeof *gate) && aligned_16(d, up, 0);
	const unsigned threads = gated_threads(d, N);

	if (!gpu_narrow_alloc(d, to, dtype, N, F))
		return 0;
	if (dtype == KV_F16 && wide)
		LAUNCH(d, (gated_rows<f16, 4, float>), N, threads, 0, (f16 *)to->at, to->scale,
		    gate, up, F, F);
	else if (dtype == KV_F16)
		LAUNCH(d, (gated_rows<f16, 1, float>), N, threads, 0, (f16 *)to->at, to->scale,
		    gate, up, F, F);
	else if (wide)
		LAUNCH(d, (gated_rows<bf16, 4, float>), N, threads, 0, (bf16 *)to->at, NULL, gate,
		    up, F, F);
	else
		LAUNCH(d, (gated_rows<bf16, 1, float>), N, threads, 0, (bf16 *)to->at, NULL, gate,
		    up, F, F);
	return 1;
}

int
gpu_swiglu_bf16(struct dev *d, struct narrow *to, const bf16 *gate_up, uint32_t N, uint32_t F)
{
	const unsigned threads = gated_threads(d, N);

	if (!gpu_narrow_alloc(d, to, KV_BF16, N, F))
		return 0;
	if (aligned_16(d, gate_up, F * sizeof *gate_up))
		LAUNCH(d, (gated_rows<bf16, 8, bf16>), N, threads, 0, (bf16 *)to->at, NULL, gate_up,
		    gate_up + F, F, 2 * (size_t)F);
	else
		LAUNCH(d, (gated_rows<bf16, 1, bf16>), N, threads, 0, (bf16 *)to->at, NULL, gate_up,
		    gate_up + F, F, 2 * (size_t)F);
	return 1;
}

/* gpu_rows.cu - ops that handle one row at a time: embed, rmsnorm, rope, store, swiglu
 *
 * Time is that of reading and writing, or in decoding, where there is one row, that of starting a
 * kernel. So a thread moves 16 bytes at once where rows are aligned to that (V elements;
 * else, and in the naive kernels, V is 1), and a row is shared by as many threads as it has
 * work for. */
#include "gpu/gpu_internal.h"

enum { THREADS = 256 };

/* May rows of so many bytes, the first of them at p, be moved by 16 bytes? */
static bool
by_16(const struct dev *d, const void *p, size_t bytes)
{
	return !d->reference && (uintptr_t)p % 16 == 0 && bytes % 16 == 0;
}

/* V floats, 16 bytes at once where they are so many */
template <int V>
DEVICE void
load_floats(float *to, const float *from)
{
	constexpr int W = V < 4 ? V : 4;

	for (int i = 0; i < V; i += W) {
		const pack<float, W> p = *(const pack<float, W> *)(from + i);

		for (int e = 0; e < W; e++)
			to[i + e] = p.at[e];
	}
}

template <int V>
DEVICE void
store_floats(float *to, const float *from)
{
	constexpr int W = V < 4 ? V : 4;

	for (int i = 0; i < V; i += W) {
		pack<float, W> p;

		for (int e = 0; e < W; e++)
			p.at[e] = from[i + e];
		*(pack<float, W> *)(to + i) = p;
	}
}

/* ---- embed ---- */

/* A thread for V elements, blockIdx.x the row */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
embed(float *x, const T *table, const uint32_t *tok, uint32_t D)
{
	const uint32_t i = V * (blockIdx.y * THREADS + threadIdx.x);
	float f[V];

	if (i >= D)
		return;
	const pack<T, V> p = *(const pack<T, V> *)(table + (size_t)tok[blockIdx.x] * D + i);
	for (int e = 0; e < V; e++)
		f[e] = widen(p.at[e]);
	store_floats<V>(x + (size_t)blockIdx.x * D + i, f);
}

void
gpu_embed(struct dev *d, float *x, const struct mat *table, const uint32_t *tok, uint32_t N)
{
	const uint32_t *list, D = table->in;

	for (uint32_t n = 0; n < N; n++)
		if (tok[n] >= table->out)
			gpu_fail(d, "embed: token %u of a vocabulary of %u", tok[n], table->out);
	if (N == 0 || (list = (const uint32_t *)gpu_list(d, tok, N * sizeof *tok)) == NULL)
		return;
	with_type(table->dtype, [&](auto t) {
		using T = decltype(t);
		constexpr int V = 16 / sizeof t;
		const T *data = (const T *)table->data;

		if (by_16(d, data, D * sizeof t) && by_16(d, x, D * sizeof *x))
			LAUNCH(d, (embed<T, V>), dim3(N, parts_of(D, V * THREADS)), THREADS, 0, x,
			    data, list, D);
		else
			LAUNCH(d, (embed<T, 1>), dim3(N, parts_of(D, THREADS)), THREADS, 0, x, data,
			    list, D);
	});
}

/* ---- rmsnorm ---- */

/* 1 / sqrt(mean of squares + eps) in all threads of the block, from the sum of each */
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

/* A block for each row */
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

enum { NORM_THREADS = 1024, HELD = 4 };        /* at most; 16 bytes of each thread */

/* The same, with the row in registers. w is under way while the sum is made. */
static __global__ void __launch_bounds__(NORM_THREADS)
rmsnorm(float *y, const float *x, const float *w, uint32_t D, float eps)
{
	const uint32_t n = blockDim.x, fours = D / 4, t = threadIdx.x;
	const pack<float, 4> *row = (const pack<float, 4> *)(x + (size_t)blockIdx.x * D);
	pack<float, 4> *to = (pack<float, 4> *)(y + (size_t)blockIdx.x * D);
	pack<float, 4> v[HELD] = {}, u[HELD] = {};
	float sum = 0;

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
UNROLL	for (uint32_t j = 0; j < HELD; j++) {
		for (int e = 0; e < 4; e++)
			v[j].at[e] *= scale * u[j].at[e];
		if (t + j * n < fours)
			to[t + j * n] = v[j];
	}
}

/* Few rows: as many threads as there is work for, so that a row is there soon. Many: fewer with
 * more work each, of which more blocks fit. */
void
gpu_rmsnorm(struct dev *d, float *y, const float *x, const float *w, uint32_t N, uint32_t D,
    float eps)
{
	const size_t row = D * sizeof *x;
	const unsigned fours = parts_of(D, 4), each = N < 2 * d->sms ? 1 : HELD;
	unsigned threads = parts_of(fours, 32 * each) * 32;

	if (N == 0)
		return;
	if (D > 4 * HELD * NORM_THREADS || !by_16(d, x, row) || !by_16(d, y, row) ||
	    !by_16(d, w, row)) {
		LAUNCH(d, reference_rmsnorm, N, THREADS, 0, y, x, w, D, eps);
		return;
	}
	if (threads > NORM_THREADS)
		threads = NORM_THREADS;
	LAUNCH(d, rmsnorm, N, threads, 0, y, x, w, D, eps);
}

/* ---- rope ---- */

enum { ROPE_THREADS = 128 };

/* blockIdx.x the row, blockIdx.y which heads of it. The angles are the same for all heads: sine and
 * cosine are made once. A thread turns V pairs that lie side by side. */
template <int V>
static __global__ void __launch_bounds__(ROPE_THREADS)
rope(float *x, const uint32_t *pos, const double *freq, uint32_t heads, uint32_t each, uint32_t E)
{
	DYN_SHARED(float, cosine);                     /* [half] */
	const uint32_t half = E / 2, h0 = blockIdx.y * each, per_head = half / V;
	float *const sine = cosine + half;             /* [half] */
	const double at = pos[blockIdx.x];

	for (uint32_t i = threadIdx.x; i < half; i += ROPE_THREADS)
		turn_by(&cosine[i], &sine[i], at * freq[i]);
	__syncthreads();
	for (uint32_t j = threadIdx.x; j < min(each, heads - h0) * per_head; j += ROPE_THREADS) {
		const uint32_t i = j % per_head * V;
		float *p = x + ((size_t)blockIdx.x * heads + h0 + j / per_head) * E + i;
		float a[V], b[V], to[V];

		load_floats<V>(a, p);
		load_floats<V>(b, p + half);
		for (int e = 0; e < V; e++)
			to[e] = a[e] * cosine[i + e] - b[e] * sine[i + e];
		store_floats<V>(p, to);
		for (int e = 0; e < V; e++)
			to[e] = b[e] * cosine[i + e] + a[e] * sine[i + e];
		store_floats<V>(p + half, to);
	}
}

/* Many rows: a block for each. Few: the heads are dealt out to blocks, a turn of a thread each. */
void
gpu_rope(struct dev *d, float *x, const uint32_t *pos, const double *freq, uint32_t N,
    uint32_t heads, uint32_t E)
{
	const bool wide = E % 8 == 0 && by_16(d, x, E * sizeof *x);
	const uint32_t half = E / 2;
	const uint32_t turns = parts_of(ROPE_THREADS * (wide ? 4 : 1), half > 0 ? half : 1);
	const uint32_t each = N < 2 * d->sms && turns < heads ? turns : heads;
	const dim3 grid(N, heads > 0 ? parts_of(heads, each) : 0);

	if (N == 0 || heads == 0 || half == 0)
		return;
	if (wide)
		LAUNCH(d, rope<4>, grid, ROPE_THREADS, E * sizeof *x, x, pos, freq, heads, each, E);
	else
		LAUNCH(d, rope<1>, grid, ROPE_THREADS, E * sizeof *x, x, pos, freq, heads, each, E);
}

/* ---- store ---- */

/* blockIdx.x the row; a thread for V elements of it */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
store(const struct rows to, const float *k, const float *v, const uint32_t *pos, uint32_t *to_pos)
{
	const uint32_t n = blockIdx.x, i = V * (blockIdx.y * THREADS + threadIdx.x), g = i / to.E;
	const uint32_t e = i % to.E;

	if (g >= to.G)
		return;
	const size_t from = (size_t)n * to.G * to.E + i, row = to.start[g] + to.len[g] + n;
	for (int which = 0; which < 2; which++) {
		const void *base = which == 0 ? to.k : to.v;
		float f[V];
		pack<T, V> p;

		if (base == NULL)
			continue;
		load_floats<V>(f, (which == 0 ? k : v) + from);
		for (int j = 0; j < V; j++)
			p.at[j] = narrow<T>(f[j]);
		*(pack<T, V> *)((T *)base + row * to.E + e) = p;
	}
	if (e == 0)
		to_pos[row] = pos[n];
}

void
gpu_store(struct dev *d, struct layer_rows *c, const float *k, const float *v,
    const uint32_t *pos, uint32_t N)
{
	const size_t elements = (size_t)c->heads * c->width;
	struct rows to;

	if (!gpu_rows_of(d, &to, c, c->heads, "store"))
		return;
	for (uint32_t g = 0; g < c->heads; g++)
		if (c->len[g] > c->room[g] || N > c->room[g] - c->len[g]) {
			gpu_fail(d, "store: KV head %u has %u rows of %u, no room for %u", g,
			    c->len[g], c->room[g], N);
			return;
		}
	if (N == 0 || elements == 0)
		return;
	with_type(c->dtype, [&](auto t) {
		using T = decltype(t);
		constexpr int V = 16 / sizeof t;
		const size_t row = c->width * sizeof t;

		if (by_16(d, c->k, row) && by_16(d, c->v, row) && by_16(d, k, 0) && by_16(d, v, 0))
			LAUNCH(d, (store<T, V>), dim3(N, parts_of(elements, V * THREADS)), THREADS,
			    0, to, k, v, pos, c->pos);
		else
			LAUNCH(d, (store<T, 1>), dim3(N, parts_of(elements, THREADS)), THREADS, 0,
			    to, k, v, pos, c->pos);
	});
	for (uint32_t g = 0; g < c->heads; g++)
		c->len[g] += N;
}

/* ---- swiglu ---- */

template <int V>
static __global__ void __launch_bounds__(THREADS)
swiglu(float *y, const float *gate, const float *up, size_t n)
{
	for (size_t i = V * ((size_t)blockIdx.x * THREADS + threadIdx.x); i < n;
	    i += (size_t)gridDim.x * V * THREADS) {
		float g[V], u[V];

		load_floats<V>(g, gate + i);
		load_floats<V>(u, up + i);
		for (int e = 0; e < V; e++)
			g[e] = g[e] / (1 + expf(-g[e])) * u[e];
		store_floats<V>(y + i, g);
	}
}

void
gpu_swiglu(struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t F)
{
	const size_t n = (size_t)N * F;
	const bool wide = by_16(d, y, n * 4) && by_16(d, gate, 0) && by_16(d, up, 0);
	const size_t blocks = parts_of(n, (wide ? 4 : 1) * THREADS);
	const unsigned grid = blocks < 65536 ? (unsigned)blocks : 65536;

	if (n == 0)
		return;
	if (wide)
		LAUNCH(d, swiglu<4>, grid, THREADS, 0, y, gate, up, n);
	else
		LAUNCH(d, swiglu<1>, grid, THREADS, 0, y, gate, up, n);
}

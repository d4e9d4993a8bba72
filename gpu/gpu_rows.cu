/* gpu_rows.cu - ops that handle one row at a time: embed, rmsnorm, rope, store, place, swiglu
 *
 * Time is that of reading and writing, or in decoding, where there is one row, that of starting a
 * kernel. So a thread moves 16 bytes at once where rows are aligned to that (V elements;
 * else, and in the naive kernels, V is 1), and a row is shared by as many threads as it has
 * work for. */
#include "gpu/gpu_internal.h"

constexpr unsigned THREADS = 256;

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

template <class T, int V>
DEVICE void
store_narrow(T *to, const float *from)
{
	pack<T, V> p;

	for (int e = 0; e < V; e++)
		p.at[e] = narrow<T>(from[e]);
	*(pack<T, V> *)to = p;
}

/* ---- embed ---- */

/* A thread for V elements, blockIdx.x the row */
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
gpu_look_up(struct dev *d, float *x, const struct mat *table, const uint32_t *tok, uint32_t N)
{
	const uint32_t D = table->in;

	if (N == 0 || D == 0)
		return;
	with_type(table->dtype, [&](auto t) {
		using T = decltype(t);
		constexpr int V = 16 / sizeof t;
		const T *data = (const T *)table->data;

		if (by_16(d, data, D * sizeof t) && by_16(d, x, D * sizeof *x))
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
		gpu_look_up(d, x, table, list, N);
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

constexpr unsigned NORM_THREADS = 1024, HELD = 4;      /* at most; 16 bytes of each thread */

/* The same, with the row in registers. w is under way while the sum is made. scales is not NULL
 * where rows must be divided so that T can hold them. */
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

/* Does a row fit into the registers of a block, 16 bytes by 16 bytes? */
static bool
held_by_block(const struct dev *d, const float *x, const float *w, uint32_t D)
{
	return D <= 4 * HELD * NORM_THREADS && by_16(d, x, D * sizeof *x) && by_16(d, w, 0);
}

/* Few rows: as many threads as there is work for, so that a row is there soon. Many: fewer with
 * more work each, of which more blocks fit. */
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
	if (held_by_block(d, x, w, D) && by_16(d, y, 0))
		LAUNCH(d, rmsnorm<float>, N, norm_threads(d, N, D), 0, y, NULL, x, w, D, eps);
	else
		LAUNCH(d, reference_rmsnorm, N, THREADS, 0, y, x, w, D, eps);
}

int
gpu_norm_narrow(struct dev *d, struct narrow *to, enum kv_dtype dtype, const float *x,
    const struct norm *norm, uint32_t N, uint32_t D)
{
	const unsigned threads = norm_threads(d, N, D);

	if (!held_by_block(d, x, norm->w, D) || !gpu_narrow_room(d, to, dtype, N, D))
		return 0;
	if (dtype == KV_F16)
		LAUNCH(d, rmsnorm<f16>, N, threads, 0, (f16 *)to->at, to->scale, x, norm->w, D,
		    norm->eps);
	else
		LAUNCH(d, rmsnorm<bf16>, N, threads, 0, (bf16 *)to->at, NULL, x, norm->w, D,
		    norm->eps);
	return 1;
}

/* ---- rope ---- */

constexpr unsigned ROPE_THREADS = 128;

/* cosine[half] and, behind it, sine[half] of the angles of a position, made by the whole block */
DEVICE void
angles(float *cosine, uint32_t pos, const double *freq, uint32_t half)
{
	for (uint32_t i = threadIdx.x; i < half; i += ROPE_THREADS)
		turn_by(&cosine[i], &cosine[half + i], (double)pos * freq[i]);
	__syncthreads();
}

/* V pairs (a, b), by angles that lie side by side */
template <int V>
DEVICE void
turn(float *a, float *b, const float *cosine, const float *sine)
{
	for (int e = 0; e < V; e++) {
		const float x = a[e];

		a[e] = x * cosine[e] - b[e] * sine[e];
		b[e] = b[e] * cosine[e] + x * sine[e];
	}
}

/* blockIdx.x the row, blockIdx.y which heads of it. The angles are the same for all heads: sine and
 * cosine are made once. A thread turns V pairs that lie side by side. */
template <int V>
static __global__ void __launch_bounds__(ROPE_THREADS)
rope(float *x, const uint32_t *pos, const double *freq, uint32_t heads, uint32_t each, uint32_t E)
{
	DYN_SHARED(float, cosine);                     /* [half], and sine[half] */
	const uint32_t half = E / 2, h0 = blockIdx.y * each, per_head = half / V;

	angles(cosine, pos[blockIdx.x], freq, half);
	for (uint32_t j = threadIdx.x; j < min(each, heads - h0) * per_head; j += ROPE_THREADS) {
		const uint32_t i = j % per_head * V;
		float *p = x + ((size_t)blockIdx.x * heads + h0 + j / per_head) * E + i;
		float a[V], b[V];

		load_floats<V>(a, p);
		load_floats<V>(b, p + half);
		turn<V>(a, b, cosine + i, cosine + half + i);
		store_floats<V>(p, a);
		store_floats<V>(p + half, b);
	}
}

/* Heads of one block, of so many in each of N rows. Many rows: all of them. Few: they are dealt out
 * to blocks so that a thread has V pairs of one. */
static uint32_t
heads_each(const struct dev *d, uint32_t N, uint32_t heads, uint32_t half, uint32_t V)
{
	const uint32_t turns = half > 0 ? parts_of(ROPE_THREADS * V, half) : heads;

	return N < 2 * d->sms && turns < heads ? turns : heads;
}

void
gpu_rope(struct dev *d, float *x, const uint32_t *pos, const double *freq, uint32_t N,
    uint32_t heads, uint32_t E)
{
	const bool wide = E % 8 == 0 && by_16(d, x, E * sizeof *x);
	const uint32_t half = E / 2, each = heads_each(d, N, heads, half, wide ? 4 : 1);
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
	const size_t from = (size_t)n * to.G * to.E + i, row = to.start[g] + to.len[g] +
	    grown_by(to) + n;
	for (int which = 0; which < 2; which++) {
		const void *base = which == 0 ? to.k : to.v;
		float f[V];

		if (base == NULL)
			continue;
		load_floats<V>(f, (which == 0 ? k : v) + from);
		store_narrow<T, V>((T *)base + row * to.E + e, f);
	}
	if (e == 0)
		to_pos[row] = pos[n];
}

/* Fills to; 0 after a failure, or when there is no room for N more rows. */
static int
appendable(struct dev *d, struct rows *to, const struct layer_rows *c, uint32_t N, uint32_t H)
{
	if (!gpu_growing_rows_of(d, to, c, H, "store"))
		return 0;
	for (uint32_t g = 0; g < c->heads; g++)
		if (c->len[g] > c->room[g] || N > c->room[g] - c->len[g]) {
			gpu_fail(d, "store: KV head %u has %u rows of %u, no room for %u", g,
			    c->len[g], c->room[g], N);
			return 0;
		}
	return 1;
}

static void
appended(struct layer_rows *c, uint32_t N)
{
	for (uint32_t g = 0; g < c->heads; g++)
		c->len[g] += N;
}

void
gpu_store(struct dev *d, struct layer_rows *c, const float *k, const float *v,
    const uint32_t *pos, uint32_t N)
{
	const size_t elements = (size_t)c->heads * c->width;
	struct rows to;

	if (!appendable(d, &to, c, N, c->heads) || N == 0 || elements == 0)
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
	appended(c, N);
}

/* ---- place ---- */

/* One call. The heads of a row stand in a line: H of queries, G of keys, G of values. */
struct placing {
	struct rows to;
	uint32_t *to_pos;
	float *q;                    /* [N][H][E] */
	const float *k, *v;          /* [N][G][E] */
	const uint32_t *pos;
	const double *freq;
	uint32_t H, line;            /* of queries; all, without values where to.v is NULL */
	uint32_t each;               /* heads of one block */
};

/* rope and store in one: blockIdx.x the row, blockIdx.y which heads of its line. A thread has V
 * elements of each half of a head; values are not turned. */
template <class T, int V>
static __global__ void __launch_bounds__(ROPE_THREADS)
place(const __grid_constant__ struct placing p)
{
	DYN_SHARED(float, cosine);                     /* [half], and sine[half] */
	const uint32_t n = blockIdx.x, E = p.to.E, G = p.to.G, half = E / 2, per_head = half / V;
	const uint32_t first = blockIdx.y * p.each, heads = min(p.each, p.line - first);
	const uint32_t grown = grown_by(p.to);

	next_may_start();
	earlier_done();
	angles(cosine, p.pos[n], p.freq, half);
	for (uint32_t j = threadIdx.x; j < heads * per_head; j += ROPE_THREADS) {
		const uint32_t h = first + j / per_head, i = j % per_head * V;
		const uint32_t g = h < p.H ? 0 : (h - p.H) % G;
		const bool query = h < p.H, key = !query && h < p.H + G;
		const float *x = query ? p.q + ((size_t)n * p.H + h) * E :
		    (key ? p.k : p.v) + ((size_t)n * G + g) * E;
		float a[V], b[V];

		load_floats<V>(a, x + i);
		load_floats<V>(b, x + half + i);
		if (query || key)
			turn<V>(a, b, cosine + i, cosine + half + i);
		if (query) {
			store_floats<V>((float *)x + i, a);
			store_floats<V>((float *)x + half + i, b);
			continue;
		}
		const size_t row = p.to.start[g] + p.to.len[g] + grown + n;
		T *to = (T *)(key ? p.to.k : p.to.v) + row * E + i;

		store_narrow<T, V>(to, a);
		store_narrow<T, V>(to + half, b);
		if (key && i == 0)
			p.to_pos[row] = p.pos[n];
	}
}

void
gpu_place(struct dev *d, struct layer_rows *c, float *q, float *k, const float *v,
    const uint32_t *pos, const double *freq, uint32_t N, uint32_t H)
{
	constexpr int V = 4;
	const uint32_t E = c->width, G = c->heads, line = H + (c->v != NULL ? 2 : 1) * G;
	const uint32_t each = heads_each(d, N, line, E / 2, V);
	const uintptr_t all = (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)c->k |
	    (uintptr_t)c->v;
	struct placing p = { .to = {}, .to_pos = c->pos, .q = q, .k = k, .v = v, .pos = pos,
		.freq = freq, .H = H, .line = line, .each = each };

	if (!appendable(d, &p.to, c, N, H) || N == 0 || E == 0)
		return;
	if (!by_16(d, (const void *)all, E * 2)) {      /* then halves of f32 are, too */
		gpu_rope(d, q, pos, freq, N, H, E);
		gpu_rope(d, k, pos, freq, N, G, E);
		gpu_store(d, c, k, v, pos, N);
		return;
	}
	with_type(c->dtype, [&](auto t) {
		LAUNCH_EARLY(d, (place<decltype(t), V>), dim3(N, parts_of(line, each)),
		    ROPE_THREADS, E * sizeof *q, p);
	});
	appended(c, N);
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
	const size_t blocks = parts_of(n, THREADS);
	const unsigned grid = blocks < 65536 ? (unsigned)blocks : 65536;

	if (n == 0 || dtype == KV_F32)
		return;
	with_type(dtype, [&](auto t) {
		LAUNCH(d, round_to<decltype(t)>, grid, THREADS, 0, x, n);
	});
}

/* ---- swiglu ---- */

/* to[V] <- silu(gate) * up */
template <int V>
DEVICE void
gated(float *to, const float *gate, const float *up)
{
	float u[V];

	load_floats<V>(to, gate);
	load_floats<V>(u, up);
	for (int e = 0; e < V; e++)
		to[e] = to[e] / (1 + expf(-to[e])) * u[e];
}

template <int V>
static __global__ void __launch_bounds__(THREADS)
swiglu(float *y, const float *gate, const float *up, size_t n)
{
	for (size_t i = V * ((size_t)blockIdx.x * THREADS + threadIdx.x); i < n;
	    i += (size_t)gridDim.x * V * THREADS) {
		float g[V];

		gated<V>(g, gate + i, up + i);
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

constexpr unsigned GATED_THREADS = 1024;       /* at most */

/* The same in 16 bits, a block for each row. Where rows must be divided so that T can hold them,
 * they are computed twice; the second time gate and up are in the second-level cache. */
template <class T, int V>
static __global__ void __launch_bounds__(GATED_THREADS)
gated_rows(T *y, float *scales, const float *gate, const float *up, uint32_t F)
{
	const size_t row = (size_t)blockIdx.x * F;
	const uint32_t first = V * threadIdx.x, step = V * blockDim.x;
	float by = 1, most = 0, g[V];

	if (scales != NULL) {
		for (uint32_t i = first; i < F; i += step) {
			gated<V>(g, gate + row + i, up + row + i);
			for (int e = 0; e < V; e++)
				most = fmaxf(most, fabsf(g[e]));
		}
		by = scale_of(block_max(most));
		if (threadIdx.x == 0)
			scales[blockIdx.x] = by;
		by = 1 / by;
	}
	for (uint32_t i = first; i < F; i += step) {
		gated<V>(g, gate + row + i, up + row + i);
		for (int e = 0; e < V; e++)
			g[e] *= by;
		store_narrow<T, V>(y + row + i, g);
	}
}

int
gpu_gated_narrow(struct dev *d, struct narrow *to, enum kv_dtype dtype, const float *gate,
    const float *up, uint32_t N, uint32_t F)
{
	const bool wide = by_16(d, gate, F * sizeof *gate) && by_16(d, up, 0);
	const unsigned threads = N < 2 * d->sms ? GATED_THREADS : THREADS;

	if (!gpu_narrow_room(d, to, dtype, N, F))
		return 0;
	if (dtype == KV_F16 && wide)
		LAUNCH(d, (gated_rows<f16, 4>), N, threads, 0, (f16 *)to->at, to->scale, gate, up,
		    F);
	else if (dtype == KV_F16)
		LAUNCH(d, (gated_rows<f16, 1>), N, threads, 0, (f16 *)to->at, to->scale, gate, up,
		    F);
	else if (wide)
		LAUNCH(d, (gated_rows<bf16, 4>), N, threads, 0, (bf16 *)to->at, NULL, gate, up, F);
	else
		LAUNCH(d, (gated_rows<bf16, 1>), N, threads, 0, (bf16 *)to->at, NULL, gate, up, F);
	return 1;
}

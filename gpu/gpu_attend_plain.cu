/* gpu_attend_plain.cu - prefill attention without tensor cores: f32 arithmetic, any dtype and
 * shape */
#include "gpu/gpu_quantised.h"

/* ---- FlashAttention-2 on CUDA cores, for widths that are a multiple of 4 ----
 *
 * As in gpu_attend.cu a block has ROWS packed query rows of one KV head and loops over tiles
 * of its keys; here 16 x 16 threads multiply. Thread (y, x) has the 4 rows from 4y on, the
 * columns x, x + 16, ... of the scores, and the units x, x + 16, ... of 4 channels of the
 * output. The 16 threads of a row are half a warp, so that row reductions are shuffles. */

constexpr unsigned ROWS = 64, KEYS = 64, SIDE = 16, THREADS = SIDE * SIDE;
/* Rows in shared memory are padded by 4 floats, so that the same column of 8 rows is in
 * different banks. */
constexpr unsigned PADDING = 4, WEIGHTS = KEYS + PADDING;

/* Online softmax, a thread's part of its four rows: as struct softmax_state in gpu_attend.cu,
 * with U units of 4 channels */
template <int U> struct plain_state {
	float m[4], l[4];
	float4 o[4][U];
};

DEVICE void
multiply_add(float4 &to, float a, const float4 &b)
{
	to.x += a * b.x;
	to.y += a * b.y;
	to.z += a * b.z;
	to.w += a * b.w;
}

/* to[KEYS][stride] <- so many rows of width E; zeros behind them */
template <class T>
DEVICE void
load_tile(float *to, uint32_t stride, const T *from, uint32_t rows, uint32_t E)
{
	const uint32_t units = E / 4;

	for (uint32_t i = threadIdx.x; i < KEYS * units; i += THREADS) {
		const uint32_t r = i / units, u = i % units;
		float4 x = make_float4(0, 0, 0, 0);

		if (r < rows) {
			const pack<T, 4> p = *(const pack<T, 4> *)(from + (size_t)r * E + u * 4);

			x = make_float4(widen(p.at[0]), widen(p.at[1]), widen(p.at[2]),
			    widen(p.at[3]));
		}
		*(float4 *)(to + r * stride + u * 4) = x;
	}
}

/* s <- Q . K^T of the rows 4y .. 4y + 3 with the keys x, x + 16, ... of the tile */
DEVICE void
plain_scores(float s[4][4], const float *query, const float *key, uint32_t stride, uint32_t E)
{
	const unsigned x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;

UNROLL	for (unsigned i = 0; i < 4; i++)
UNROLL		for (unsigned j = 0; j < 4; j++)
			s[i][j] = 0;
	for (uint32_t e = 0; e < E; e += 4) {
		float4 a[4];

UNROLL		for (unsigned i = 0; i < 4; i++)
			a[i] = *(const float4 *)(query + (y * 4 + i) * stride + e);
UNROLL		for (unsigned j = 0; j < 4; j++) {
			const float4 b = *(const float4 *)(key + (x + j * SIDE) * stride + e);

UNROLL			for (unsigned i = 0; i < 4; i++)
				s[i][j] += a[i].x * b.x + a[i].y * b.y + a[i].z * b.z +
				    a[i].w * b.w;
		}
	}
}

/* LIMITED: caps the scores, and sets those with rows before from[] to -inf. */
DEVICE void
limit_scores(float s[4][4], uint32_t first, const uint32_t *from, const struct limits &limits)
{
	const unsigned x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;

UNROLL	for (unsigned i = 0; i < 4; i++)
UNROLL		for (unsigned j = 0; j < 4; j++) {
			if (limits.cap > 0)
				s[i][j] = softcapped(s[i][j], limits);
			if (first + x + j * SIDE < from[y * 4 + i])
				s[i][j] = -INFINITY;
		}
}

/* One step of the online softmax, with the causal mask: p[ROWS][WEIGHTS] <- the weights. The
 * tile begins with row `first`; a query sees the rows below seen[]. */
template <int U>
DEVICE void
plain_softmax_step(float *p, float s[4][4], struct plain_state<U> &t, uint32_t first,
    const uint32_t *seen)
{
	const unsigned x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;

UNROLL	for (unsigned i = 0; i < 4; i++) {
		float top = t.m[i];

UNROLL		for (unsigned j = 0; j < 4; j++) {
			if (first + x + j * SIDE >= seen[y * 4 + i])
				s[i][j] = -INFINITY;
			top = fmaxf(top, s[i][j]);
		}
UNROLL		for (unsigned bit = 1; bit < SIDE; bit *= 2)
			top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, bit));
		/* A row that has seen nothing yet: 2^(-inf) is 0, but -inf - -inf is a NaN. */
		const float m = top == -INFINITY ? 0 : top, alpha = exp2_fast(t.m[i] - m);

		t.m[i] = top;
		t.l[i] *= alpha;
UNROLL		for (unsigned u = 0; u < U; u++) {
			t.o[i][u].x *= alpha;
			t.o[i][u].y *= alpha;
			t.o[i][u].z *= alpha;
			t.o[i][u].w *= alpha;
		}
UNROLL		for (unsigned j = 0; j < 4; j++) {
			const float weight = exp2_fast(s[i][j] - m);

			t.l[i] += weight;
			p[(y * 4 + i) * WEIGHTS + x + j * SIDE] = weight;
		}
	}
}

/* o += P . V with a tile of values */
template <int U>
DEVICE void
plain_outputs(struct plain_state<U> &t, const float *p, const float *value, uint32_t stride,
    uint32_t E)
{
	const unsigned x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;

	for (unsigned key = 0; key < KEYS; key += 4) {
		float4 w[4];

UNROLL		for (unsigned i = 0; i < 4; i++)
			w[i] = *(const float4 *)(p + (y * 4 + i) * WEIGHTS + key);
UNROLL		for (unsigned u = 0; u < U; u++) {
			if ((x + u * SIDE) * 4 >= E)
				continue;
			const float *v = value + key * stride + (x + u * SIDE) * 4;
			const float4 v0 = *(const float4 *)v, v1 = *(const float4 *)(v + stride);
			const float4 v2 = *(const float4 *)(v + 2 * stride);
			const float4 v3 = *(const float4 *)(v + 3 * stride);

UNROLL			for (unsigned i = 0; i < 4; i++) {
				multiply_add(t.o[i][u], w[i].x, v0);
				multiply_add(t.o[i][u], w[i].y, v1);
				multiply_add(t.o[i][u], w[i].z, v2);
				multiply_add(t.o[i][u], w[i].w, v3);
			}
		}
	}
}

/* Writes o and lse of the first `rows` rows of the block. */
template <int U>
DEVICE void
write_plain_output(float *o, float *lse, const struct plain_state<U> &t, const uint32_t *row,
    uint32_t rows, uint32_t E)
{
	const unsigned x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;

UNROLL	for (unsigned i = 0; i < 4; i++) {
		float l = t.l[i];

UNROLL		for (unsigned bit = 1; bit < SIDE; bit *= 2)
			l += __shfl_xor_sync(ALL_LANES, l, bit);
		const size_t at = row[y * 4 + i];
		const float scale = l > 0 ? 1 / l : 0;

		if (lse != NULL && x == 0 && y * 4 + i < rows)
			lse[at] = l > 0 ? (t.m[i] + log2f(l)) * LN2 : -INFINITY;
UNROLL		for (unsigned u = 0; u < U; u++)
			if (o != NULL && y * 4 + i < rows && (x + u * SIDE) * 4 < E)
				*(float4 *)(o + at * E + (x + u * SIDE) * 4) =
				    make_float4(t.o[i][u].x * scale, t.o[i][u].y * scale,
					t.o[i][u].z * scale, t.o[i][u].w * scale);
	}
}

/* A block. load_keys(to, first), load_values(...): to[KEYS][stride] <- a tile of its KV head, from
 * row `first` on; zeros behind the last row */
template <int U, bool LIMITED, class K, class V>
DEVICE void
plain_block(float *o, float *lse, const float *q, const struct rows &c, const uint32_t *qpos,
    uint32_t N, uint32_t H, float scale, const struct limits &limits, K &&load_keys,
    V &&load_values)
{
	DYN_SHARED(float, query);              /* [ROWS][stride]; keys or values; weights */
	SHARED(uint32_t[ROWS], seen);          /* rows of the cache that each query row sees */
	SHARED(uint32_t[ROWS], from);          /* LIMITED: the first of these */
	SHARED(uint32_t[ROWS], row);           /* its index in q, o and lse */
	const uint32_t g = blockIdx.x % c.G, E = c.E, R = H / c.G, stride = E + PADDING;
	/* The last query rows, which see most keys, come first. */
	const uint32_t m0 = (gridDim.x / c.G - 1 - blockIdx.x / c.G) * ROWS;
	const uint32_t rows = min(N * R - m0, ROWS);
	float *const tile = query + ROWS * stride, *const p = tile + KEYS * stride;
	struct plain_state<U> t = {};
	float s[4][4];

	if (threadIdx.x < ROWS) {
		const uint32_t i = m0 + min(threadIdx.x, rows - 1);

		row[threadIdx.x] = i / R * H + g * R + i % R;
		seen[threadIdx.x] = seen_rows(c.pos + c.start[g], c.len[g], qpos[i / R]);
		if constexpr (LIMITED)
			from[threadIdx.x] = first_seen(c.pos + c.start[g], seen[threadIdx.x],
			    qpos[i / R], limits.reach);
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < ROWS * E; i += THREADS)
		query[i / E * stride + i % E] = q[(size_t)row[i / E] * E + i % E] * scale;
	t.m[0] = t.m[1] = t.m[2] = t.m[3] = -INFINITY;
	for (uint32_t first = LIMITED ? from[0] : 0; first < seen[ROWS - 1]; first += KEYS) {
		load_keys(tile, first);
		__syncthreads();
		plain_scores(s, query, tile, stride, E);
		if constexpr (LIMITED)
			limit_scores(s, first, from, limits);
		plain_softmax_step(p, s, t, first, seen);
		__syncthreads();
		if (o == NULL)
			continue;
		load_values(tile, first);
		__syncthreads();
		plain_outputs(t, p, tile, stride, E);
		__syncthreads();
	}
	write_plain_output(o, lse, t, row, rows, E);
}

template <class T, int U, bool LIMITED>
static __global__ void __launch_bounds__(THREADS, 2)
attend_plain(float *o, float *lse, const float *q, const struct rows c, const uint32_t *qpos,
    uint32_t N, uint32_t H, float scale, const struct limits limits)
{
	const uint32_t g = blockIdx.x % c.G, E = c.E;
	const T *k = (const T *)c.k + c.start[g] * E, *v = (const T *)c.v + c.start[g] * E;

	plain_block<U, LIMITED>(o, lse, q, c, qpos, N, H, scale, limits,
	    [&](float *to, uint32_t first) {
		load_tile(to, E + PADDING, k + (size_t)first * E, c.len[g] - first, E);
	    }, [&](float *to, uint32_t first) {
		load_tile(to, E + PADDING, v + (size_t)first * E, c.len[g] - first, E);
	    });
}

/* As load_tile(), of rows of any type: a warp has a row. */
DEVICE void
load_any_tile(float *to, const void *from, const struct row_format &f, const struct rows &c,
    uint32_t g, uint32_t first)
{
	const uint32_t lane = threadIdx.x % 32, E = c.E;

	for (uint32_t r = threadIdx.x / 32; r < KEYS; r += THREADS / 32) {
		float *const row = to + r * (E + PADDING);

		if (first + r < c.len[g])
			for_channels((const unsigned char *)from + (c.start[g] + first + r) *
			    f.bytes, f, E, lane, 32, [&](uint32_t e, float x) {
				row[e] = x;
			});
		else
			for (uint32_t e = lane; e < E; e += 32)
				row[e] = 0;
	}
}

template <int U>
static __global__ void __launch_bounds__(THREADS, 2)
attend_plain_quantised(float *o, float *lse, const float *q, const struct rows c,
    const uint32_t *qpos, uint32_t N, uint32_t H, float scale, const struct limits limits,
    const struct row_formats f)
{
	const uint32_t g = blockIdx.x % c.G;

	plain_block<U, true>(o, lse, q, c, qpos, N, H, scale, limits,
	    [&](float *to, uint32_t first) {
		load_any_tile(to, c.k, f.k, c, g, first);
	    }, [&](float *to, uint32_t first) {
		load_any_tile(to, c.v, f.v, c, g, first);
	    });
}

template <class T>
static void
launch_plain(struct dev *d, float *o, float *lse, const struct query *query,
    const struct rows *c, size_t shared)
{
	const unsigned grid = parts_of((size_t)query->N * (query->H / c->G), ROWS) * c->G;
	const float scale = (float)(M_LOG2E / sqrt((double)c->E));
	const struct limits limits = limits_of(query, M_LOG2E);

	with_limited(limits, [&](auto limited) {
		constexpr bool LIMITED = limited.value;

		if (c->E <= 64)
			LAUNCH(d, (attend_plain<T, 1, LIMITED>), grid, THREADS, shared, o, lse,
			    query->q, *c, query->pos, query->N, query->H, scale, limits);
		else if (c->E <= 128)
			LAUNCH(d, (attend_plain<T, 2, LIMITED>), grid, THREADS, shared, o, lse,
			    query->q, *c, query->pos, query->N, query->H, scale, limits);
		else
			LAUNCH(d, (attend_plain<T, 4, LIMITED>), grid, THREADS, shared, o, lse,
			    query->q, *c, query->pos, query->N, query->H, scale, limits);
	});
}

/* The dynamic shared memory of a block; 0: the fast kernels do not take the shape */
static size_t
plain_shared(const struct dev *d, const struct rows *c, const float *o)
{
	const size_t shared = ((ROWS + KEYS) * ((size_t)c->E + PADDING) + ROWS * WEIGHTS) *
	    sizeof(float);

	return !d->reference && c->E % 4 == 0 && c->E <= 256 && shared <= d->most_shared &&
	    (uintptr_t)o % 16 == 0 ? shared : 0;
}

void
gpu_attend_plain(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l, const struct rows *c)
{
	const size_t shared = plain_shared(d, c, o);
	const uintptr_t places = (uintptr_t)c->k | (o != NULL ? (uintptr_t)c->v : 0);
	struct row_formats f;
	struct row_list list;

	if (shared > 0 && places % 16 == 0)
		with_type(l->dtype, [&](auto t) {
			launch_plain<decltype(t)>(d, o, lse, query, c, shared);
		});
	else if (gpu_row_list_of(d, &list, l, NULL) && gpu_formats_of(d, &f, l, "attend"))
		gpu_attend_naive(d, o, lse, query, c, &list, &f);
}

int
gpu_attend_plain_quantised(struct dev *d, float *o, float *lse, const struct query *query,
    const struct rows *c, const struct row_formats *f)
{
	const unsigned grid = parts_of((size_t)query->N * (query->H / c->G), ROWS) * c->G;
	const float scale = (float)(M_LOG2E / sqrt((double)c->E));
	const struct limits limits = limits_of(query, M_LOG2E);
	const size_t shared = plain_shared(d, c, o);

	if (shared == 0)
		return 0;
	if (c->E <= 64)
		LAUNCH(d, attend_plain_quantised<1>, grid, THREADS, shared, o, lse, query->q, *c,
		    query->pos, query->N, query->H, scale, limits, *f);
	else if (c->E <= 128)
		LAUNCH(d, attend_plain_quantised<2>, grid, THREADS, shared, o, lse, query->q, *c,
		    query->pos, query->N, query->H, scale, limits, *f);
	else
		LAUNCH(d, attend_plain_quantised<4>, grid, THREADS, shared, o, lse, query->q, *c,
		    query->pos, query->N, query->H, scale, limits, *f);
	return 1;
}

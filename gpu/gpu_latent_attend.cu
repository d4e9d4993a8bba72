/* gpu_latent_attend.cu - attention over latent rows, on tensor cores: one KV head whose values are
 * its keys, for all query heads
 *
 * FlashAttention-2 with split-KV, for decoding and for prompts alike: 576 channels leave no room
 * for the tiles of gpu_attend.cu. A block has ROWS packed query rows (GQA packing) and loops over
 * tiles of KEYS rows, which are read once for scores and outputs. Its warps are 4 strips of 16
 * query rows, times 2: of a strip, each has half of the keys of a tile for scores, and half of the
 * channels for outputs, since an accumulator of 16 x 576 does not fit into registers. Halves
 * exchange the maxima of rows, and weights, through shared memory.
 *
 * The number of splits of a call depends on the query rows and the GPU only, so that calls can be
 * captured; how many of them have work, on the lengths. Queries and weights are rounded to the
 * type of the rows, also of one token: what f32 would need on CUDA cores takes ten times as long
 * with 128 query heads. */
#include "gpu/gpu_attend_mma.h"
#include "gpu/gpu_latent_attend.h"

constexpr unsigned WARPS = 8, BLOCK = WARPS * 32, STRIPS_OF_ROWS = 4;
constexpr unsigned BLOCK_ROWS = STRIPS_OF_ROWS * 16, TILE = 32;
constexpr uint32_t LEAST_TILES = 8;    /* of a split: its partial results are as large */
constexpr uint32_t MOST_SPLITS = 128;

struct latent_call {
	float *o, *lse;                /* either NULL: not wanted */
	float *parts, *part_lse;       /* [splits][rows][E], [splits][rows]; NULL: one split */
	const float *q;
	const uint32_t *qpos;          /* NULL: queries see all rows */
	uint32_t N, H, R, blocks, splits;      /* blocks: of query rows of a KV head */
	float scale;                   /* of queries: log2(e) / sqrt(E) */
};

template <int E> struct latent_shared {
	char queries[BLOCK_ROWS * tile<E>::row];
	char keys[2][TILE * tile<E>::row];
	char weights[BLOCK_ROWS * TILE * 2];
	float row[2][BLOCK_ROWS];              /* maxima of scores, sums of weights, by half */
	uint32_t seen[BLOCK_ROWS];
};

/* A thread's part of its two rows, lane / 4 and lane / 4 + 8 of a strip: as struct
 * softmax_state, of half of the channels; l is of its half of the keys */
template <int E> struct latent_softmax {
	float m[2], l[2], o[E / 16][4];
};

/* The rows of KV head g that a call reads */
DEVICE uint32_t
rows_read(const struct rows &c, const struct row_list &list, uint32_t g)
{
	return list.n[g] + appended_rows(c);
}

/* Tiles of a split, of those that so many rows have */
DEVICE uint32_t
tiles_of_split(uint32_t rows, uint32_t splits)
{
	const uint32_t tiles = (rows + TILE - 1) / TILE;

	return max((tiles + splits - 1) / splits, LEAST_TILES);
}

/* Starts the copy of a tile of n rows, the first of which is number `first`; 8 threads for each */
template <int E>
DEVICE void
copy_latent(char *to, const char *from, const struct row_list &list, uint32_t g, uint32_t first,
    uint32_t n)
{
	const unsigned row = threadIdx.x / 8;
	const bool there = first + row < n;
	const char *at = from;

	if (there)
		at += (size_t)listed_row(list, g, first + row) * tile<E>::row;

UNROLL	for (unsigned u = 0; u < tile<E>::units; u += 8) {
		const unsigned unit = u + threadIdx.x % 8;

		if (tile<E>::units % 8 == 0 || unit < tile<E>::units)
			cp_async16(to + swizzled<E>(row, unit), at + unit * 16, there);
	}
}

/* The block's query rows, scaled and rounded; rows behind the last are 0. */
template <class T, int E>
DEVICE void
store_queries(char *to, const struct latent_call &p, uint32_t g, uint32_t first)
{
ROLLED	for (unsigned i = threadIdx.x; i < BLOCK_ROWS * tile<E>::units; i += BLOCK) {
		const unsigned row = i / tile<E>::units, unit = i % tile<E>::units;
		const uint32_t m = first + row;
		uint32_t w[4] = {};

		if (m < p.N * p.R) {
			const float4 *const q = (const float4 *)(p.q + ((size_t)(m / p.R) * p.H +
			    g * p.R + m % p.R) * E + unit * 8);
			const float4 a = q[0], b = q[1];

			w[0] = pair<T>(a.x * p.scale, a.y * p.scale);
			w[1] = pair<T>(a.z * p.scale, a.w * p.scale);
			w[2] = pair<T>(b.x * p.scale, b.y * p.scale);
			w[3] = pair<T>(b.z * p.scale, b.w * p.scale);
		}
		*(uint4 *)(to + swizzled<E>(row, unit)) = make_uint4(w[0], w[1], w[2], w[3]);
	}
}

/* s <- the scores of the warp's strip and its half of a tile; -inf where a row is not seen */
template <class T, int E>
DEVICE void
latent_scores(float s[2][4], const char *queries, const char *keys, unsigned strip, unsigned half,
    uint32_t first, const uint32_t seen[2])
{
	const unsigned lane = threadIdx.x % 32;

UNROLL	for (unsigned j = 0; j < 2; j++)
		s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
UNROLL	for (unsigned i = 0; i < E / 16; i++) {
		uint32_t a[4], b[4];

		ldmatrix_x4<false>(a, fragment_row<E, true>(queries, strip, i));
		ldmatrix_x4<false>(b, fragment_row<E, false>(keys, half, i));
		mma(T{}, s[0], a, b);
		mma(T{}, s[1], a, b + 2);
	}
UNROLL	for (unsigned j = 0; j < 2; j++)
UNROLL		for (unsigned e = 0; e < 4; e++)
			if (first + half * 16 + j * 8 + lane % 4 * 2 + e % 2 >= seen[e / 2])
				s[j][e] = -INFINITY;
}

/* The maximum of the scores of both halves for the thread's rows. All threads of the block. */
DEVICE void
latent_maxima(float top[2], const float s[2][4], float (*row)[BLOCK_ROWS], unsigned strip,
    unsigned half)
{
	const unsigned lane = threadIdx.x % 32, at = strip * 16 + lane / 4;

UNROLL	for (unsigned r = 0; r < 2; r++) {
		top[r] = fmaxf(fmaxf(s[0][r * 2], s[0][r * 2 + 1]),
		    fmaxf(s[1][r * 2], s[1][r * 2 + 1]));
		top[r] = fmaxf(top[r], __shfl_xor_sync(ALL_LANES, top[r], 1));
		top[r] = fmaxf(top[r], __shfl_xor_sync(ALL_LANES, top[r], 2));
		if (lane % 4 == 0)
			row[half][at + r * 8] = top[r];
	}
	__syncthreads();
UNROLL	for (unsigned r = 0; r < 2; r++)
		top[r] = fmaxf(top[r], row[half ^ 1][at + r * 8]);
}

/* One step of the online softmax; the weights go to shared memory, rounded. */
template <class T, int E>
DEVICE void
latent_weights(struct latent_softmax<E> &t, char *weights, const float s[2][4], const float top[2],
    unsigned strip, unsigned half)
{
	const unsigned lane = threadIdx.x % 32;

UNROLL	for (unsigned r = 0; r < 2; r++) {
		const float to = top[r] > t.m[r] + RESCALE_SLACK ? top[r] : t.m[r];
		const float scale = to == t.m[r] ? 1 : exp2_fast(t.m[r] - to);
		const float m = to == -INFINITY ? 0 : to;      /* -inf - -inf is a NaN */

		if (__any_sync(ALL_LANES, scale != 1))
UNROLL			for (unsigned i = 0; i < E / 16; i++) {
				t.o[i][r * 2] *= scale;
				t.o[i][r * 2 + 1] *= scale;
			}
		t.m[r] = to;
		t.l[r] *= scale;
UNROLL		for (unsigned j = 0; j < 2; j++) {
			const float a = exp2_fast(s[j][r * 2] - m);
			const float b = exp2_fast(s[j][r * 2 + 1] - m);

			t.l[r] += a + b;
			*(uint32_t *)(weights + swizzled<TILE>(strip * 16 + r * 8 + lane / 4,
			    half * 2 + j) + lane % 4 * 4) = pair<T>(a, b);
		}
	}
}

/* o += weights . values, of the warp's half of the channels */
template <class T, int E>
DEVICE void
latent_outputs(struct latent_softmax<E> &t, const char *weights, const char *values, unsigned strip,
    unsigned half)
{
UNROLL	for (unsigned j = 0; j < TILE / 16; j++) {
		uint32_t a[4], b[4];

		ldmatrix_x4<false>(a, fragment_row<TILE, true>(weights, strip, j));
UNROLL		for (unsigned i = 0; i < E / 32; i++) {
			ldmatrix_x4<true>(b, fragment_row<E, true>(values, j, half * (E / 32) + i));
			mma(T{}, t.o[2 * i], a, b);
			mma(T{}, t.o[2 * i + 1], a, b + 2);
		}
	}
}

/* Writes the thread's part of its rows. All threads of the block */
template <int E>
DEVICE void
latent_write(const struct latent_call &p, struct latent_softmax<E> &t, float (*row)[BLOCK_ROWS],
    uint32_t g, uint32_t first, uint32_t split, unsigned strip, unsigned half)
{
	const unsigned lane = threadIdx.x % 32, at = strip * 16 + lane / 4;
	const size_t before = (size_t)split * p.N * p.H;
	float *const o = p.parts != NULL ? p.parts : p.o;
	float *const lse = p.parts != NULL ? p.part_lse : p.lse;

	__syncthreads();               /* maxima have been read */
UNROLL	for (unsigned r = 0; r < 2; r++) {
		t.l[r] += __shfl_xor_sync(ALL_LANES, t.l[r], 1);
		t.l[r] += __shfl_xor_sync(ALL_LANES, t.l[r], 2);
		if (lane % 4 == 0)
			row[half][at + r * 8] = t.l[r];
	}
	__syncthreads();
UNROLL	for (unsigned r = 0; r < 2; r++) {
		const uint32_t m = first + at + r * 8;
		const float l = row[0][at + r * 8] + row[1][at + r * 8];
		const float by = l > 0 ? 1 / l : 0;

		if (m >= p.N * p.R)
			continue;
		const size_t to = before + (size_t)(m / p.R) * p.H + g * p.R + m % p.R;
		if (lse != NULL && half == 0 && lane % 4 == 0)
			lse[to] = l > 0 ? (t.m[r] + log2f(l)) * LN2 : -INFINITY;
UNROLL		for (unsigned i = 0; i < E / 16 && p.o != NULL; i++)
			*(float2 *)(o + to * E + half * (E / 2) + i * 8 + lane % 4 * 2) =
			    make_float2(t.o[i][r * 2] * by, t.o[i][r * 2 + 1] * by);
	}
}

/* blockIdx.x: split, block of query rows, KV head */
template <class T, int E>
static __global__ void __launch_bounds__(BLOCK, 1)
attend_latent(const __grid_constant__ struct latent_call p, const __grid_constant__ struct rows c,
    const __grid_constant__ struct row_list list)
{
	DYN_SHARED(struct latent_shared<E>, x);
	const uint32_t split = blockIdx.x % p.splits, y = blockIdx.x / p.splits;
	const uint32_t g = y / p.blocks, begin = (p.blocks - 1 - y % p.blocks) * BLOCK_ROWS;
	const uint32_t all = p.N * p.R, n = rows_read(c, list, g);
	const uint32_t each = tiles_of_split(n, p.splits);
	const unsigned warp = threadIdx.x / 32, strip = warp % 4, half = warp / 4;
	const unsigned lane = threadIdx.x % 32;
	const char *const from = (const char *)c.k + c.start[g] * tile<E>::row;
	struct latent_softmax<E> t = {};

	/* A split without work writes nothing: combine_latent() passes over it. */
	if (split > 0 && split * each * TILE >= n)
		return;
	if (threadIdx.x < BLOCK_ROWS)
		x->seen[threadIdx.x] = p.qpos == NULL ? n : seen_rows(c.pos + c.start[g], n,
		    p.qpos[min(begin + threadIdx.x, all - 1) / p.R]);
	store_queries<T, E>(x->queries, p, g, begin);
	t.m[0] = t.m[1] = -INFINITY;
	__syncthreads();
	const uint32_t end = (x->seen[BLOCK_ROWS - 1] + TILE - 1) / TILE, first = split * each;
	const uint32_t last = min(end, first + each);
	const uint32_t seen[2] = { x->seen[strip * 16 + lane / 4],
		x->seen[strip * 16 + lane / 4 + 8] };
	const bool works = begin + strip * 16 < all;   /* this strip has query rows */

	if (first < last)
		copy_latent<E>(x->keys[0], from, list, g, first * TILE, n);
	cp_async_commit();
	for (uint32_t number = first; number < last; number++) {
		const char *const keys = x->keys[(number - first) % 2];
		float s[2][4] = {}, top[2];

		cp_async_wait<0>();
		__syncthreads();       /* the tile is there; nobody reads the one before */
		if (number + 1 < last)
			copy_latent<E>(x->keys[(number - first + 1) % 2], from, list, g,
			    (number + 1) * TILE, n);
		cp_async_commit();
		if (works)
			latent_scores<T, E>(s, x->queries, keys, strip, half, number * TILE, seen);
		latent_maxima(top, s, x->row, strip, half);
		latent_weights<T, E>(t, x->weights, s, top, strip, half);
		__syncthreads();
		if (works && p.o != NULL)
			latent_outputs<T, E>(t, x->weights, keys, strip, half);
	}
	cp_async_wait<0>();
	latent_write<E>(p, t, x->row, g, begin, split, strip, half);
}

/* One block for each query row and head: from the splits that have work, in their order */
static __global__ void __launch_bounds__(BLOCK)
combine_latent(const __grid_constant__ struct latent_call p, const __grid_constant__ struct rows c,
    const __grid_constant__ struct row_list list, uint32_t E)
{
	const size_t row = blockIdx.x, rows = (size_t)p.N * p.H;
	const uint32_t n = rows_read(c, list, (uint32_t)(row % p.H) / p.R);
	const uint32_t each = tiles_of_split(n, p.splits), tiles = (n + TILE - 1) / TILE;
	const uint32_t splits = min((tiles + each - 1) / each, p.splits);
	float m = -INFINITY, l = 0;

	for (uint32_t i = 0; i < splits; i++)
		m = fmaxf(m, p.part_lse[i * rows + row]);
	for (uint32_t i = 0; i < splits && m > -INFINITY; i++)
		l += expf(p.part_lse[i * rows + row] - m);
	for (uint32_t e = threadIdx.x; e < E && p.o != NULL; e += BLOCK) {
		float sum = 0;

		for (uint32_t i = 0; i < splits && l > 0; i++)
			sum += expf(p.part_lse[i * rows + row] - m) *
			    p.parts[(i * rows + row) * E + e];
		p.o[row * E + e] = l > 0 ? sum / l : 0;
	}
	if (threadIdx.x == 0 && p.lse != NULL)
		p.lse[row] = l > 0 ? m + logf(l) : -INFINITY;
}

template <class T, int E>
static void
launch_latent(struct dev *d, struct latent_call p, const struct rows &c,
    const struct row_list &list)
{
	const size_t rows = (size_t)p.N * p.H;

	if (p.splits > 1) {
		p.parts = (float *)gpu_scratch(d, SCRATCH_PARTS,
		    p.splits * rows * (E + 1) * sizeof(float));
		p.part_lse = p.parts + p.splits * rows * E;
	}
	LAUNCH(d, (attend_latent<T, E>), p.splits * p.blocks * c.G, BLOCK,
	    sizeof(struct latent_shared<E>), p, c, list);
	if (p.splits > 1)
		LAUNCH(d, combine_latent, (unsigned)rows, BLOCK, 0, p, c, list, E);
}

bool
gpu_attend_latent(struct dev *d, float *o, float *lse, const struct query *query,
    enum kv_dtype dtype, const struct rows *c, const struct row_list *list)
{
	const uintptr_t places = (uintptr_t)c->k | (uintptr_t)query->q;
	const size_t shared = c->E == 576 ? sizeof(struct latent_shared<576>) :
	    sizeof(struct latent_shared<288>);
	struct latent_call p = { .o = o, .lse = lse, .parts = NULL, .part_lse = NULL,
		.q = query->q, .qpos = query->pos, .N = query->N, .H = query->H,
		.R = query->H / c->G,
		.blocks = parts_of((size_t)query->N * (query->H / c->G), BLOCK_ROWS), .splits = 1,
		.scale = (float)(M_LOG2E / sqrt((double)c->E)) };

	if (d->reference || dtype == KV_F32 || (c->E != 576 && c->E != 288) || places % 16 != 0 ||
	    (uintptr_t)o % 8 != 0 || query->window > 0 || query->softcap > 0 ||
	    shared > d->most_shared)
		return false;
	if (p.blocks * c->G < d->sms)
		p.splits = min(d->sms / (p.blocks * c->G), MOST_SPLITS);
	if (c->E == 576)
		(dtype == KV_BF16 ? launch_latent<bf16, 576> : launch_latent<f16, 576>)(d, p, *c,
		    *list);
	else
		(dtype == KV_BF16 ? launch_latent<bf16, 288> : launch_latent<f16, 288>)(d, p, *c,
		    *list);
	return true;
}

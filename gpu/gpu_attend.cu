/* gpu_attend.cu - prefill attention: FlashAttention-2 on tensor cores, with GQA packing and
 * split-KV
 *
 * Causality is by position: a query sees a row of the cache when the row's position is not
 * greater than its own. Both ascend, so a query sees a prefix of the rows of its KV head; once
 * the length of that prefix is known, positions are not read again. The same code serves whole
 * prompts, chunks of one behind a past, queries of selected tokens, and caches with evicted
 * rows.
 *
 * A sliding window hides the first rows of that prefix, too: what a query sees is a range of rows,
 * and a block loops over the tiles that one of its queries sees.
 *
 * Keys and values of 16 bits: FlashAttention-2 (Dao 2023, algorithm 1), online softmax with
 * queries and weights rounded to the dtype of the cache and f32 sums. Other dtypes and
 * widths: gpu_attend_plain.cu. */
#include "gpu/gpu_internal.h"

/* GQA packing: a block has ROWS query rows of one KV head, where row m is query m / R, head m %
 * R of the R heads that share the KV head. So few queries fill a block, too, and keys are read
 * once for all heads. The block loops over tiles of KEYS keys. A warp has 32 rows, two strips of
 * 16, the m of an mma: a thread holds parts of four rows, lane / 4 and lane / 4 + 8 of each
 * strip.
 *
 * Tiles of keys and of values alternate in a ring of RING stages in shared memory: while one is
 * multiplied, cp.async loads the next two. Three tiles and the queries of 128 channels are 80
 * KiB, so that two blocks fit an SM even with 164 KiB.
 *
 * KEYS: as many as 255 registers allow with two blocks on an SM. The more, the fewer row-maximum
 * reductions and barriers. */

enum { THREADS = 128, ROWS = 128, RING = 3, STRIPS = 2 };
template <int E> constexpr unsigned KEYS = E == 32 ? 128 : E == 64 ? 96 : 64;

/* Lazy rescaling: the reference maximum of a row is updated, and its sums rescaled, only when
 * a score exceeds it by more than this power of two. Until then weights exceed 1, for which
 * f32 has the range; new maxima are frequent, rescaling is rare. */
#define RESCALE_SLACK 8.0f

/* The layout of a tile of keys or values in shared memory: the 16-byte units of a row are
 * swizzled (XOR with the row) within groups of `width`, so that the 8 rows of a matrix that
 * ldmatrix_x4() reads are in different banks. */
template <int E> struct tile {
	static constexpr unsigned units = E / 8, width = E % 64 == 0 ? 8 : E % 32 == 0 ? 4 : 2;
	static constexpr unsigned row = E * 2, bytes = KEYS<E> * row;
};

/* The byte offset of a unit of a row. The swizzle repeats every 8 rows. */
template <int E>
DEVICE unsigned
swizzled(unsigned row, unsigned unit)
{
	using t = tile<E>;

	return row * t::row + (unit ^ row / (8 / t::width) % t::width) * 16;
}

/* The address that this lane passes to ldmatrix_x4() for rows 16j .. 16j + 15 and units 2i,
 * 2i + 1, such that each pair of result registers is the b operand of mma() for 8 columns.
 * For values, which are transposed, matrices 0 and 1 are unit 2i of the two halves of the
 * rows, 2 and 3 unit 2i + 1; for keys, matrices 0 and 1 are both units of the first 8 rows. */
template <int E, bool VALUES>
DEVICE const char *
fragment_row(const char *tiles, unsigned j, unsigned i)
{
	using t = tile<E>;
	const unsigned lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
	const unsigned first =
	    swizzled<E>(lane % 8 + (VALUES ? low : high) * 8, VALUES ? high : low);

	return tiles + (first ^ 2 * i % t::width * 16) + 2 * i / t::width * t::width * 16 +
	    j * 16 * t::row;
}

/* Starts the asynchronous copy of a tile with so many valid rows; zeros behind them */
template <int E>
DEVICE void
copy_tile(char *to, const char *from, uint32_t rows)
{
	using t = tile<E>;
	constexpr unsigned together = THREADS / t::width;      /* rows at a time */
	const unsigned row = threadIdx.x / t::width, unit = threadIdx.x % t::width;

	to += swizzled<E>(row, unit);
	from += row * t::row + unit * 16;
UNROLL	for (unsigned r = 0; r < KEYS<E>; r += together)
UNROLL		for (unsigned u = 0; u < t::units; u += t::width)
			cp_async16(to + r * t::row + u * 16, from + r * t::row + u * 16,
			    row + r < rows);
}

/* The a operands of mma(): scaled queries. Registers are short, so they are in shared memory,
 * [E / 16][STRIPS][THREADS]; each thread reads only what it has written itself. */
DEVICE void
query_fragments(uint32_t a[STRIPS][4], const uint4 *queries, unsigned i)
{
UNROLL	for (unsigned x = 0; x < STRIPS; x++) {
		const uint4 f = queries[(i * STRIPS + x) * THREADS + threadIdx.x];

		a[x][0] = f.x, a[x][1] = f.y, a[x][2] = f.z, a[x][3] = f.w;
	}
}

/* The rows of a warp, as an array of 32 without memory for it. Of width 128 a third array in shared
 * memory would leave room for one block on an SM with 164 KiB; of less this takes registers that
 * are not there. */
struct packed_rows {
	uint32_t first, end;         /* of the packed query rows; end: of all of the KV head */
	uint32_t R, H, before;       /* before: rows of o and lse before those of query 0 */

	__device__ __forceinline__ uint32_t
	operator[](unsigned i) const
	{
		const uint32_t m = first + i;

		return m < end ? before + m / R * H + m % R : NO_ROW;
	}
};

/* The address of channel 0 of a row of q; of row 0 for a row that does not exist */
template <int E>
DEVICE const float *
query_at(const float *q, uint32_t row, uint32_t before)
{
	return q + (row != NO_ROW ? (size_t)(row - before) * E : 0);
}

/* row: [32] the rows of this warp, as indices into q plus `before` */
template <class T, int E, class ROW>
DEVICE void
load_queries(uint4 *queries, const float *q, const ROW &row, uint32_t before, float scale)
{
	const unsigned lane = threadIdx.x % 32;

	for (unsigned x = 0; x < STRIPS; x++) {
		const unsigned i0 = x * 16 + lane / 4;
		const float *low = query_at<E>(q, row[i0], before) + lane % 4 * 2;
		const float *high = query_at<E>(q, row[i0 + 8], before) + lane % 4 * 2;

UNROLL		for (unsigned i = 0; i < E / 16; i++) {
			uint32_t a[4];

UNROLL			for (unsigned j = 0; j < 4; j++) {
				const float2 f = *(const float2 *)((j % 2 == 0 ? low : high) +
				    i * 16 + j / 2 * 8);

				a[j] = pair<T>(f.x * scale, f.y * scale);
			}
			queries[(i * STRIPS + x) * THREADS + threadIdx.x] =
			    make_uint4(a[0], a[1], a[2], a[3]);
		}
	}
}

/* s <- Q . K^T of the warp's rows with a tile of keys */
template <class T, int E>
DEVICE void
scores(float s[STRIPS][KEYS<E> / 8][4], const uint4 *queries, const char *keys)
{
UNROLL	for (unsigned x = 0; x < STRIPS; x++)
UNROLL		for (unsigned j = 0; j < KEYS<E> / 8; j++)
			s[x][j][0] = s[x][j][1] = s[x][j][2] = s[x][j][3] = 0;
UNROLL	for (unsigned i = 0; i < E / 16; i++) {
		uint32_t a[STRIPS][4], b[4];

		query_fragments(a, queries, i);
UNROLL		for (unsigned j = 0; j < KEYS<E> / 16; j++) {
			ldmatrix_x4<false>(b, fragment_row<E, false>(keys, j, i));
UNROLL			for (unsigned x = 0; x < STRIPS; x++) {
				mma(T{}, s[x][2 * j], a[x], b);
				mma(T{}, s[x][2 * j + 1], a[x], b + 2);
			}
		}
	}
}

/* Sets scores with rows that a query does not see to -inf; the tile begins with row `first`
 * of the KV head, and a query sees the rows from[] (0 if not LIMITED) .. seen[] - 1. */
template <int E, bool LIMITED>
DEVICE void
mask_unseen(float s[STRIPS][KEYS<E> / 8][4], uint32_t first, const uint32_t *from,
    const uint32_t *seen)
{
	const unsigned lane = threadIdx.x % 32;

	first += lane % 4 * 2;
UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		const uint32_t begin = LIMITED ? from[r * 8 + lane / 4] : 0;
		const uint32_t n = seen[r * 8 + lane / 4] - begin;

UNROLL		for (unsigned j = 0; j < KEYS<E> / 8; j++)
UNROLL			for (unsigned e = 0; e < 2; e++)
				if (first - begin + j * 8 + e >= n)
					s[r / 2][j][r % 2 * 2 + e] = -INFINITY;
	}
}

template <int E>
DEVICE void
cap_scores(float s[STRIPS][KEYS<E> / 8][4], const struct limits &limits)
{
UNROLL	for (unsigned x = 0; x < STRIPS; x++)
UNROLL		for (unsigned j = 0; j < KEYS<E> / 8; j++)
UNROLL			for (unsigned e = 0; e < 4; e++)
				s[x][j][e] = softcapped(s[x][j][e], limits);
}

/* Online softmax, a thread's part of its four rows: the reference m, within RESCALE_SLACK of
 * the maximum score so far; l, the sum of the weights 2^(s - m) of its columns; o, the sums
 * of weights times values */
template <int E> struct softmax_state {
	float m[2 * STRIPS], l[2 * STRIPS], o[STRIPS][E / 8][4];
};

template <int E>
DEVICE void
clear(struct softmax_state<E> &t)
{
UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		t.m[r] = -INFINITY;
		t.l[r] = 0;
	}
UNROLL	for (unsigned x = 0; x < STRIPS; x++)
UNROLL		for (unsigned j = 0; j < E / 8; j++)
			t.o[x][j][0] = t.o[x][j][1] = t.o[x][j][2] = t.o[x][j][3] = 0;
}

/* Rows whose maximum `top` exceeds m by more than RESCALE_SLACK get it as their new m. */
template <int E, bool VALUES>
DEVICE void
rescale(struct softmax_state<E> &t, const float top[2 * STRIPS])
{
UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		const float to = top[r] > t.m[r] + RESCALE_SLACK ? top[r] : t.m[r];
		const float scale = to == t.m[r] ? 1 : exp2_fast(t.m[r] - to);

		t.m[r] = to;
		t.l[r] *= scale;
UNROLL		for (unsigned j = 0; j < E / 8 && VALUES; j++) {
			t.o[r / 2][j][r % 2 * 2] *= scale;
			t.o[r / 2][j][r % 2 * 2 + 1] *= scale;
		}
	}
}

/* One step of the online softmax: updates m and l with the scores of a tile; p <- the
 * weights, rounded, as the a operand of mma() */
template <class T, int E, bool VALUES>
DEVICE void
softmax_step(uint32_t p[STRIPS][KEYS<E> / 16][4], float s[STRIPS][KEYS<E> / 8][4],
    struct softmax_state<E> &t)
{
	float top[2 * STRIPS];
	bool rises = false;

UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		top[r] = -INFINITY;
UNROLL		for (unsigned j = 0; j < KEYS<E> / 8; j++)
			top[r] = fmaxf(top[r],
			    fmaxf(s[r / 2][j][r % 2 * 2], s[r / 2][j][r % 2 * 2 + 1]));
		top[r] = fmaxf(top[r], __shfl_xor_sync(ALL_LANES, top[r], 1));
		top[r] = fmaxf(top[r], __shfl_xor_sync(ALL_LANES, top[r], 2));
		rises |= top[r] > t.m[r] + RESCALE_SLACK;
	}
	if (__any_sync(ALL_LANES, rises))
		rescale<E, VALUES>(t, top);
UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		/* A row that has seen nothing yet: 2^(-inf) is 0, but -inf - -inf is a NaN. */
		const float m = t.m[r] == -INFINITY ? 0 : t.m[r];
		float sum = 0;

UNROLL		for (unsigned j = 0; j < KEYS<E> / 8; j++) {
			const float a = exp2_fast(s[r / 2][j][r % 2 * 2] - m);
			const float b = exp2_fast(s[r / 2][j][r % 2 * 2 + 1] - m);

			sum += a + b;
			if (VALUES)
				p[r / 2][j / 2][j % 2 * 2 + r % 2] = pair<T>(a, b);
		}
		t.l[r] += sum;
	}
}

/* o += P . V with a tile of values */
template <class T, int E>
DEVICE void
outputs(struct softmax_state<E> &t, const uint32_t p[STRIPS][KEYS<E> / 16][4], const char *values)
{
UNROLL	for (unsigned j = 0; j < KEYS<E> / 16; j++)
UNROLL		for (unsigned i = 0; i < E / 16; i++) {
			uint32_t b[4];

			ldmatrix_x4<true>(b, fragment_row<E, true>(values, j, i));
UNROLL			for (unsigned x = 0; x < STRIPS; x++) {
				mma(T{}, t.o[x][2 * i], p[x][j], b);
				mma(T{}, t.o[x][2 * i + 1], p[x][j], b + 2);
			}
		}
}

/* The schedule of a call. Blocks of a set of KV heads, whose keys and values fit into L2
 * together, are neighbours in the grid; within a set the last query rows, which see most
 * keys, come first. Where there are few blocks the keys are split (split-KV), and
 * combine_splits() combines the results. Through a window, a block splits what it sees: tiles of a
 * split are enough for consecutive queries then, and others need more. */
struct plan {
	uint32_t N, H;
	uint32_t blocks;             /* of query rows of a KV head */
	uint32_t heads;              /* of a set */
	uint32_t splits, tiles;      /* of the keys; tiles of a split */
	float scale;                 /* of the queries: log2(e) / sqrt(E) */
	struct limits limits;
	void *narrow;                /* [N][H][E] o in 16 bits, for a product; NULL: not wanted */
};

/* Writes o and lse of the rows of this warp; four threads have a part of each. */
template <class T, int E, bool VALUES, class ROW>
DEVICE void
write_output(float *o, T *narrow, float *lse, const struct softmax_state<E> &t, const ROW &row)
{
	const unsigned lane = threadIdx.x % 32;

UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		const uint32_t at = row[r * 8 + lane / 4];
		float l = t.l[r];

		l += __shfl_xor_sync(ALL_LANES, l, 1);
		l += __shfl_xor_sync(ALL_LANES, l, 2);
		if (at != NO_ROW) {
			const float scale = l > 0 ? 1 / l : 0;

			if (lse != NULL && lane % 4 == 0)
				lse[at] = l > 0 ? (t.m[r] + log2f(l)) * LN2 : -INFINITY;
UNROLL			for (unsigned j = 0; j < E / 8 && VALUES; j++) {
				const size_t i = (size_t)at * E + j * 8 + lane % 4 * 2;
				const float a = t.o[r / 2][j][r % 2 * 2] * scale;
				const float b = t.o[r / 2][j][r % 2 * 2 + 1] * scale;

				*(float2 *)(o + i) = make_float2(a, b);
				if (narrow != NULL)
					*(uint32_t *)(narrow + i) = pair<T>(a, b);
			}
		}
	}
}

/* The main loop, over the tiles first .. last-1 of KV head g. Each query row of this warp sees the
 * rows from[] .. seen[] - 1 of it, both [32] and ascending; from is read where LIMITED. meanwhile()
 * runs while the first tiles are loaded. */
template <class T, int E, bool VALUES, bool LIMITED, class F>
DEVICE void
for_key_tiles(struct softmax_state<E> &t, const uint4 *queries, char *ring, const struct rows &c,
    uint32_t g, uint32_t first, uint32_t last, const uint32_t *from, const uint32_t *seen,
    const struct limits &limits, F &&meanwhile)
{
	constexpr unsigned bytes = tile<E>::bytes;
	float s[STRIPS][KEYS<E> / 8][4];
	uint32_t p[STRIPS][KEYS<E> / 16][4];
	unsigned now = 0;                              /* offset of the current stage in the ring */
	const auto load = [&](unsigned to, const void *from, uint32_t number) {
		if (number < last)
			copy_tile<E>(ring + to, (const char *)from + c.start[g] * tile<E>::row +
			    (size_t)number * bytes, c.len[g] - number * KEYS<E>);
		cp_async_commit();
	};
	/* Waits for the current tile; then the stage of the tile before is free for the next
	 * load. */
	const auto step = [&](const void *from, uint32_t number) {
		cp_async_wait<1>();
		__syncthreads();
		load(now == 0 ? (RING - 1) * bytes : now - bytes, from, number);
	};

	load(0, c.k, first);
	load(bytes, VALUES ? c.v : c.k, VALUES ? first : first + 1);
	meanwhile();
	for (uint32_t number = first; number < last; number++) {
		/* Warps differ little in the first tile of a window; a second test spills. */
		const bool sees = number * KEYS<E> < seen[31];

		step(c.k, VALUES ? number + 1 : number + 2);
		if (sees) {
			scores<T, E>(s, queries, ring + now);
			if (LIMITED && limits.cap > 0)
				cap_scores<E>(s, limits);
			if ((number + 1) * KEYS<E> > seen[0] ||
			    (LIMITED && number * KEYS<E> < from[31]))
				mask_unseen<E, LIMITED>(s, number * KEYS<E>, from, seen);
			softmax_step<T, E, VALUES>(p, s, t);
		}
		now = now == (RING - 1) * bytes ? 0 : now + bytes;
		if constexpr (VALUES) {
			step(c.v, number + 1);
			if (sees)
				outputs<T, E>(t, p, ring + now);
			now = now == (RING - 1) * bytes ? 0 : now + bytes;
		}
	}
}

/* FlashAttention-2 forward: ROWS packed query rows of one KV head and one split of its keys.
 * VALUES false: lse only. */
template <class T, int E, bool VALUES, bool LIMITED>
static __global__ void __launch_bounds__(THREADS, 2)
attend_tiles(float *o, float *lse, const float *q, const struct rows c, const uint32_t *qpos,
    const struct plan plan)
{
	DYN_SHARED(char, ring);                        /* [RING] tiles, queries */
	SHARED(uint32_t[ROWS], seen);                  /* rows that each query row sees */
	SHARED(uint32_t[ROWS], row);                   /* its index in o and lse */
	SHARED(uint32_t[ROWS], first_row);
	constexpr bool PACKED = LIMITED && E == 128;   /* no array of these: packed_rows */
	uint32_t *const from = PACKED ? row : first_row;       /* LIMITED: the first row seen */
	const uint32_t split = blockIdx.x % plan.splits, x = blockIdx.x / plan.splits;
	const uint32_t g = x / plan.heads / plan.blocks * plan.heads + x % plan.heads;
	const uint32_t m = (plan.blocks - 1 - x / plan.heads % plan.blocks) * ROWS + threadIdx.x;
	const uint32_t R = plan.H / c.G, rows = min(plan.N * R - m + threadIdx.x, (uint32_t)ROWS);
	const uint32_t warp = threadIdx.x / 32 * 32;
	uint32_t first = split * plan.tiles, tiles = plan.tiles;
	uint4 *const queries = (uint4 *)(ring + RING * tile<E>::bytes);
	struct softmax_state<E> t;

	if (g >= c.G)
		return;
	/* Padding rows see what the last row sees; a warp of only padding has nothing to do. */
	const uint32_t i = min(m, plan.N * R - 1);
	if constexpr (!PACKED)
		row[threadIdx.x] =
		    i == m ? (split * plan.N + i / R) * plan.H + g * R + i % R : NO_ROW;
	seen[threadIdx.x] = warp >= rows ? 0 :
	    seen_rows(c.pos + c.start[g], c.len[g], qpos[i / R]);
	if constexpr (LIMITED)
		from[threadIdx.x] = first_seen(c.pos + c.start[g], seen[threadIdx.x], qpos[i / R],
		    plan.limits.reach);
	__syncthreads();
	const uint32_t end = (seen[rows - 1] + KEYS<E> - 1) / KEYS<E>;
	if constexpr (LIMITED) {
		const uint32_t begin = from[0] / KEYS<E>;

		tiles = max(tiles, (end - begin + plan.splits - 1) / plan.splits);
		first = begin + split * tiles;
	}
	const uint32_t last = min(end, first + tiles);
	clear(t);
	const auto index = [&] {
		if constexpr (PACKED)
			return packed_rows{ m - threadIdx.x + warp, plan.N * R, R, plan.H,
				split * plan.N * plan.H + g * R };
		else
			return row + warp;
	}();
	for_key_tiles<T, E, VALUES, LIMITED>(t, queries, ring, c, g, first, last, from + warp,
	    seen + warp, plan.limits, [&] {
		load_queries<T, E>(queries, q, index, split * plan.N * plan.H, plan.scale);
	});
	write_output<T, E, VALUES>(o, (T *)plan.narrow, lse, t, index);
}

/* Split-KV: o and lse of each query row and head from those of its splits, weighted by
 * exp(lse). One block for each query row and head. */
static __global__ void __launch_bounds__(THREADS)
combine_splits(float *o, float *lse, const float *split_o, const float *split_lse, uint32_t splits,
    size_t rows, uint32_t E)
{
	const size_t row = blockIdx.x;
	float m = -INFINITY, l = 0;

	for (uint32_t p = 0; p < splits; p++)
		m = fmaxf(m, split_lse[p * rows + row]);
	for (uint32_t p = 0; p < splits && m > -INFINITY; p++)
		l += expf(split_lse[p * rows + row] - m);
	for (uint32_t e = threadIdx.x; e < E && o != NULL; e += THREADS) {
		float sum = 0;

		for (uint32_t p = 0; p < splits && l > 0; p++)
			sum += expf(split_lse[p * rows + row] - m) *
			    split_o[(p * rows + row) * E + e];
		o[row * E + e] = l > 0 ? sum / l : 0;
	}
	if (threadIdx.x == 0 && lse != NULL)
		lse[row] = l > 0 ? m + logf(l) : -INFINITY;
}

#define MIN_SPLIT_ROWS 512       /* of a split of the keys */

static struct plan
plan_attend(const struct dev *d, const struct rows *c, const struct query *query, uint32_t keys)
{
	const uint32_t N = query->N, H = query->H;
	const uint32_t slots = 2 * d->sms, blocks = parts_of((size_t)N * (H / c->G), ROWS);
	uint32_t g, longest = 1, splits;

	for (g = 0; g < c->G; g++)
		longest = c->len[g] > longest ? c->len[g] : longest;
	/* Through a window, consecutive queries see no more together. */
	if (query->window > 0 && (uint64_t)query->window + N < longest)
		longest = query->window + N;
	/* Keys and values of a set of heads may have half of L2. */
	const size_t fit = d->l2 / 2 / ((size_t)longest * c->E * 4);
	const uint32_t all = parts_of(longest, keys);

	splits = slots / (blocks * c->G);
	splits = min(splits, longest / MIN_SPLIT_ROWS);
	const uint32_t tiles = splits > 1 ? parts_of(all, splits) : all;
	return { .N = N, .H = H, .blocks = blocks, .heads = fit < 1 ? 1 : fit > c->G ? c->G :
		(uint32_t)fit, .splits = parts_of(all, tiles), .tiles = tiles,
		.scale = (float)(M_LOG2E / sqrt((double)c->E)),
		.limits = limits_of(query, M_LOG2E), .narrow = NULL };
}

template <class T, int E>
static void
attend_width(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c)
{
	struct plan plan = plan_attend(d, c, query, KEYS<E>);
	const unsigned grid = parts_of(c->G, plan.heads) * plan.heads * plan.blocks * plan.splits;
	const size_t shared = RING * tile<E>::bytes + ROWS * E * 2;
	const size_t rows = (size_t)query->N * query->H;
	const size_t values = o != NULL ? plan.splits * rows * E : 0;
	float *to_o = o, *to_lse = lse;
	struct narrow copy = {};

	/* Who wants lse adds up attention mass next: the product with o does not follow directly. */
	if (std::is_same_v<T, bf16> && o != NULL && lse == NULL && plan.splits == 1 &&
	    gpu_narrow_alloc(d, &copy, KV_BF16, query->N, query->H * E))
		plan.narrow = (void *)copy.at;
	if (plan.splits > 1) {
		to_o = (float *)gpu_scratch(d, SCRATCH_PARTS,
		    (values + plan.splits * rows) * sizeof(float));
		to_lse = to_o + values;
	}
	with_limited(plan.limits, [&](auto limited) {
		constexpr bool LIMITED = limited.value;

		if (o != NULL)
			LAUNCH(d, (attend_tiles<T, E, true, LIMITED>), grid, THREADS, shared, to_o,
			    to_lse, query->q, *c, query->pos, plan);
		else
			LAUNCH(d, (attend_tiles<T, E, false, LIMITED>), grid, THREADS, shared, NULL,
			    to_lse, query->q, *c, query->pos, plan);
	});
	if (plan.splits > 1)
		LAUNCH(d, combine_splits, (unsigned)rows, THREADS, 0, o, lse, to_o, to_lse,
		    plan.splits, rows, E);
	if (plan.narrow != NULL)
		d->narrowed = { .x = o, .N = copy.N, .in = copy.in, .dtype = copy.dtype };
}

template <class T>
static void
attend_dtype(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c)
{
	switch (c->E) {
	case 32:
		attend_width<T, 32>(d, o, lse, query, c);
		break;
	case 64:
		attend_width<T, 64>(d, o, lse, query, c);
		break;
	case 80:
		attend_width<T, 80>(d, o, lse, query, c);
		break;
	case 96:
		attend_width<T, 96>(d, o, lse, query, c);
		break;
	case 128:
		attend_width<T, 128>(d, o, lse, query, c);
		break;
	}
}

/* Do the tensor core kernels take this shape, dtype and alignment? */
static int
fits_tensor_cores(const struct rows *c, enum kv_dtype dtype, const float *o, const float *q)
{
	return dtype != KV_F32 && (c->E == 32 || c->E == 64 || c->E == 80 || c->E == 96 ||
	    c->E == 128) && ((uintptr_t)c->k | (o != NULL ? (uintptr_t)c->v : 0)) % 16 == 0 &&
	    ((uintptr_t)o | (uintptr_t)q) % 8 == 0;
}

void
gpu_attend(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l)
{
	struct rows c;

	if (query->N <= DECODE_QUERIES) {
		gpu_attend_decode(d, o, lse, query, l);
		return;
	}
	if (!gpu_rows_of(d, &c, l, query->H, "attend") || query->H == 0)
		return;
	if (d->reference || !fits_tensor_cores(&c, l->dtype, o, query->q))
		gpu_attend_plain(d, o, lse, query, l, &c);
	else if (l->dtype == KV_BF16)
		attend_dtype<bf16>(d, o, lse, query, &c);
	else
		attend_dtype<f16>(d, o, lse, query, &c);
}

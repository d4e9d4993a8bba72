/* gpu_attend.cu - attention of many queries
 *
 * A row of the cache is seen by a query when its position is not greater than the query's. Both
 * ascend, so that a query sees the first so many rows of a KV head, and no others: once that
 * number is known, positions are not looked at again. This serves whole prompts, pieces of
 * one after a past, queries of chosen tokens and caches with dropped rows alike.
 *
 * Keys and values of 16 bits go through tensor cores: FlashAttention-2 (Dao 2023, algorithm 1),
 * with queries and weights rounded to the type of the cache and all sums in f32. Other types
 * and odd widths are gpu_attend_plain.cu's. */
#include "gpu/gpu_internal.h"

/* A block has ROWS query rows of one KV head: row m of the head is query m / R with head m % R
 * of the R that share it, so that few queries fill a block too, and keys are fetched once for
 * all heads. It goes through the keys in tiles of KEYS. A warp has 32 of the rows, two strips of
 * 16, as mma() has them: a thread holds parts of four rows, lane / 4 and 8 further of each
 * strip.
 *
 * Tiles of keys and of values come in turns through a ring in shared memory: while one is
 * multiplied the next two are on their way. Three tiles and the queries of 128 channels are
 * 80 KiB, so that two blocks fit a multiprocessor also where it has 164 KiB.
 *
 * KEYS: as many as 255 registers allow for each of two blocks. The more, the less often the
 * maxima of rows are put together, and warps wait for each other. */

enum { THREADS = 128, ROWS = 128, RING = 3, STRIPS = 2 };
template <int E> constexpr unsigned KEYS = E == 32 ? 128 : E == 64 ? 96 : 64;

/* By how many powers of two weights may exceed 1 before the maximum of a row is raised, and
 * everything summed so far scaled. Floating point has room; rising maxima are frequent. */
#define SLACK 8.0f

/* How a tile of keys or values lies in shared memory: each row has units of 16 bytes, in
 * groups of `width`, and in a group their order depends on the row, so that the 8 rows of a
 * matrix that ldmatrix_x4() reads lie in different banks. */
template <int E> struct tile {
	static constexpr unsigned units = E / 8, width = E % 64 == 0 ? 8 : E % 32 == 0 ? 4 : 2;
	static constexpr unsigned row = E * 2, bytes = KEYS<E> * row;
};

/* The byte where a unit of a row begins. 8 rows further it is 8 whole rows further. */
template <int E>
DEVICE unsigned
place(unsigned row, unsigned unit)
{
	using t = tile<E>;

	return row * t::row + (unit ^ row / (8 / t::width) % t::width) * 16;
}

/* What this lane gives to ldmatrix_x4() for rows 16j .. 16j + 15 and units 2i, 2i + 1, so
 * that two registers that follow each other are what mma() wants of 8 columns: of values,
 * which are transposed, matrices 0 and 1 are the rows' unit 2i, 2 and 3 their unit 2i + 1; of
 * keys 0 and 1 are both units of the first 8 rows. */
template <int E, bool VALUES>
DEVICE const char *
matrices(const char *tiles, unsigned j, unsigned i)
{
	using t = tile<E>;
	const unsigned lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
	const unsigned first = place<E>(lane % 8 + (VALUES ? low : high) * 8, VALUES ? high : low);

	return tiles + (first ^ 2 * i % t::width * 16) + 2 * i / t::width * t::width * 16 +
	    j * 16 * t::row;
}

/* Asks for a tile, of which there are so many rows; zeros behind them */
template <int E>
DEVICE void
copy_tile(char *to, const char *from, uint32_t rows)
{
	using t = tile<E>;
	constexpr unsigned together = THREADS / t::width;      /* rows at a time */
	const unsigned row = threadIdx.x / t::width, unit = threadIdx.x % t::width;

	to += place<E>(row, unit);
	from += row * t::row + unit * 16;
UNROLL	for (unsigned r = 0; r < KEYS<E>; r += together)
UNROLL		for (unsigned u = 0; u < t::units; u += t::width)
			cp_async16(to + r * t::row + u * 16, from + r * t::row + u * 16,
			    row + r < rows);
}

/* Scaled queries, as mma() reads them. There is no room in registers, so they are in shared
 * memory, [E / 16][STRIPS][THREADS]; each thread reads only what it has written. */
DEVICE void
get_queries(uint32_t a[STRIPS][4], const uint4 *queries, unsigned i)
{
UNROLL	for (unsigned x = 0; x < STRIPS; x++) {
		const uint4 f = queries[(i * STRIPS + x) * THREADS + threadIdx.x];

		a[x][0] = f.x, a[x][1] = f.y, a[x][2] = f.z, a[x][3] = f.w;
	}
}

/* Where channel 0 of a row of q stands; row 0's instead of one that is not there */
template <int E>
DEVICE const float *
query_at(const float *q, uint32_t row, uint32_t before)
{
	return q + (row != NO_ROW ? (size_t)(row - before) * E : 0);
}

/* row: [32] of this warp, their places in q, behind so many others */
template <class T, int E>
DEVICE void
put_queries(
    uint4 *queries, const float *q, const uint32_t *row, uint32_t before, float scale)
{
	const unsigned lane = threadIdx.x % 32;

	for (unsigned x = 0; x < STRIPS; x++) {
		const uint32_t *two = row + x * 16 + lane / 4;
		const float *low = query_at<E>(q, two[0], before) + lane % 4 * 2;
		const float *high = query_at<E>(q, two[8], before) + lane % 4 * 2;

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

/* s <- scores of the warp's rows with a tile of keys */
template <class T, int E>
DEVICE void
scores(float s[STRIPS][KEYS<E> / 8][4], const uint4 *queries, const char *keys)
{
UNROLL	for (unsigned x = 0; x < STRIPS; x++)
UNROLL		for (unsigned j = 0; j < KEYS<E> / 8; j++)
			s[x][j][0] = s[x][j][1] = s[x][j][2] = s[x][j][3] = 0;
UNROLL	for (unsigned i = 0; i < E / 16; i++) {
		uint32_t a[STRIPS][4], b[4];

		get_queries(a, queries, i);
UNROLL		for (unsigned j = 0; j < KEYS<E> / 16; j++) {
			ldmatrix_x4<false>(b, matrices<E, false>(keys, j, i));
UNROLL			for (unsigned x = 0; x < STRIPS; x++) {
				mma(T{}, s[x][2 * j], a[x], b);
				mma(T{}, s[x][2 * j + 1], a[x], b + 2);
			}
		}
	}
}

/* Of the tile that begins with row first, only the rows below seen[] count. */
template <int E>
DEVICE void
hide(float s[STRIPS][KEYS<E> / 8][4], uint32_t first, const uint32_t *seen)
{
	const unsigned lane = threadIdx.x % 32;

	first += lane % 4 * 2;
UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		const uint32_t end = seen[r * 8 + lane / 4];

UNROLL		for (unsigned j = 0; j < KEYS<E> / 8; j++)
UNROLL			for (unsigned e = 0; e < 2; e++)
				if (first + j * 8 + e >= end)
					s[r / 2][j][r % 2 * 2 + e] = -INFINITY;
	}
}

/* What a thread knows of its four rows: the reference m of the exponents, within SLACK of the
 * greatest score; sum l of its columns' weights 2^(s - m); and o, sums of weights times
 * values */
template <int E> struct sums {
	float m[2 * STRIPS], l[2 * STRIPS], o[STRIPS][E / 8][4];
};

template <int E>
DEVICE void
clear(struct sums<E> &t)
{
UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		t.m[r] = -INFINITY;
		t.l[r] = 0;
	}
UNROLL	for (unsigned x = 0; x < STRIPS; x++)
UNROLL		for (unsigned j = 0; j < E / 8; j++)
			t.o[x][j][0] = t.o[x][j][1] = t.o[x][j][2] = t.o[x][j][3] = 0;
}

template <int E, bool VALUES>
DEVICE void
raise(struct sums<E> &t, const float top[2 * STRIPS])
{
UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		const float to = top[r] > t.m[r] + SLACK ? top[r] : t.m[r];
		const float scale = to == t.m[r] ? 1 : exp2_fast(t.m[r] - to);

		t.m[r] = to;
		t.l[r] *= scale;
UNROLL		for (unsigned j = 0; j < E / 8 && VALUES; j++) {
			t.o[r / 2][j][r % 2 * 2] *= scale;
			t.o[r / 2][j][r % 2 * 2 + 1] *= scale;
		}
	}
}

/* Scores become weights; p <- the same as mma() reads them, rounded */
template <class T, int E, bool VALUES>
DEVICE void
soften(uint32_t p[STRIPS][KEYS<E> / 16][4], float s[STRIPS][KEYS<E> / 8][4],
    struct sums<E> &t)
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
		rises |= top[r] > t.m[r] + SLACK;
	}
	if (__any_sync(ALL_LANES, rises))
		raise<E, VALUES>(t, top);
UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		/* A row that has seen nothing yet: 2^(-inf) is 0, but -inf - -inf is no
		 * number. */
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

/* o += weights . a tile of values */
template <class T, int E>
DEVICE void
outputs(struct sums<E> &t, const uint32_t p[STRIPS][KEYS<E> / 16][4], const char *values)
{
UNROLL	for (unsigned j = 0; j < KEYS<E> / 16; j++)
UNROLL		for (unsigned i = 0; i < E / 16; i++) {
			uint32_t b[4];

			ldmatrix_x4<true>(b, matrices<E, true>(values, j, i));
UNROLL			for (unsigned x = 0; x < STRIPS; x++) {
				mma(T{}, t.o[x][2 * i], p[x][j], b);
				mma(T{}, t.o[x][2 * i + 1], p[x][j], b + 2);
			}
		}
}

/* How a call is cut. The blocks of a set of KV heads, whose keys and values stay in the
 * second-level cache, are next to each other; of these the last rows, which see most, come
 * first. Where there are few blocks the tiles of the keys are cut into parts, whose results
 * are put together afterwards. */
struct cut {
	uint32_t N, H;
	uint32_t blocks;             /* of query rows of a KV head */
	uint32_t heads;              /* of a set */
	uint32_t parts, tiles;       /* tiles of keys of a part */
	float scale;                 /* of the queries */
};

/* o and lse of the rows of this warp. Four threads have a part of each. */
template <int E, bool VALUES>
DEVICE void
put_results(float *o, float *lse, const struct sums<E> &t, const uint32_t *row)
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
UNROLL			for (unsigned j = 0; j < E / 8 && VALUES; j++)
				*(float2 *)(o + (size_t)at * E + j * 8 + lane % 4 * 2) =
				    make_float2(t.o[r / 2][j][r % 2 * 2] * scale,
					t.o[r / 2][j][r % 2 * 2 + 1] * scale);
		}
	}
}

/* The loop over the tiles first .. last-1 of KV head g. seen: [32] how many rows of it each
 * query row of this warp sees, ascending. meanwhile: what is to be done while the first tiles
 * come */
template <class T, int E, bool VALUES, class F>
DEVICE void
through_tiles(struct sums<E> &t, const uint4 *queries, char *ring, const struct rows &c,
    uint32_t g, uint32_t first, uint32_t last, const uint32_t *seen, F &&meanwhile)
{
	constexpr unsigned bytes = tile<E>::bytes;
	float s[STRIPS][KEYS<E> / 8][4];
	uint32_t p[STRIPS][KEYS<E> / 16][4];
	unsigned now = 0;                              /* where in the ring */
	const auto ask = [&](unsigned to, const void *from, uint32_t number) {
		if (number < last)
			copy_tile<E>(ring + to, (const char *)from + c.start[g] * tile<E>::row +
			    (size_t)number * bytes, c.len[g] - number * KEYS<E>);
		cp_async_commit();
	};
	/* Waits for the tile that stands at now. Its forerunner's place is free then, and the
	 * next but one may come there. */
	const auto step = [&](const void *from, uint32_t number) {
		cp_async_wait<1>();
		__syncthreads();
		ask(now == 0 ? (RING - 1) * bytes : now - bytes, from, number);
	};

	ask(0, c.k, first);
	ask(bytes, VALUES ? c.v : c.k, VALUES ? first : first + 1);
	meanwhile();
	for (uint32_t number = first; number < last; number++) {
		const bool sees = number * KEYS<E> < seen[31];

		step(c.k, VALUES ? number + 1 : number + 2);
		if (sees) {
			scores<T, E>(s, queries, ring + now);
			if ((number + 1) * KEYS<E> > seen[0])
				hide<E>(s, number * KEYS<E>, seen);
			soften<T, E, VALUES>(p, s, t);
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

template <class T, int E, bool VALUES>
static __global__ void __launch_bounds__(THREADS, 2)
attend_tiles(float *o, float *lse, const float *q, const struct rows c, const uint32_t *qpos,
    const struct cut cut)
{
	DYN_SHARED(char, ring);                        /* [RING] tiles, queries */
	SHARED(uint32_t[ROWS], seen);                  /* rows of the cache, by each query row */
	SHARED(uint32_t[ROWS], row);                   /* its place in o and lse */
	const uint32_t part = blockIdx.x % cut.parts, x = blockIdx.x / cut.parts;
	const uint32_t g = x / cut.heads / cut.blocks * cut.heads + x % cut.heads;
	const uint32_t m = (cut.blocks - 1 - x / cut.heads % cut.blocks) * ROWS + threadIdx.x;
	const uint32_t R = cut.H / c.G, rows = min(cut.N * R - m + threadIdx.x, (uint32_t)ROWS);
	const uint32_t warp = threadIdx.x / 32 * 32, first = part * cut.tiles;
	uint4 *const queries = (uint4 *)(ring + RING * tile<E>::bytes);
	struct sums<E> t;

	if (g >= c.G)
		return;
	/* Rows behind the last see what it sees; a warp of only such rows has nothing to do. */
	const uint32_t i = min(m, cut.N * R - 1);
	row[threadIdx.x] = i == m ? (part * cut.N + i / R) * cut.H + g * R + i % R : NO_ROW;
	seen[threadIdx.x] = warp >= rows ? 0 :
	    seen_rows(c.pos + c.start[g], c.len[g], qpos[i / R]);
	__syncthreads();
	const uint32_t last = min((seen[rows - 1] + KEYS<E> - 1) / KEYS<E>,
	    first + cut.tiles);
	clear(t);
	through_tiles<T, E, VALUES>(t, queries, ring, c, g, first, last, seen + warp, [&] {
		put_queries<T, E>(queries, q, row + warp, part * cut.N * cut.H, cut.scale);
	});
	put_results<E, VALUES>(o, lse, t, row + warp);
}

/* o and lse of each query row and head from those of the parts of the keys */
static __global__ void __launch_bounds__(THREADS)
join_parts(float *o, float *lse, const float *part_o, const float *part_lse, uint32_t parts,
    size_t rows, uint32_t E)
{
	const size_t row = blockIdx.x;
	float m = -INFINITY, l = 0;

	for (uint32_t p = 0; p < parts; p++)
		m = fmaxf(m, part_lse[p * rows + row]);
	for (uint32_t p = 0; p < parts && m > -INFINITY; p++)
		l += expf(part_lse[p * rows + row] - m);
	for (uint32_t e = threadIdx.x; e < E && o != NULL; e += THREADS) {
		float sum = 0;

		for (uint32_t p = 0; p < parts && l > 0; p++)
			sum += expf(part_lse[p * rows + row] - m) *
			    part_o[(p * rows + row) * E + e];
		o[row * E + e] = l > 0 ? sum / l : 0;
	}
	if (threadIdx.x == 0 && lse != NULL)
		lse[row] = l > 0 ? m + logf(l) : -INFINITY;
}

#define PART_ROWS 512            /* a part of the keys shall not be shorter */

static struct cut
cut_up(const struct dev *d, const struct rows *c, uint32_t N, uint32_t H, uint32_t keys)
{
	const uint32_t places = 2 * d->sms, blocks = parts_of((size_t)N * (H / c->G), ROWS);
	uint32_t g, longest = 1, parts;

	for (g = 0; g < c->G; g++)
		longest = c->len[g] > longest ? c->len[g] : longest;
	/* Keys and values of a set of heads shall have half of the second-level cache. */
	const size_t fit = d->l2 / 2 / ((size_t)longest * c->E * 4);
	const uint32_t all = parts_of(longest, keys);

	parts = places / (blocks * c->G);
	parts = min(parts, longest / PART_ROWS);
	const uint32_t tiles = parts > 1 ? parts_of(all, parts) : all;
	return { .N = N, .H = H, .blocks = blocks, .heads = fit < 1 ? 1 : fit > c->G ? c->G :
		(uint32_t)fit, .parts = parts_of(all, tiles), .tiles = tiles,
		.scale = (float)(1.4426950408889634 / sqrt((double)c->E)) };
}

template <class T, int E>
static void
attend_width(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c)
{
	const struct cut cut = cut_up(d, c, query->N, query->H, KEYS<E>);
	const unsigned grid = parts_of(c->G, cut.heads) * cut.heads * cut.blocks * cut.parts;
	const size_t shared = RING * tile<E>::bytes + ROWS * E * 2;
	const size_t rows = (size_t)query->N * query->H, values = o != NULL ? cut.parts * rows * E : 0;
	float *to_o = o, *to_lse = lse;

	if (cut.parts > 1) {
		to_o = (float *)gpu_scratch(d, SCRATCH_PARTS,
		    (values + cut.parts * rows) * sizeof(float));
		to_lse = to_o + values;
	}
	if (o != NULL)
		LAUNCH(d, (attend_tiles<T, E, true>), grid, THREADS, shared, to_o, to_lse,
		    query->q, *c, query->pos, cut);
	else
		LAUNCH(d, (attend_tiles<T, E, false>), grid, THREADS, shared, NULL, to_lse,
		    query->q, *c, query->pos, cut);
	if (cut.parts > 1)
		LAUNCH(d, join_parts, (unsigned)rows, THREADS, 0, o, lse, to_o, to_lse, cut.parts,
		    rows, E);
}

template <class T>
static void
attend_16(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c)
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

/* Is this for tensor cores? */
static int
is_for_tensors(const struct rows *c, enum kv_dtype dtype, const float *o, const float *q)
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
	if (!gpu_whole_window(d, query) || !gpu_rows_of(d, &c, l, query->H, "attend") ||
	    query->H == 0)
		return;
	if (d->reference || !is_for_tensors(&c, l->dtype, o, query->q))
		gpu_attend_plain(d, o, lse, query, l, &c);
	else if (l->dtype == KV_BF16)
		attend_16<bf16>(d, o, lse, query, &c);
	else
		attend_16<f16>(d, o, lse, query, &c);
}

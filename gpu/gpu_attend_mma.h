/* gpu_attend_mma.h - prefill attention on tensor cores, as one warp of gpu_attend.cu sees it: tiles
 * of keys and values in shared memory, scores, a step of the online softmax, outputs */
#ifndef GPU_ATTEND_MMA_H
#define GPU_ATTEND_MMA_H

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

#endif

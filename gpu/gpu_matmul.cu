/* gpu_matmul.cu - y = x . w^T with weights in the type they are stored in
 *
 * Few rows: one pass over the weights, here. More: cuBLAS, gpu_blas.cu. */
#include "gpu/gpu_internal.h"

#define MOST (1u << 30)        /* rows, columns */

/* ---- the naive kernel ---- */

enum { THREADS = 256 };

/* A thread for each element of y; sums of sums of 16: a long row loses less to rounding. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_matmul(float *y, const float *x, const T *w, const float *bias, uint32_t N, uint32_t in,
    uint32_t out, int add)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, n = i / out, o = i % out;
	float sum = 0, part, piece;

	if (n >= N)
		return;
	/* sums of sums: a long one loses little */
	for (uint32_t k = 0; k < in;) {
		piece = 0;
		for (uint32_t to = min(in, k + 512); k < to;) {
			part = 0;
			for (uint32_t end = min(to, k + 16); k < end; k++)
				part += x[n * in + k] * widen(w[o * in + k]);
			piece += part;
		}
		sum += piece;
	}
	y[i] = sum + (bias != NULL ? bias[o] : 0) + (add ? y[i] : 0);
}

static void
reference(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	const size_t blocks = ((size_t)N * w->out + THREADS - 1) / THREADS;

	if (blocks > INT32_MAX) {
		gpu_fail(d, "matmul: %u rows by %u outputs are too many", N, w->out);
		return;
	}
	with_type(w->dtype, [&](auto t) {
		using T = decltype(t);

		LAUNCH(d, reference_matmul<T>, (unsigned)blocks, THREADS, 0, y, x,
		    (const T *)w->data, bias, N, w->in, w->out, add);
	});
}

/* ---- few rows ----
 *
 * The time is that of reading the weights once. A GPU of 132 multiprocessors and 4.3 TB/s that
 * answers after 0.8 us needs 3.4 MB, or 26 KB for each multiprocessor, on the way at every
 * moment. Here 1024 threads of one ask for 8 x 16 bytes each before they use the first: 128 KB,
 * enough also while most of the warps compute. More rows of x have more sums, which need the
 * registers: 96 KB for two, 48 KB for up to four and up to eight.
 *
 * A unit of work is ABREAST rows of w, and of these every split-th step: a step is what a warp
 * loads at once, 16 bytes of each row by each lane. A block keeps x in shared memory, or
 * as much of each row as there is room for, chunk by chunk; its warps take its units in
 * turns and leave sums. When all are there, those of the units that share rows are added, in
 * order. So warps wait for each other twice in a chunk and never else, and split can be
 * such that units are dealt out evenly, also where w has few rows.
 *
 * x stays in f32: 16 bits would spare no time. ABREAST rows use each element of x that is read
 * from shared memory, which has not much more than six times the bandwidth. */

enum { ABREAST = 4 };
enum { MOST_SUMS = 16 << 10 };         /* bytes of shared memory */

/* For so many rows of x: threads of a block, blocks of a multiprocessor, and steps that are loaded
 * before the first is used. More sums want more registers of each thread. */
template <unsigned ROWS> constexpr unsigned few_threads = ROWS == 1 ? 512 : 384;
template <unsigned ROWS> constexpr unsigned few_blocks = ROWS > 4 ? 1 : 2;
template <unsigned ROWS> constexpr unsigned few_deep = ROWS == 4 ? 1 : 2;

/* Elements that a lane, and that a warp loads at once from a row */
template <class T> constexpr uint32_t lane_step = 16 / sizeof(T);
template <class T> constexpr uint32_t warp_step = 32 * lane_step<T>;

/* How a product is cut up */
struct cut {
	uint32_t N, in, out;
	uint32_t groups;               /* of ABREAST rows of w, for each block */
	uint32_t split;                /* units of a group */
	uint32_t chunk;                /* elements of each row of x in shared memory, whole steps */
	int add;
};

/* 16 bytes of a row of w from element k on; zeros from element end on */
template <class T, bool ALIGNED>
DEVICE uint4
weights_at(const T *row, uint32_t k, uint32_t end)
{
	uint4 v = make_uint4(0, 0, 0, 0);

	if constexpr (ALIGNED) {
		if (k < end)
			v = load_once(row + k);
	} else {
		pack<T, lane_step<T>> p = {};

		for (uint32_t i = 0; i < lane_step<T> && k + i < end; i++)
			p.at[i] = row[k + i];
		memcpy(&v, &p, sizeof v);
	}
	return v;
}

/* held[ROWS][chunk] <- elements from .. end of each row of x, and zeros up to a whole step. Eight
 * elements of a lane lie as two times four: then neighbours read neighbouring 16 bytes. */
template <class T, unsigned ROWS, bool ALIGNED>
DEVICE void
hold_x(float *held, const float *x, const struct cut &c, uint32_t from, uint32_t end)
{
	const uint32_t fours = (end - from + warp_step<T> - 1) / warp_step<T> * (warp_step<T> / 4);

	for (uint32_t n = 0; n < ROWS; n++)
		for (uint32_t i = threadIdx.x; i < fours; i += few_threads<ROWS>) {
			const uint32_t k = from + 4 * i, left = k < end && n < c.N ? end - k : 0;
			const float *p = x + (size_t)n * c.in + k;
			pack<float, 4> four;

			if (ALIGNED && left > 0)
				four = *(const pack<float, 4> *)p;
			else
				for (uint32_t e = 0; e < 4; e++)
					four.at[e] = e < left ? p[e] : 0;
			*(pack<float, 4> *)(held + (size_t)n * c.chunk + 4 * (lane_step<T> == 4 ?
			    i : (i & ~63u) | (i & 1) << 5 | (i & 63) >> 1)) = four;
		}
}

/* sum += products of one step of ABREAST rows of w and of the rows of x, held from there on */
template <class T, unsigned ROWS>
DEVICE void
add_step(float sum[ABREAST * ROWS], const uint4 v[ABREAST], const float *held, uint32_t chunk)
{
UNROLL	for (uint32_t half = 0; half < lane_step<T> / 4; half++) {
		pack<float, 4> x[ROWS];

UNROLL		for (uint32_t n = 0; n < ROWS; n++)
			x[n] = ((const pack<float, 4> *)(held + n * chunk))[32 * half +
			    threadIdx.x % 32];
UNROLL		for (uint32_t e = 0; e < 4; e++)
UNROLL			for (uint32_t r = 0; r < ABREAST; r++) {
				const float weight = element<T>(v[r], 4 * half + e);

UNROLL				for (uint32_t n = 0; n < ROWS; n++)
					sum[r * ROWS + n] += weight * x[n].at[e];
			}
	}
}

/* The sums of a unit over elements from .. end: of the lane, not yet of the warp */
template <class T, unsigned ROWS, bool ALIGNED>
DEVICE void
add_unit(float sum[ABREAST * ROWS], const T *w, const float *held, const struct cut &c,
    uint32_t row, uint32_t part, uint32_t from, uint32_t end)
{
	constexpr uint32_t deep = few_deep<ROWS>;
	const uint32_t stride = c.split * warp_step<T>, lane = threadIdx.x % 32;

	for (uint32_t at = part * warp_step<T>; at < end - from; at += deep * stride) {
		uint4 v[deep][ABREAST];

UNROLL		for (uint32_t u = 0; u < deep; u++)
UNROLL			for (uint32_t r = 0; r < ABREAST; r++)
				v[u][r] = weights_at<T, ALIGNED>(
				    w + (size_t)min(row + r, c.out - 1) * c.in,
				    from + at + u * stride + lane * lane_step<T>, end);
UNROLL		for (uint32_t u = 0; u < deep; u++)
			if (u == 0 || at + u * stride < end - from)
				add_step<T, ROWS>(sum, v[u], held + at + u * stride, c.chunk);
	}
}

/* The sum over the warp of v[lane / (32 / C)]. At each step a lane gives one half of what it has
 * and adds what it is given to the other: 31 exchanges for 32 sums, which one by one take 160. */
template <int C, int BIT = 16>
DEVICE float
warp_sums(float v[C])
{
	if constexpr (BIT == 0)
		return v[0];
	if constexpr (C == 1)
		v[0] += __shfl_xor_sync(ALL_LANES, v[0], BIT);
UNROLL	for (int i = 0; i < C / 2; i++) {
		const bool upper = threadIdx.x & BIT;
		const float given = __shfl_xor_sync(ALL_LANES, upper ? v[i] : v[i + C / 2], BIT);

		v[i] = (upper ? v[i + C / 2] : v[i]) + given;
	}
	return warp_sums<C == 1 ? 1 : C / 2, BIT / 2>(v);
}

/* y of the rows of w that this block has, from the sums [group][split][ABREAST][ROWS] */
template <unsigned ROWS>
DEVICE void
put_together(float *y, const float *sums, const float *bias, const struct cut &c, uint32_t first)
{
	for (uint32_t n = 0; n < c.N; n++)
		for (uint32_t i = threadIdx.x; i < c.groups * ABREAST && first + i < c.out;
		    i += few_threads<ROWS>) {
			float *to = y + (size_t)n * c.out + first + i, sum = 0;
			const float *p = sums + n +
			    (i / ABREAST * c.split * ABREAST + i % ABREAST) * ROWS;

			for (uint32_t part = 0; part < c.split; part++)
				sum += p[part * ABREAST * ROWS];
			*to = sum + (bias != NULL ? bias[first + i] : 0) + (c.add ? *to : 0);
		}
}

template <class T, unsigned ROWS, bool ALIGNED>
static __global__ void __launch_bounds__(few_threads<ROWS>, few_blocks<ROWS>)
few_rows(float *y, const float *x, const T *w, const float *bias, const struct cut c)
{
	DYN_SHARED(float, held);
	float *const sums = held + ROWS * c.chunk;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t first = blockIdx.x * c.groups * ABREAST;

	/* The first weights set out before x is here. */
	const uint32_t soon = (warp % c.split * 32 + lane) * lane_step<T>;
	const uint32_t soon_row = first + warp / c.split * ABREAST;
	for (uint32_t r = 0; r < ABREAST && soon < c.in; r++)
		load_ahead(w + (size_t)min(soon_row + r, c.out - 1) * c.in + soon);

	for (uint32_t from = 0; from < c.in; from += c.chunk) {
		const uint32_t end = min(c.in, from + c.chunk);

		__syncthreads();
		hold_x<T, ROWS, ALIGNED>(held, x, c, from, end);
		__syncthreads();
		for (uint32_t unit = warp; unit < c.groups * c.split;
		    unit += few_threads<ROWS> / 32) {
			const uint32_t row = first + unit / c.split * ABREAST;
			float sum[ABREAST * ROWS] = {};

			if (row >= c.out)
				break;
			add_unit<T, ROWS, ALIGNED>(sum, w, held, c, row, unit % c.split, from, end);
			const float all = warp_sums<ABREAST * ROWS>(sum);
			float *to = sums + unit * ABREAST * ROWS + lane / (32 / (ABREAST * ROWS));

			if (lane % (32 / (ABREAST * ROWS)) == 0)
				*to = from == 0 ? all : *to + all;
		}
	}
	__syncthreads();
	put_together<ROWS>(y, sums, bias, c, first);
}

/* Cuts so that blocks have the same work, and within a block warps, as nearly as can be. */
template <unsigned ROWS>
static struct cut
cut_up(const struct dev *d, const struct mat *w, uint32_t N, int add)
{
	const unsigned warps = few_threads<ROWS> / 32, resident = d->sms * few_blocks<ROWS>;
	const size_t room = few_blocks<ROWS> == 1 ? d->most_shared : (d->most_shared - 1024) / 2;
	const uint32_t step = 32 * 16 / (uint32_t)kv_dtype_size(w->dtype);
	const uint32_t most_chunk = (uint32_t)((room - MOST_SUMS) / (ROWS * 4) / step * step);
	const uint32_t most_units = MOST_SUMS / (ABREAST * ROWS * 4);
	const uint32_t groups = parts_of(w->out, ABREAST), chunks = parts_of(w->in, most_chunk);
	const uint32_t waves = parts_of(parts_of(groups, resident), most_units);
	struct cut c = { .N = N, .in = w->in, .out = w->out,
		.groups = parts_of(groups, resident * waves), .split = 1,
		.chunk = parts_of(parts_of(w->in, chunks), step) * step, .add = add };
	uint32_t turns, least = parts_of(c.groups, warps);

	for (uint32_t s = 2; s <= warps && s <= c.chunk / step && c.groups * s <= most_units;
	    s *= 2) {
		turns = parts_of(c.groups * s, warps);
		if (turns * c.split < least * s) {
			c.split = s;
			least = turns;
		}
	}
	return c;
}

template <unsigned ROWS>
static void
few(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias, uint32_t N,
    int add)
{
	const struct cut c = cut_up<ROWS>(d, w, N, add);
	const unsigned blocks = parts_of(w->out, c.groups * ABREAST);
	const size_t shared = ROWS * 4 * ((size_t)c.chunk + c.groups * c.split * ABREAST);
	const bool aligned = (uintptr_t)x % 16 == 0 && (uintptr_t)w->data % 16 == 0 &&
	    w->in * kv_dtype_size(w->dtype) % 16 == 0;

	with_type(w->dtype, [&](auto t) {
		using T = decltype(t);

		if (aligned)
			LAUNCH(d, (few_rows<T, ROWS, true>), blocks, few_threads<ROWS>, shared, y,
			    x, (const T *)w->data, bias, c);
		else
			LAUNCH(d, (few_rows<T, ROWS, false>), blocks, few_threads<ROWS>, shared, y,
			    x, (const T *)w->data, bias, c);
	});
}

void
gpu_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	if (N == 0 || w->in == 0 || w->out == 0)
		return;
	if (N > MOST || w->in > MOST || w->out > MOST)
		gpu_fail(d, "matmul: %u rows, weights %u x %u", N, w->out, w->in);
	else if (d->reference)
		reference(d, y, x, w, bias, N, add);
	else if (N == 1)
		few<1>(d, y, x, w, bias, N, add);
	else if (N == 2)
		few<2>(d, y, x, w, bias, N, add);
	else if (N <= 4)
		few<4>(d, y, x, w, bias, N, add);
	else if (N <= 8)
		few<8>(d, y, x, w, bias, N, add);
	else
		gpu_blas_matmul(d, y, x, w, bias, N, add);
}

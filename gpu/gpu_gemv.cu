/* gpu_gemv.cu - products of few rows of x with matrices, as they come in decoding
 *
 * The time is that of reading the weights once. A GPU of 132 multiprocessors and 4.3 TB/s that
 * answers after 0.8 us needs 3.4 MB, or 26 KB for each multiprocessor, on the way at every
 * moment. Here 768 threads of one ask for 8 x 16 bytes each before they use the first: 96 KB,
 * enough also while most of the warps compute. More rows of x have more sums, which need the
 * registers: 80 KB for two, 64 KB for up to four, 48 KB for up to eight. The compiler leaves the
 * eight loads together only where a thread has registers to spare (80, but not 64) and none of
 * them is used under a condition; else it puts products between them. cuobjdump -sass shows it.
 *
 * One launch does all products of the same x, whatever their sizes: ABREAST rows of w are a
 * group, the groups of all matrices stand in a line, and each block has as many of them. A unit
 * of work is a group, and of it every split-th step: a step is what a warp loads at once, 16
 * bytes of each row by each lane. A block keeps x in shared memory, or as much of each row as
 * there is room for, chunk by chunk; its warps take its units in turns and leave sums. When all
 * are there, those of the units that share a group are added, in order. So warps wait for each
 * other twice in a chunk and never else, and split can be such that units are dealt out evenly,
 * also where there are few groups.
 *
 * A norm before the product costs nothing more: x, which passes through each block anyway, is
 * multiplied by the norm's weights there and its squares are added up; what it is to be divided
 * by is the same for all sums, and comes at the end. A gated product, silu(gate) * up, has
 * groups of the two matrices by turns, so that one block has the sums of both.
 *
 * x stays in f32: 16 bits would spare no time. ABREAST rows use each element of x that is read
 * from shared memory, which has not much more than six times the bandwidth. */
#include "gpu/gpu_internal.h"

enum { ABREAST = 4 };
enum { MOST_SUMS = 16 << 10 };         /* bytes of shared memory */
enum { DEEP = 2 };                     /* steps that are loaded before the first is used */
enum { AT_ONCE = 4 };                  /* pieces of x that a thread loads before it stores one */
enum { MOST_PRODUCTS = 4 };            /* of one launch */

/* For so many rows of x: threads of a block, and blocks of a multiprocessor. More sums want more
 * registers of each thread. */
template <unsigned ROWS> constexpr unsigned few_threads = ROWS == 2 ? 320 : ROWS == 4 ? 512 : 384;
template <unsigned ROWS> constexpr unsigned few_warps = few_threads<ROWS> / 32;
template <unsigned ROWS> constexpr unsigned few_blocks = ROWS > 2 ? 1 : 2;

/* Elements that a lane, and that a warp loads at once from a row */
template <class T> constexpr uint32_t lane_step = 16 / sizeof(T);
template <class T> constexpr uint32_t warp_step = 32 * lane_step<T>;

/* One launch */
struct few {
	struct {
		const void *w;
		const float *bias;
		float *y;
		uint32_t out, groups;
	} of[MOST_PRODUCTS];           /* EPILOGUE_SWIGLU: of[0] is the gate, of[1] has no y */
	const float *x;                /* [N][in] */
	const float *norm;             /* [in]; NULL: none */
	float eps;
	enum epilogue what;
	uint32_t N, in;
	uint32_t groups;               /* of all matrices together */
	uint32_t each;                 /* groups of a block */
	uint32_t split;                /* units of a group */
	uint32_t chunk;                /* elements of each row of x in shared memory, whole steps */
};

/* A group: of which matrix, and its first row */
struct place {
	uint32_t of, row;
};

DEVICE struct place
place_of(const struct few &f, uint32_t group)
{
	uint32_t of = 0;

	if (f.what == EPILOGUE_SWIGLU)
		return { group % 2, group / 2 * ABREAST };
	while (group >= f.of[of].groups)
		group -= f.of[of++].groups;
	return { of, group * ABREAST };
}

/* Row r of a group; the last one of the matrix instead of those behind it */
template <class T>
DEVICE const T *
row_of(const struct few &f, struct place p, uint32_t r)
{
	return (const T *)f.of[p.of].w + (size_t)min(p.row + r, f.of[p.of].out - 1) * f.in;
}

/* ---- the chunk of x ---- */

/* Four elements; zeros instead of those behind the first `left` */
template <bool ALIGNED>
DEVICE pack<float, 4>
four_at(const float *p, uint32_t left)
{
	pack<float, 4> four = {};

	if (ALIGNED && left > 0)
		four = *(const pack<float, 4> *)p;
	else
		for (uint32_t e = 0; e < 4 && e < left; e++)
			four.at[e] = p[e];
	return four;
}

/* held[ROWS][chunk] <- elements from .. end of each row of x, times the norm's weights, and
 * zeros up to a whole step. Eight elements of a lane lie as two times four: then neighbours
 * read neighbouring 16 bytes. squares[ROWS][warps] += sums of squares. */
template <class T, unsigned ROWS, bool ALIGNED>
DEVICE void
hold_x(float *held, float *squares, const struct few &f, uint32_t from, uint32_t end)
{
	constexpr uint32_t threads = few_threads<ROWS>;
	const uint32_t fours = (end - from + warp_step<T> - 1) / warp_step<T> * (warp_step<T> / 4);

	for (uint32_t n = 0; n < ROWS; n++) {
		float square = 0;

		for (uint32_t i0 = threadIdx.x; i0 < fours; i0 += AT_ONCE * threads) {
			pack<float, 4> x[AT_ONCE], by[AT_ONCE] = {};

UNROLL			for (uint32_t j = 0; j < AT_ONCE; j++) {
				const uint32_t k = from + 4 * (i0 + j * threads);
				const uint32_t left = k < end && n < f.N ? end - k : 0;

				x[j] = four_at<ALIGNED>(f.x + (size_t)n * f.in + k, left);
				if (f.norm != NULL)
					by[j] = four_at<ALIGNED>(f.norm + k, left);
			}
UNROLL			for (uint32_t j = 0; j < AT_ONCE; j++) {
				const uint32_t i = i0 + j * threads;

				for (uint32_t e = 0; e < 4 && f.norm != NULL; e++) {
					square += x[j].at[e] * x[j].at[e];
					x[j].at[e] *= by[j].at[e];
				}
				if (i < fours)
					*(pack<float, 4> *)(held + (size_t)n * f.chunk +
					    4 * (lane_step<T> == 4 ? i : (i & ~63u) |
					    (i & 1) << 5 | (i & 63) >> 1)) = x[j];
			}
		}
		if (f.norm == NULL)
			continue;
		square = warp_sum(square);
		if (threadIdx.x % 32 == 0) {
			float *to = squares + n * few_warps<ROWS> + threadIdx.x / 32;

			*to = from == 0 ? square : *to + square;
		}
	}
}

/* ---- units ---- */

/* 16 bytes of a row of w from element k on. From element end on x is zero, and w anything
 * that is in the row, or zero. */
template <class T, bool ALIGNED>
DEVICE uint4
weights_at(const T *row, uint32_t k, uint32_t end)
{
	if constexpr (ALIGNED) {
		return load_once(row + min(k, end - lane_step<T>));
	} else {
		pack<T, lane_step<T>> p = {};
		uint4 v;

		for (uint32_t i = 0; i < lane_step<T> && k + i < end; i++)
			p.at[i] = row[k + i];
		memcpy(&v, &p, sizeof v);
		return v;
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

/* sum += products of STEPS steps from element k on, `stride` apart; none is behind the end. */
template <class T, unsigned ROWS, bool ALIGNED, uint32_t STEPS>
DEVICE void
add_steps(float sum[ABREAST * ROWS], const T *const row[ABREAST], const float *held,
    const struct few &f, uint32_t k, uint32_t end, uint32_t stride)
{
	uint4 v[STEPS][ABREAST];

UNROLL	for (uint32_t u = 0; u < STEPS; u++)
UNROLL		for (uint32_t r = 0; r < ABREAST; r++)
			v[u][r] = weights_at<T, ALIGNED>(row[r], k + u * stride +
			    threadIdx.x % 32 * lane_step<T>, end);
UNROLL	for (uint32_t u = 0; u < STEPS; u++)
		add_step<T, ROWS>(sum, v[u], held + u * stride, f.chunk);
}

/* The sums of a unit over elements from .. end: of the lane, not yet of the warp */
template <class T, unsigned ROWS, bool ALIGNED>
DEVICE void
add_unit(float sum[ABREAST * ROWS], const float *held, const struct few &f, struct place p,
    uint32_t part, uint32_t from, uint32_t end)
{
	const uint32_t stride = f.split * warp_step<T>;
	const T *row[ABREAST];
	uint32_t at = part * warp_step<T>;

UNROLL	for (uint32_t r = 0; r < ABREAST; r++)
		row[r] = row_of<T>(f, p, r);
	for (; at + (DEEP - 1) * stride < end - from; at += DEEP * stride)
		add_steps<T, ROWS, ALIGNED, DEEP>(sum, row, held + at, f, from + at, end, stride);
	for (; at < end - from; at += stride)
		add_steps<T, ROWS, ALIGNED, 1>(sum, row, held + at, f, from + at, end, stride);
}

/* What add_unit() loads first of the warp's first unit, 13 MB in all, sets out before x is here,
 * and so do the norm's weights: a line for each thread. */
template <class T>
DEVICE void
send_for_weights(const struct few &f, uint32_t first, uint32_t groups)
{
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t k = (warp % f.split * 32 + lane) * lane_step<T>;

	if (f.norm != NULL && threadIdx.x * 32 < f.in)
		prefetch_l2(f.norm + threadIdx.x * 32);
	if (warp >= groups * f.split)
		return;
	const struct place p = place_of(f, first + warp / f.split);
	for (uint32_t u = 0; u < DEEP; u++)
		for (uint32_t r = 0; r < ABREAST; r++)
			if (k + u * f.split * warp_step<T> < f.in)
				prefetch_l2(row_of<T>(f, p, r) + k + u * f.split * warp_step<T>);
}

/* The sum over the warp of v[lane / (32 / C)]. At each step a lane gives one half of what it
 * has and adds what it is given to the other: 31 exchanges for 32 sums, which one by one take
 * 160. */
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

/* ---- the results ---- */

/* What the norm multiplies row n by */
template <unsigned ROWS>
DEVICE float
norm_scale(const struct few &f, const float *squares, uint32_t n)
{
	float sum = 0;

	if (f.norm == NULL)
		return 1;
	for (uint32_t warp = 0; warp < few_warps<ROWS>; warp++)
		sum += squares[n * few_warps<ROWS> + warp];
	return 1 / sqrtf(sum / (float)f.in + f.eps);
}

/* Row i of the block's groups, row n of x, from the sums [group][split][ABREAST][ROWS] */
template <unsigned ROWS>
DEVICE float
row_sum(const struct few &f, const float *sums, uint32_t i, uint32_t n)
{
	const float *p = sums + n + (i / ABREAST * f.split * ABREAST + i % ABREAST) * ROWS;
	float sum = 0;

	for (uint32_t part = 0; part < f.split; part++)
		sum += p[part * ABREAST * ROWS];
	return sum;
}

/* y of the rows that this block has. Of gated products the rows of an up group stand behind
 * those of its gate group. */
template <unsigned ROWS>
DEVICE void
put_together(const struct few &f, const float *sums, const float *squares, uint32_t first,
    uint32_t groups)
{
	const uint32_t step = f.what == EPILOGUE_SWIGLU ? 2 : 1;

	for (uint32_t n = 0; n < f.N; n++) {
		const float scale = norm_scale<ROWS>(f, squares, n);

		for (uint32_t j = threadIdx.x; j < groups / step * ABREAST;
		    j += few_threads<ROWS>) {
			const uint32_t i = j / ABREAST * step * ABREAST + j % ABREAST;
			const struct place p = place_of(f, first + i / ABREAST);
			const uint32_t row = p.row + i % ABREAST, out = f.of[p.of].out;
			float sum, *to = f.of[p.of].y + (size_t)n * out + row;

			if (row >= out)
				continue;
			sum = row_sum<ROWS>(f, sums, i, n) * scale;
			if (f.what == EPILOGUE_SWIGLU)
				sum = sum / (1 + expf(-sum)) *
				    (row_sum<ROWS>(f, sums, i + ABREAST, n) * scale);
			if (f.of[p.of].bias != NULL)
				sum += f.of[p.of].bias[row];
			*to = sum + (f.what == EPILOGUE_ADD ? *to : 0);
		}
	}
}

template <class T, unsigned ROWS, bool ALIGNED>
static __global__ void __launch_bounds__(few_threads<ROWS>, few_blocks<ROWS>)
few_rows(const __grid_constant__ struct few f)
{
	DYN_SHARED(float, held);                       /* [ROWS][chunk], then sums, squares */
	float *const sums = held + ROWS * f.chunk;
	float *const squares = sums + f.each * f.split * ABREAST * ROWS;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t first = blockIdx.x * f.each, groups = min(f.each, f.groups - first);

	pdl_trigger();
	send_for_weights<T>(f, first, groups);
	pdl_wait();
	for (uint32_t from = 0; from < f.in; from += f.chunk) {
		const uint32_t end = min(f.in, from + f.chunk);

		__syncthreads();
		hold_x<T, ROWS, ALIGNED>(held, squares, f, from, end);
		__syncthreads();
		for (uint32_t unit = warp; unit < groups * f.split; unit += few_warps<ROWS>) {
			float sum[ABREAST * ROWS] = {};

			add_unit<T, ROWS, ALIGNED>(sum, held, f,
			    place_of(f, first + unit / f.split), unit % f.split, from, end);
			const float all = warp_sums<ABREAST * ROWS>(sum);
			float *to = sums + unit * ABREAST * ROWS + lane / (32 / (ABREAST * ROWS));

			if (lane % (32 / (ABREAST * ROWS)) == 0)
				*to = from == 0 ? all : *to + all;
		}
	}
	__syncthreads();
	put_together<ROWS>(f, sums, squares, first, groups);
}

/* ---- on the host ---- */

/* Cuts so that blocks have the same work, and within a block warps, as nearly as can be. */
template <unsigned ROWS>
static void
cut_up(const struct dev *d, struct few *f, uint32_t size)
{
	constexpr unsigned warps = few_warps<ROWS>;
	const unsigned resident = d->sms * few_blocks<ROWS>;
	const size_t room = few_blocks<ROWS> == 1 ? d->most_shared : (d->most_shared - 1024) / 2;
	const uint32_t step = 32 * 16 / size, of_row = ROWS * sizeof(float);
	const uint32_t most_chunk =
	    (uint32_t)((room - MOST_SUMS - warps * of_row) / of_row / step * step);
	const uint32_t most_units = MOST_SUMS / (ABREAST * of_row);
	const uint32_t chunks = parts_of(f->in, most_chunk);
	const uint32_t waves = parts_of(parts_of(f->groups, resident), most_units);
	uint32_t turns, least;

	f->each = parts_of(f->groups, resident * waves);
	if (f->what == EPILOGUE_SWIGLU)
		f->each += f->each % 2;
	f->split = 1;
	f->chunk = parts_of(parts_of(f->in, chunks), step) * step;
	least = parts_of(f->each, warps);
	for (uint32_t s = 2; s <= warps && s <= f->chunk / step && f->each * s <= most_units;
	    s *= 2) {
		turns = parts_of(f->each * s, warps);
		if (turns * f->split < least * s) {
			f->split = s;
			least = turns;
		}
	}
}

template <unsigned ROWS>
static void
launch_few(struct dev *d, struct few *f, enum kv_dtype dtype, bool aligned)
{
	cut_up<ROWS>(d, f, (uint32_t)kv_dtype_size(dtype));

	const unsigned blocks = parts_of(f->groups, f->each);
	const size_t shared = ROWS * sizeof(float) *
	    ((size_t)f->chunk + f->each * f->split * ABREAST + few_warps<ROWS>);

	with_type(dtype, [&](auto t) {
		using T = decltype(t);

		if (aligned)
			LAUNCH_PDL(d, (few_rows<T, ROWS, true>), blocks, few_threads<ROWS>,
			    shared, *f);
		else
			LAUNCH_PDL(d, (few_rows<T, ROWS, false>), blocks, few_threads<ROWS>,
			    shared, *f);
	});
}

/* n products, of weights of one type */
static void
few_of_a_type(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, uint32_t N, enum epilogue what)
{
	const enum kv_dtype dtype = p->w->dtype;
	uintptr_t all = (uintptr_t)x | p->w->in * kv_dtype_size(dtype);
	struct few f = { .of = {}, .x = x, .norm = NULL, .eps = 0, .what = what, .N = N,
		.in = p->w->in, .groups = 0, .each = 0, .split = 0, .chunk = 0 };

	if (norm != NULL) {
		f.norm = norm->w;
		f.eps = norm->eps;
		all |= (uintptr_t)norm->w;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!gpu_product_fits(d, p[i].w, N))
			return;
		f.of[i] = { p[i].w->data, p[i].bias, p[i].y, p[i].w->out,
			parts_of(p[i].w->out, ABREAST) };
		f.groups += f.of[i].groups;
		all |= (uintptr_t)p[i].w->data;
	}
	if (N == 0 || f.in == 0 || f.groups == 0)
		return;
	if (N == 1)
		launch_few<1>(d, &f, dtype, all % 16 == 0);
	else if (N == 2)
		launch_few<2>(d, &f, dtype, all % 16 == 0);
	else if (N <= 4)
		launch_few<4>(d, &f, dtype, all % 16 == 0);
	else
		launch_few<8>(d, &f, dtype, all % 16 == 0);
}

void
gpu_gemv(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, uint32_t N, enum epilogue what)
{
	uint32_t i, many;

	for (i = 0; i < n; i += many) {
		for (many = 1; i + many < n && many < MOST_PRODUCTS &&
		    p[i + many].w->dtype == p[i].w->dtype; many++)
			;
		few_of_a_type(d, p + i, many, x, norm, N, what);
	}
}

/* gpu_gemv.cu - GEMV and skinny GEMM (up to 8 rows of x) with split-K, fused RMSNorm and
 * epilogues: the matrix products of decoding
 *
 * The limit is memory bandwidth: the weights are read once. By Little's law a GPU with 132 SMs,
 * 4.3 TB/s and a latency of 0.8 us needs 3.4 MB of loads in flight, or 26 KB for each SM. Here
 * the 768 threads of an SM issue 8 loads of 16 bytes each before they use the first: 96 KB,
 * enough even while most warps compute. More rows of x need registers for their sums: 80 KB for
 * two rows, 64 KB for up to four, 48 KB for up to eight. The compiler keeps the eight loads
 * together only where a thread has registers to spare (80, but not 64) and no load is
 * conditional; otherwise it moves products between them. cuobjdump -sass shows it.
 *
 * One launch computes all products of the same x, whatever their sizes. ROWS_PER_GROUP rows of w
 * are a group; the groups of all matrices are numbered through, and each block has the same
 * number of them. A unit of work is a group and every split-th step of it (split-K), where a
 * step is what a warp loads together: 16 bytes of each row by each lane. A block stages x in
 * shared memory, chunk by chunk where a whole row does not fit. Its warps take its units
 * round-robin and store partial sums; at the end the partial sums of a group are added in order.
 * So there are two barriers in a chunk and no others, and split can be chosen such that all
 * warps have the same work, even where there are few groups.
 *
 * RMSNorm before the product is free: x passes through each block anyway, and is multiplied by
 * the norm's weights there while its squares are summed; the division by the root mean square is
 * the same for all sums and happens in the epilogue. For SwiGLU, groups of gate and up
 * alternate, so that one block has the sums of both.
 *
 * x stays f32: 16 bits would not be faster. Each element of x that is read from shared memory
 * serves ROWS_PER_GROUP rows, and shared memory has only about six times the bandwidth of
 * global memory. */
#include "gpu/gpu_internal.h"

enum { ROWS_PER_GROUP = 4 };
enum { SUM_BYTES = 16 << 10 };         /* of shared memory for partial sums */
enum { STAGES = 2 };                   /* steps whose loads are issued before the first is used */
enum { LOADS_IN_FLIGHT = 4 };          /* loads of x that a thread issues before its first store */
enum { MOST_PRODUCTS = 4 };            /* of one launch */

/* For a number of rows of x: threads of a block, and blocks of an SM. More sums need more
 * registers in each thread. */
template <unsigned ROWS> constexpr unsigned gemv_threads = ROWS == 2 ? 320 : ROWS == 4 ? 512 : 384;
template <unsigned ROWS> constexpr unsigned gemv_warps = gemv_threads<ROWS> / 32;
template <unsigned ROWS> constexpr unsigned gemv_blocks = ROWS > 2 ? 1 : 2;

/* Elements of a row that a lane, and that a warp, loads in one step */
template <class T> constexpr uint32_t lane_step = 16 / sizeof(T);
template <class T> constexpr uint32_t warp_step = 32 * lane_step<T>;

/* One launch */
struct gemv {
	struct {
		const void *w;
		const float *bias;
		float *y;
		uint32_t out, groups;
	} of[MOST_PRODUCTS];           /* EPILOGUE_SWIGLU: gate, and up, which has no y */
	const float *x;                /* [N][in] */
	const float *norm;             /* [in]; NULL: none */
	float eps;
	enum epilogue what;
	uint32_t N, in;
	uint32_t groups;               /* of all matrices together */
	uint32_t each;                 /* groups of a block */
	uint32_t split;                /* split-K: units of a group */
	uint32_t chunk;                /* elements of a row of x in shared memory, whole steps */
};

/* A group: its matrix and its first row */
struct group {
	uint32_t of, row;
};

DEVICE struct group
find_group(const struct gemv &f, uint32_t group)
{
	uint32_t of = 0;

	if (f.what == EPILOGUE_SWIGLU)
		return { group % 2, group / 2 * ROWS_PER_GROUP };
	while (group >= f.of[of].groups)
		group -= f.of[of++].groups;
	return { of, group * ROWS_PER_GROUP };
}

/* Row r of a group; behind the last row of the matrix, the last row */
template <class T>
DEVICE const T *
row_of(const struct gemv &f, struct group p, uint32_t r)
{
	return (const T *)f.of[p.of].w + (size_t)min(p.row + r, f.of[p.of].out - 1) * f.in;
}

/* ---- a chunk of x in shared memory ---- */

/* Four elements; zeros behind the first `left` */
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

/* held[ROWS][chunk] <- elements from .. end-1 of each row of x, times the norm's weights;
 * zeros up to a whole step. The eight elements of a lane are stored as two groups of four, so
 * that neighbouring lanes read neighbouring 16 bytes. squares[ROWS][warps] += sums of
 * squares. */
template <class T, unsigned ROWS, bool ALIGNED>
DEVICE void
stage_x(float *held, float *squares, const struct gemv &f, uint32_t from, uint32_t end)
{
	constexpr uint32_t threads = gemv_threads<ROWS>;
	const uint32_t fours = (end - from + warp_step<T> - 1) / warp_step<T> * (warp_step<T> / 4);

	for (uint32_t n = 0; n < ROWS; n++) {
		float square = 0;

		for (uint32_t i0 = threadIdx.x; i0 < fours; i0 += LOADS_IN_FLIGHT * threads) {
			pack<float, 4> x[LOADS_IN_FLIGHT], by[LOADS_IN_FLIGHT] = {};

UNROLL			for (uint32_t j = 0; j < LOADS_IN_FLIGHT; j++) {
				const uint32_t k = from + 4 * (i0 + j * threads);
				const uint32_t left = k < end && n < f.N ? end - k : 0;

				x[j] = four_at<ALIGNED>(f.x + (size_t)n * f.in + k, left);
				if (f.norm != NULL)
					by[j] = four_at<ALIGNED>(f.norm + k, left);
			}
UNROLL			for (uint32_t j = 0; j < LOADS_IN_FLIGHT; j++) {
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
			float *to = squares + n * gemv_warps<ROWS> + threadIdx.x / 32;

			*to = from == 0 ? square : *to + square;
		}
	}
}

/* ---- units ---- */

/* 16 bytes of a row of w from element k on. Behind element `end` x is zero, so w may be any
 * element of the row there, or zero. */
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

/* sum += the products of one step: ROWS_PER_GROUP rows of w with the rows of x at `held` */
template <class T, unsigned ROWS>
DEVICE void
add_step(float sum[ROWS_PER_GROUP * ROWS], const uint4 v[ROWS_PER_GROUP], const float *held,
    uint32_t chunk)
{
UNROLL	for (uint32_t half = 0; half < lane_step<T> / 4; half++) {
		pack<float, 4> x[ROWS];

UNROLL		for (uint32_t n = 0; n < ROWS; n++)
			x[n] = ((const pack<float, 4> *)(held + n * chunk))[32 * half +
			    threadIdx.x % 32];
UNROLL		for (uint32_t e = 0; e < 4; e++)
UNROLL			for (uint32_t r = 0; r < ROWS_PER_GROUP; r++) {
				const float weight = element<T>(v[r], 4 * half + e);

UNROLL				for (uint32_t n = 0; n < ROWS; n++)
					sum[r * ROWS + n] += weight * x[n].at[e];
			}
	}
}

/* sum += the products of STEPS steps from element k on, `stride` apart, all before `end`.
 * Issues all loads first. */
template <class T, unsigned ROWS, bool ALIGNED, uint32_t STEPS>
DEVICE void
add_steps(float sum[ROWS_PER_GROUP * ROWS], const T *const row[ROWS_PER_GROUP], const float *held,
    const struct gemv &f, uint32_t k, uint32_t end, uint32_t stride)
{
	uint4 v[STEPS][ROWS_PER_GROUP];

UNROLL	for (uint32_t u = 0; u < STEPS; u++)
UNROLL		for (uint32_t r = 0; r < ROWS_PER_GROUP; r++)
			v[u][r] = weights_at<T, ALIGNED>(row[r], k + u * stride +
			    threadIdx.x % 32 * lane_step<T>, end);
UNROLL	for (uint32_t u = 0; u < STEPS; u++)
		add_step<T, ROWS>(sum, v[u], held + u * stride, f.chunk);
}

/* The sums of a unit over elements from .. end-1, of this lane only */
template <class T, unsigned ROWS, bool ALIGNED>
DEVICE void
add_unit(float sum[ROWS_PER_GROUP * ROWS], const float *held, const struct gemv &f, struct group p,
    uint32_t part, uint32_t from, uint32_t end)
{
	const uint32_t stride = f.split * warp_step<T>;
	const T *row[ROWS_PER_GROUP];
	uint32_t at = part * warp_step<T>;

UNROLL	for (uint32_t r = 0; r < ROWS_PER_GROUP; r++)
		row[r] = row_of<T>(f, p, r);
	for (; at + (STAGES - 1) * stride < end - from; at += STAGES * stride)
		add_steps<T, ROWS, ALIGNED, STAGES>(sum, row, held + at, f, from + at, end, stride);
	for (; at < end - from; at += stride)
		add_steps<T, ROWS, ALIGNED, 1>(sum, row, held + at, f, from + at, end, stride);
}

/* Prefetches into L2, before pdl_wait(), what add_unit() loads first of the warp's first
 * unit, 13 MB in all, and the norm's weights, a cache line for each thread. */
template <class T>
DEVICE void
prefetch_weights(const struct gemv &f, uint32_t first, uint32_t groups)
{
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t k = (warp % f.split * 32 + lane) * lane_step<T>;

	if (f.norm != NULL && threadIdx.x * 32 < f.in)
		prefetch_l2(f.norm + threadIdx.x * 32);
	if (warp >= groups * f.split)
		return;
	const struct group p = find_group(f, first + warp / f.split);
	for (uint32_t u = 0; u < STAGES; u++)
		for (uint32_t r = 0; r < ROWS_PER_GROUP; r++)
			if (k + u * f.split * warp_step<T> < f.in)
				prefetch_l2(row_of<T>(f, p, r) + k + u * f.split * warp_step<T>);
}

/* Transposing reduction: returns the sum over the warp of v[lane / (32 / C)]. In each step a
 * lane gives away half of its values and adds what it receives to the other half: 31 shuffles
 * for 32 sums, instead of 160 for one reduction after the other. */
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

/* ---- epilogue ---- */

/* RMSNorm's factor for row n */
template <unsigned ROWS>
DEVICE float
norm_scale(const struct gemv &f, const float *squares, uint32_t n)
{
	float sum = 0;

	if (f.norm == NULL)
		return 1;
	for (uint32_t warp = 0; warp < gemv_warps<ROWS>; warp++)
		sum += squares[n * gemv_warps<ROWS> + warp];
	return 1 / sqrtf(sum / (float)f.in + f.eps);
}

/* The product of row i of the block's groups with row n of x: adds the partial sums of split-K,
 * [group][split][ROWS_PER_GROUP][ROWS], in order */
template <unsigned ROWS>
DEVICE float
row_sum(const struct gemv &f, const float *sums, uint32_t i, uint32_t n)
{
	const float *p = sums + n +
	    (i / ROWS_PER_GROUP * f.split * ROWS_PER_GROUP + i % ROWS_PER_GROUP) * ROWS;
	float sum = 0;

	for (uint32_t part = 0; part < f.split; part++)
		sum += p[part * ROWS_PER_GROUP * ROWS];
	return sum;
}

/* Writes y of the block's rows. With EPILOGUE_SWIGLU the rows of an up group follow those of
 * its gate group. */
template <unsigned ROWS>
DEVICE void
write_y(const struct gemv &f, const float *sums, const float *squares, uint32_t first,
    uint32_t groups)
{
	const uint32_t step = f.what == EPILOGUE_SWIGLU ? 2 : 1;

	for (uint32_t n = 0; n < f.N; n++) {
		const float scale = norm_scale<ROWS>(f, squares, n);

		for (uint32_t j = threadIdx.x; j < groups / step * ROWS_PER_GROUP;
		    j += gemv_threads<ROWS>) {
			const uint32_t i =
			    j / ROWS_PER_GROUP * step * ROWS_PER_GROUP + j % ROWS_PER_GROUP;
			const struct group p = find_group(f, first + i / ROWS_PER_GROUP);
			const uint32_t row = p.row + i % ROWS_PER_GROUP, out = f.of[p.of].out;
			float sum, *to = f.of[p.of].y + (size_t)n * out + row;

			if (row >= out)
				continue;
			sum = row_sum<ROWS>(f, sums, i, n) * scale;
			if (f.what == EPILOGUE_SWIGLU)
				sum = sum / (1 + expf(-sum)) *
				    (row_sum<ROWS>(f, sums, i + ROWS_PER_GROUP, n) * scale);
			if (f.of[p.of].bias != NULL)
				sum += f.of[p.of].bias[row];
			*to = sum + (f.what == EPILOGUE_ADD ? *to : 0);
		}
	}
}

template <class T, unsigned ROWS, bool ALIGNED>
static __global__ void __launch_bounds__(gemv_threads<ROWS>, gemv_blocks<ROWS>)
gemv_kernel(const __grid_constant__ struct gemv f)
{
	DYN_SHARED(float, held);                       /* [ROWS][chunk]; partial sums; squares */
	float *const sums = held + ROWS * f.chunk;
	float *const squares = sums + f.each * f.split * ROWS_PER_GROUP * ROWS;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t first = blockIdx.x * f.each, groups = min(f.each, f.groups - first);

	pdl_trigger();
	prefetch_weights<T>(f, first, groups);
	pdl_wait();
	for (uint32_t from = 0; from < f.in; from += f.chunk) {
		const uint32_t end = min(f.in, from + f.chunk);

		__syncthreads();
		stage_x<T, ROWS, ALIGNED>(held, squares, f, from, end);
		__syncthreads();
		for (uint32_t unit = warp; unit < groups * f.split; unit += gemv_warps<ROWS>) {
			float sum[ROWS_PER_GROUP * ROWS] = {};

			add_unit<T, ROWS, ALIGNED>(sum, held, f,
			    find_group(f, first + unit / f.split), unit % f.split, from, end);
			const float all = warp_sums<ROWS_PER_GROUP * ROWS>(sum);
			float *to = sums + unit * ROWS_PER_GROUP * ROWS +
			    lane / (32 / (ROWS_PER_GROUP * ROWS));

			if (lane % (32 / (ROWS_PER_GROUP * ROWS)) == 0)
				*to = from == 0 ? all : *to + all;
		}
	}
	__syncthreads();
	write_y<ROWS>(f, sums, squares, first, groups);
}

/* ---- on the host ---- */

/* Chooses groups of a block, split and chunk so that blocks, and warps within a block, have
 * nearly the same work. */
template <unsigned ROWS>
static void
plan_gemv(const struct dev *d, struct gemv *f, uint32_t size)
{
	constexpr unsigned warps = gemv_warps<ROWS>;
	const unsigned resident = d->sms * gemv_blocks<ROWS>;
	const size_t bytes = gemv_blocks<ROWS> == 1 ? d->most_shared : (d->most_shared - 1024) / 2;
	const uint32_t step = 32 * 16 / size, of_row = ROWS * sizeof(float);
	const uint32_t most_chunk =
	    (uint32_t)((bytes - SUM_BYTES - warps * of_row) / of_row / step * step);
	const uint32_t most_units = SUM_BYTES / (ROWS_PER_GROUP * of_row);
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
launch_gemv(struct dev *d, struct gemv *f, enum kv_dtype dtype, bool aligned)
{
	plan_gemv<ROWS>(d, f, (uint32_t)kv_dtype_size(dtype));

	const unsigned blocks = parts_of(f->groups, f->each);
	const size_t shared = ROWS * sizeof(float) *
	    ((size_t)f->chunk + f->each * f->split * ROWS_PER_GROUP + gemv_warps<ROWS>);

	with_type(dtype, [&](auto t) {
		using T = decltype(t);

		if (aligned)
			LAUNCH_PDL(d, (gemv_kernel<T, ROWS, true>), blocks, gemv_threads<ROWS>,
			    shared, *f);
		else
			LAUNCH_PDL(d, (gemv_kernel<T, ROWS, false>), blocks, gemv_threads<ROWS>,
			    shared, *f);
	});
}

/* n products of weights of one dtype */
static void
gemv_of_dtype(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, uint32_t N, enum epilogue what)
{
	const enum kv_dtype dtype = mat_elements(p->w);
	uintptr_t all = (uintptr_t)x | p->w->in * kv_dtype_size(dtype);
	struct gemv f = { .of = {}, .x = x, .norm = NULL, .eps = 0, .what = what, .N = N,
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
			parts_of(p[i].w->out, ROWS_PER_GROUP) };
		f.groups += f.of[i].groups;
		all |= (uintptr_t)p[i].w->data;
	}
	if (N == 0 || f.in == 0 || f.groups == 0)
		return;
	if (N == 1)
		launch_gemv<1>(d, &f, dtype, all % 16 == 0);
	else if (N == 2)
		launch_gemv<2>(d, &f, dtype, all % 16 == 0);
	else if (N <= 4)
		launch_gemv<4>(d, &f, dtype, all % 16 == 0);
	else
		launch_gemv<8>(d, &f, dtype, all % 16 == 0);
}

void
gpu_gemv(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, uint32_t N, enum epilogue what)
{
	uint32_t i, many;

	for (i = 0; i < n; i += many) {
		for (many = 1; i + many < n && many < MOST_PRODUCTS &&
		    p[i + many].w->type == p[i].w->type; many++)
			;
		gemv_of_dtype(d, p + i, many, x, norm, N, what);
	}
}

/* gpu_group_reduce.cu - retrieval: softmax of the scores of each query head, reduced over the
 * heads of a KV head (group_reduce), and scores_by_label
 *
 * group_reduce: two launches for all heads. lse_parts() reads the scores once and writes at
 * most PARTS partial sums of exponentials for each query head; reduce_columns() combines
 * these, each block for itself, and reads the scores a second time, from L2. */
#include <float.h>

#include "gpu/gpu_internal.h"

enum {
	THREADS = 256,
	EACH = 8,                    /* loads of a thread in flight */
	PARTS = 32,                  /* most parts of a query head's scores: one for each lane */
	ROWS = 4,                    /* loads of a thread of scores_by_label() in flight */
	COLUMNS = 64,                /* entries of all KV heads that a block reduces */
	MOST_QUERY_HEADS = 4096,     /* whose log-sum-exp fit into a block's shared memory */
};

int
gpu_lists_of(struct dev *d, struct lists *l, struct counts n, const uint32_t *k, uint32_t G,
    const char *op)
{
	if (n.most == 0)
		gpu_fixes_lengths(d);
	if (G > MAX_HEADS)
		gpu_fail(d, "%s: %u KV heads, of at most %d", op, G, MAX_HEADS);
	if (!gpu_ok(d))
		return 0;
	*l = {};
	for (uint32_t g = 0; g < G; g++) {
		l->n[g] = n.n[g];
		l->k[g] = k != NULL ? k[g] : 0;
		l->longest = n.n[g] > l->longest ? n.n[g] : l->longest;
	}
	l->most = max(l->longest, n.most);
	l->appended = n.most > 0 && d->capturing ? d->appended : NULL;
	return 1;
}

/* ---- group_reduce ----
 *
 * As on the CPU: sums are of e^LIFT times the softmax, so that tiny weights do not underflow
 * but keep their order; maxima are of its logarithm. A NaN counts as -inf, infinity as the
 * greatest number, so that differences are numbers. */

#define LIFT 64.0f
#define LOG2E 1.44269504f

DEVICE float
number(float x)
{
	return fminf(fmaxf(x, -INFINITY), FLT_MAX);
}

/* `all`, reduced with a head whose softmax has the logarithm x */
DEVICE float
reduce_head(float all, float x, enum reduce how)
{
	return how == REDUCE_MAX ? fmaxf(all, x) : all + exp2_fast(fminf(x + LIFT, LIFT) * LOG2E);
}

/* A sum of exponentials, sum * exp(most). Without scores: 0, and any finite `most` */
struct lse {
	float most, sum;
};

DEVICE struct lse
add_lse(struct lse a, struct lse b)
{
	const float most = fmaxf(a.most, b.most);

	return { most, a.sum * exp2_fast((a.most - most) * LOG2E) +
		b.sum * exp2_fast((b.most - most) * LOG2E) };
}

/* The sum over the warp, in lane 0; in other lanes it may differ in the last bit. */
DEVICE struct lse
warp_lse(struct lse a)
{
	for (int bit = 16; bit > 0; bit /= 2)
		a = add_lse(a, { __shfl_xor_sync(ALL_LANES, a.most, bit),
			__shfl_xor_sync(ALL_LANES, a.sum, bit) });
	return a;
}

/* The scores of a part: multiples of what a block reads in a round, so many that there are at most
 * PARTS of them, however long the longest list has become. */
static inline __host__ __device__ size_t
part_rows(size_t longest)
{
	constexpr size_t ROUND = EACH * THREADS;

	return (longest + ROUND * PARTS - 1) / (ROUND * PARTS) * ROUND;
}

/* First launch, online log-sum-exp: part blockIdx.x of query head blockIdx.y; those behind
 * the end are empty. A thread takes EACH scores at a time, with one new maximum and one
 * rescaling for all of them. */
static __global__ void __launch_bounds__(THREADS)
lse_parts(struct lse *parts, const float *score, size_t stride, const struct lists l, uint32_t R)
{
	SHARED(struct lse[THREADS / 32], of_warp);
	const uint32_t h = blockIdx.y, more = grown(l), n = l.n[h / R] + more;
	const size_t rows = part_rows((size_t)l.longest + more);
	const size_t from = blockIdx.x * rows, to = from + rows < n ? from + rows : n;
	struct lse sum = { -FLT_MAX, 0 };
	float x[EACH];

	pdl_trigger();
	pdl_wait();
	for (size_t i = from + threadIdx.x; i < to; i += EACH * THREADS) {
		struct lse more = { -FLT_MAX, 0 };

UNROLL		for (int e = 0; e < EACH; e++) {
			x[e] = i + e * THREADS < to ? score[h * stride + i + e * THREADS] : NAN;
			more.most = fmaxf(more.most, number(x[e]));
		}
UNROLL		for (int e = 0; e < EACH; e++)
			more.sum += exp2_fast((number(x[e]) - more.most) * LOG2E);
		sum = add_lse(sum, more);
	}
	sum = warp_lse(sum);
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = sum;
	__syncthreads();
	if (threadIdx.x > 0)
		return;
	for (int w = 1; w < THREADS / 32; w++)
		sum = add_lse(sum, of_warp[w]);
	parts[h * PARTS + blockIdx.x] = sum;
}

/* Second launch: reduces COLUMNS entries of all KV heads. Reads all of them before it writes
 * any, since joint may be score. */
static __global__ void __launch_bounds__(THREADS)
reduce_columns(float *joint, const float *score, size_t stride, const struct lse *parts,
    uint32_t n_parts, const float *sinks, const struct lists l, uint32_t G, uint32_t R,
    enum reduce how)
{
	DYN_SHARED(float, lse);                      /* [H], all [G][COLUMNS] */
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, H = G * R;
	const uint32_t more = grown(l);
	const size_t from = (size_t)blockIdx.x * COLUMNS;
	float *all = lse + H;

	pdl_trigger();
	pdl_wait();
	for (uint32_t h = warp; h < H; h += THREADS / 32) {
		struct lse sum = { -FLT_MAX, 0 };

		if (lane < n_parts)
			sum = parts[h * PARTS + lane];
		sum = warp_lse(sum);
		if (sinks != NULL)
			sum = add_lse(sum, { sinks[h], 1 });
		if (lane == 0)
			lse[h] = sum.sum > 0 ? sum.most + logf(sum.sum) : 0;
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < G * COLUMNS; i += THREADS) {
		const uint32_t g = i / COLUMNS;
		const size_t column = from + i % COLUMNS;
		const float *x = score + g * R * stride + column;
		float sum = how == REDUCE_MAX ? -INFINITY : 0;

		if (column >= l.n[g] + more)
			continue;
		for (uint32_t r = 0; r < R; r++)
			sum = reduce_head(sum, number(x[r * stride]) - lse[g * R + r], how);
		all[i] = sum;
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < G * COLUMNS; i += THREADS)
		if (from + i % COLUMNS < l.n[i / COLUMNS] + more)
			joint[i / COLUMNS * stride + from + i % COLUMNS] = all[i];
}

/* One block for each query head; each thread sums, then the first adds the sums */
static __global__ void __launch_bounds__(THREADS)
reference_lse(float *lse, const float *score, size_t stride, const float *sinks,
    const struct lists l, uint32_t R)
{
	SHARED(float[THREADS], part);
	const uint32_t h = blockIdx.x, n = l.n[h / R] + grown(l);
	float most = -FLT_MAX, sum = 0;

	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		most = fmaxf(most, number(score[h * stride + i]));
	part[threadIdx.x] = most;
	__syncthreads();
	for (int t = 0; t < THREADS; t++)
		most = fmaxf(most, part[t]);
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		sum += expf(number(score[h * stride + i]) - most);
	__syncthreads();
	part[threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.x > 0)
		return;
	for (int t = 1; t < THREADS; t++)
		sum += part[t];
	if (sinks != NULL) {
		const struct lse all = add_lse({ most, sum }, { sinks[h], 1 });

		most = all.most;
		sum = all.sum;
	}
	lse[h] = sum > 0 ? most + logf(sum) : 0;
}

/* One thread for entry i of all KV heads, in order: joint[g] may overwrite scores of KV head
 * g / R, which is done by then. */
static __global__ void __launch_bounds__(THREADS)
reference_reduce(float *joint, const float *score, size_t stride, const float *lse,
    const struct lists l, uint32_t G, uint32_t R, enum reduce how)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	const uint32_t more = grown(l);

	for (uint32_t g = 0; g < G; g++) {
		float all = how == REDUCE_MAX ? -INFINITY : 0;

		if (i >= l.n[g] + more)
			continue;
		for (uint32_t h = g * R; h < (g + 1) * R; h++)
			all = reduce_head(all, number(score[h * stride + i]) - lse[h], how);
		joint[g * stride + i] = all;
	}
}

/* R = 1: copies the scores. */
static __global__ void __launch_bounds__(THREADS)
copy_scores(float *joint, const float *score, size_t stride, const struct lists l)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	const uint32_t g = blockIdx.y;

	pdl_trigger();
	pdl_wait();
	if (i < l.n[g] + grown(l))
		joint[g * stride + i] = score[g * stride + i];
}

static void
reduce_by_reference(struct dev *d, float *joint, const float *score, size_t stride,
    const float *sinks, const struct lists *l, uint32_t H, uint32_t G, enum reduce how)
{
	float *lse = (float *)gpu_scratch(d, SCRATCH_PARTS, H * sizeof *lse);

	if (lse == NULL)
		return;
	LAUNCH(d, reference_lse, H, THREADS, 0, lse, score, stride, sinks, *l,
	    H / G);
	LAUNCH(d, reference_reduce, parts_of(l->most, THREADS), THREADS, 0, joint, score, stride,
	    lse, *l, G, H / G, how);
}

static void
reduce_by_parts(struct dev *d, float *joint, const float *score, size_t stride,
    const float *sinks, const struct lists *l, uint32_t H, uint32_t G, enum reduce how)
{
	/* of a list that grows, more where it is just short enough for parts of a round less */
	const unsigned n = l->most == l->longest ? parts_of(l->most, part_rows(l->most)) :
	    min((unsigned)PARTS, parts_of(l->most, EACH * THREADS));
	struct lse *parts = (struct lse *)gpu_scratch(d, SCRATCH_PARTS,
	    (size_t)H * PARTS * sizeof *parts);

	if (parts == NULL)
		return;
	LAUNCH_PDL(d, lse_parts, dim3(n, H), THREADS, 0, parts, score, stride, *l, H / G);
	LAUNCH_PDL(d, reduce_columns, parts_of(l->most, COLUMNS), THREADS,
	    (H + G * COLUMNS) * sizeof(float), joint, score, stride, parts, n, sinks, *l, G,
	    H / G, how);
}

void
gpu_group_reduce(struct dev *d, float *joint, const float *score, size_t stride, struct counts n,
    const float *sinks, uint32_t H, uint32_t G, enum reduce how)
{
	struct lists l;

	if (G == 0 || H % G != 0)
		gpu_fail(d, "join: %u query heads over %u KV heads", H, G);
	if (!gpu_lists_of(d, &l, n, NULL, G, "join") || l.most == 0)
		return;
	if (H == G && joint != score)
		LAUNCH_PDL(d, copy_scores, dim3(parts_of(l.most, THREADS), G), THREADS, 0,
		    joint, score, stride, l);
	else if (H > G && (d->reference || H > MOST_QUERY_HEADS))
		reduce_by_reference(d, joint, score, stride, sinks, &l, H, G, how);
	else if (H > G)
		reduce_by_parts(d, joint, score, stride, sinks, &l, H, G, how);
}

/* ---- scores_by_label ---- */

/* Gather. The address of a score depends on its label, so a thread has ROWS of the dependent
 * loads in flight. */
static __global__ void __launch_bounds__(THREADS)
scores_by_label(float *row, size_t stride, const float *joint, size_t joint_stride,
    const uint32_t *label, size_t label_stride, const struct lists l)
{
	const size_t from = (size_t)blockIdx.x * THREADS * ROWS + threadIdx.x;
	const uint32_t g = blockIdx.y, n = l.n[g];
	uint32_t at[ROWS];

	pdl_trigger();
	pdl_wait();
UNROLL	for (int i = 0; i < ROWS; i++)
		if (from + i * THREADS < n)
			at[i] = label[g * label_stride + from + i * THREADS];
UNROLL	for (int i = 0; i < ROWS; i++)
		if (from + i * THREADS < n)
			row[g * stride + from + i * THREADS] = joint[g * joint_stride + at[i]];
}

void
gpu_scores_by_label(struct dev *d, float *row, size_t stride, const float *joint,
    size_t joint_stride, const uint32_t *label, size_t label_stride, const uint32_t *n, uint32_t G)
{
	struct lists l;

	if (!gpu_lists_of(d, &l, { n, 0 }, NULL, G, "spread"))
		return;
	if (l.longest > 0)
		LAUNCH_PDL(d, scores_by_label, dim3(parts_of(l.longest, THREADS * ROWS), G),
		    THREADS, 0, row, stride, joint, joint_stride, label, label_stride, l);
}

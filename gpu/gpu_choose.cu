/* gpu_choose.cu - which entries of an index a step reads: join, top, spread */
#include <float.h>

#include "gpu/gpu_internal.h"

enum { THREADS = 256 };

/* How many scores each KV head has, and how many of them are wanted */
struct lists {
	uint32_t n[MAX_HEADS], k[MAX_HEADS];
};

/* Fills l, k 0; 0 after a failure, or when there are too many lists. */
static int
lists_of(struct dev *d, struct lists *l, const uint32_t *n, uint32_t G, const char *op)
{
	if (G > MAX_HEADS)
		gpu_fail(d, "%s: %u KV heads, of at most %d", op, G, MAX_HEADS);
	if (!gpu_ok(d))
		return 0;
	*l = {};
	memcpy(l->n, n, G * sizeof *n);
	return 1;
}

static uint32_t
longest_list(const uint32_t *n, uint32_t G)
{
	uint32_t longest = 0;

	for (uint32_t g = 0; g < G; g++)
		longest = n[g] > longest ? n[g] : longest;
	return longest;
}

/* ---- join ----
 *
 * As on the CPU: sums are those of e^LIFT times the softmax, so that what would underflow keeps
 * its order; maxima are those of its logarithm. A NaN counts as -inf, infinity as the greatest
 * number, so that differences are numbers. */

#define LIFT 64.0f

DEVICE float
number(float x)
{
	return fminf(fmaxf(x, -INFINITY), FLT_MAX);
}

/* What a head's score adds to what those before it gave */
DEVICE float
joined(float all, float score, float lse, enum join how)
{
	const float x = number(score) - lse;

	return how == JOIN_MAX ? fmaxf(all, x) : all + expf(fminf(x + LIFT, LIFT));
}

/* A block for each query head; sums by threads, then by the first of them */
static __global__ void __launch_bounds__(THREADS)
reference_lse(float *lse, const float *score, size_t stride, const struct lists l, uint32_t R)
{
	SHARED(float[THREADS], part);
	const uint32_t h = blockIdx.x, n = l.n[h / R];
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
	lse[h] = sum > 0 ? most + logf(sum) : 0;
}

/* A thread for entry i of all KV heads, in their order: joint[g] may lie on scores of KV head
 * g / R, which is done by then. */
static __global__ void __launch_bounds__(THREADS)
reference_join(float *joint, const float *score, size_t stride, const float *lse,
    const struct lists l, uint32_t G, uint32_t R, enum join how)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

	for (uint32_t g = 0; g < G; g++) {
		float all = how == JOIN_MAX ? -INFINITY : 0;

		if (i >= l.n[g])
			continue;
		for (uint32_t h = g * R; h < (g + 1) * R; h++)
			all = joined(all, score[h * stride + i], lse[h], how);
		joint[g * stride + i] = all;
	}
}

/* R 1: the scores themselves */
static __global__ void __launch_bounds__(THREADS)
copy_scores(float *joint, const float *score, size_t stride, const struct lists l)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	const uint32_t g = blockIdx.y;

	if (i < l.n[g])
		joint[g * stride + i] = score[g * stride + i];
}

void
gpu_join(struct dev *d, float *joint, const float *score, size_t stride, const uint32_t *n,
    uint32_t H, uint32_t G, enum join how)
{
	struct lists l;
	float *lse;

	if (G == 0 || H % G != 0)
		gpu_fail(d, "join: %u query heads over %u KV heads", H, G);
	if (!lists_of(d, &l, n, G, "join"))
		return;
	const unsigned parts = parts_of(longest_list(n, G), THREADS);
	if (parts == 0 || (H == G && joint == score))
		return;
	if (H == G) {
		LAUNCH(d, copy_scores, dim3(parts, G), THREADS, 0, joint, score, stride, l);
		return;
	}
	if ((lse = (float *)gpu_scratch(d, SCRATCH_PARTS, H * sizeof *lse)) == NULL)
		return;
	LAUNCH(d, reference_lse, H, THREADS, 0, lse, score, stride, l, H / G);
	LAUNCH(d, reference_join, parts, THREADS, 0, joint, score, stride, lse, l, G, H / G, how);
}

/* ---- top ---- */

/* An integer of the same order: +0 and -0 are the same, a NaN is 0, less than all numbers. */
DEVICE uint32_t
ordered(float x)
{
	const uint32_t u = __float_as_uint(x) == 0x80000000 ? 0 : __float_as_uint(x);

	if ((u & 0x7fffffff) > 0x7f800000)
		return 0;
	return u >> 31 ? ~u : u | 0x80000000;
}

enum { NAIVE = 64 };             /* threads of reference_top() */

DEVICE uint32_t
sum_over_warp(uint32_t x)
{
	for (int bit = 16; bit > 0; bit /= 2)
		x += __shfl_xor_sync(ALL_LANES, x, bit);
	return x;
}

/* The sum over the block's threads of x, in all of them. part[NAIVE / 32] is free again after the
 * next barrier. */
DEVICE uint32_t
sum_over_block(uint32_t x, uint32_t *part)
{
	x = sum_over_warp(x);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	x = 0;
	for (int w = 0; w < NAIVE / 32; w++)
		x += part[w];
	return x;
}

/* Of how many threads before this one x is set; *all <- of how many in the block */
DEVICE uint32_t
set_before(bool x, uint32_t *part, uint32_t *all)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t lanes = __ballot_sync(ALL_LANES, x);
	uint32_t before = (uint32_t)__popc(lanes & ((1u << lane) - 1));

	__syncthreads();
	if (lane == 0)
		part[warp] = (uint32_t)__popc(lanes);
	__syncthreads();
	*all = 0;
	for (uint32_t w = 0; w < NAIVE / 32; w++) {
		before += w < warp ? part[w] : 0;
		*all += part[w];
	}
	return before;
}

/* A block for each list: the k-th greatest key bit by bit, the greatest number that k keys are
 * not less than; then the entries in order, NAIVE at a time. */
static __global__ void __launch_bounds__(NAIVE)
reference_top(uint32_t *at, size_t room, const float *joint, size_t stride, const struct lists l)
{
	SHARED(uint32_t[NAIVE / 32], part);
	const uint32_t g = blockIdx.x, n = l.n[g], k = l.k[g];
	const float *score = joint + g * stride;
	uint32_t limit = 0, count = 0, out = 0, all;

	for (uint32_t bit = 1u << 31; bit > 0; bit >>= 1) {
		count = 0;
		for (uint32_t i = threadIdx.x; i < n; i += NAIVE)
			count += ordered(score[i]) >= (limit | bit);
		if (sum_over_block(count, part) >= k)
			limit |= bit;
	}
	count = 0;
	for (uint32_t i = threadIdx.x; i < n; i += NAIVE)
		count += ordered(score[i]) > limit;
	uint32_t ties = k - sum_over_block(count, part);     /* so many of those that equal it */
	for (uint32_t from = 0; from < n; from += NAIVE) {
		const uint32_t i = from + threadIdx.x;
		const uint32_t key = i < n ? ordered(score[i]) : 0;
		const bool equal = i < n && key == limit;
		const uint32_t before = set_before(equal, part, &all);
		const bool chosen = i < n && (key > limit || (equal && before < ties));

		ties -= min(all, ties);
		const uint32_t place = out + set_before(chosen, part, &all);
		if (chosen)
			at[g * room + place] = i;
		out += all;
	}
}

void
gpu_top(struct dev *d, struct chosen *to, const float *joint, size_t stride, const uint32_t *n,
    uint32_t G)
{
	struct lists l;

	for (uint32_t g = 0; g < G; g++)
		if (to->n[g] > n[g] || to->n[g] > to->stride)
			gpu_fail(d, "top: %u of %u entries of KV head %u, room for %zu", to->n[g],
			    n[g], g, to->stride);
	if (!lists_of(d, &l, n, G, "top"))
		return;
	memcpy(l.k, to->n, G * sizeof *to->n);
	if (longest_list(l.k, G) > 0)
		LAUNCH(d, reference_top, G, NAIVE, 0, to->at, to->stride, joint, stride, l);
}

/* ---- spread ---- */

static __global__ void __launch_bounds__(THREADS)
spread(float *row, size_t stride, const float *joint, size_t joint_stride, const uint32_t *label,
    size_t label_stride, const struct lists l)
{
	const size_t s = (size_t)blockIdx.x * THREADS + threadIdx.x;
	const uint32_t g = blockIdx.y;

	if (s < l.n[g])
		row[g * stride + s] = joint[g * joint_stride + label[g * label_stride + s]];
}

void
gpu_spread(struct dev *d, float *row, size_t stride, const float *joint, size_t joint_stride,
    const uint32_t *label, size_t label_stride, const uint32_t *n, uint32_t G)
{
	struct lists l;

	if (!lists_of(d, &l, n, G, "spread"))
		return;
	const unsigned parts = parts_of(longest_list(n, G), THREADS);
	if (parts > 0)
		LAUNCH(d, spread, dim3(parts, G), THREADS, 0, row, stride, joint, joint_stride,
		    label, label_stride, l);
}

/* gpu_keep.cu - ranks of the rows of a layer, from which topk() chooses those that stay
 *
 * One thread for each row. Pooling reads each score several times, from L1; all of it is some
 * microseconds beside what made the scores. What counts is that a choice on the device is that of
 * the host to the bit: each number is computed as methods/pool.c and reduce.c do, with the same
 * operations in the same order. These are additions and divisions in IEEE arithmetic, so no
 * product is contracted to a fused multiply-add. */
#include "gpu/gpu_internal.h"

constexpr uint32_t THREADS = 256;

/* A layer's ranking as a kernel's argument */
struct rank_call {
	const float *lists;
	const uint32_t *pos;
	size_t stride;
	struct list_rule rule;
	uint32_t G, R;
	uint64_t start[MAX_HEADS];
	uint32_t n[MAX_HEADS], scored[MAX_HEADS], first[MAX_HEADS], last[MAX_HEADS];
};

/* The minimum over the threads and blocks of a list: an integer, so that their order does not
 * matter */
static __global__ void __launch_bounds__(MAX_HEADS)
clear_nan(uint32_t *nan, uint32_t G)
{
	if (threadIdx.x < G)
		nan[threadIdx.x] = UINT32_MAX;
}

/* The maximum or the sum with one number more. A NaN never replaces a maximum. */
DEVICE float
add_one(float sum, float x, bool maximum)
{
	return !maximum ? sum + x : x > sum ? x : sum;
}

/* The numbers of row i in R lists, reduced: reduce_group() */
DEVICE float
reduced(const float *list, const struct rank_call &c, uint32_t i)
{
	float sum = list[i];

	for (uint32_t r = 1; r < c.R; r++)
		sum = add_one(sum, list[r * c.stride + i], c.rule.reduce == REDUCE_MAX);
	return c.rule.reduce == REDUCE_MEAN && c.R > 1 ? sum / (float)c.R : sum;
}

/* The pooled number of row i, of the n numbers that at(j) gives: pool_rows() */
template <class F>
DEVICE float
pooled(const struct list_rule &rule, uint32_t i, uint32_t n, F &&at)
{
	const uint32_t half = rule.kernel / 2, from = i > half ? i - half : 0;
	const uint32_t to = half < n - 1 - i ? i + half : n - 1;
	const bool maximum = rule.pool == POOL_MAX;
	float sum = maximum ? -INFINITY : 0;

	if (half == 0)
		return at(i);
	for (uint32_t j = from; j <= to; j++)
		sum = add_one(sum, at(j), maximum);
	return maximum ? sum : sum / (float)rule.kernel;
}

/* The score of row i of KV head g from the lists of its query heads: pool_and_reduce() */
DEVICE float
grouped(const struct rank_call &c, uint32_t g, uint32_t i)
{
	const float *list = c.lists + (size_t)g * c.R * c.stride;
	const uint32_t n = c.scored[g];
	float sum = 0;

	if (c.rule.order == REDUCE_FIRST)
		return pooled(c.rule, i, n, [&](uint32_t j) { return reduced(list, c, j); });
	for (uint32_t r = 0; r < c.R; r++) {
		const float one = pooled(c.rule, i, n,
		    [&](uint32_t j) { return list[r * c.stride + j]; });

		sum = r == 0 ? one : add_one(sum, one, c.rule.reduce == REDUCE_MAX);
	}
	return c.rule.reduce == REDUCE_MEAN && c.R > 1 ? sum / (float)c.R : sum;
}

/* The same from all query heads of the layer: score_tova() of heads with equal rows */
DEVICE float
of_layer(const struct rank_call &c, uint32_t i)
{
	const uint32_t H = c.G * c.R;
	double sum = 0;

	for (uint32_t h = 0; h < H; h++)
		sum += c.lists[h * c.stride + i];
	return (float)(sum / H);
}

DEVICE float
score_of(const struct rank_call &c, uint32_t g, uint32_t i)
{
	if (c.rule.whole_layer)
		return of_layer(c, i);
	const float score = grouped(c, g, i);
	if (c.rule.divisor != 0)
		return score / (float)c.rule.divisor;
	if (c.rule.next_position == 0)
		return score;
	const uint32_t seen = c.rule.next_position - c.pos[c.start[g] + i];
	return score / (float)(c.rule.sees != 0 ? min(seen, c.rule.sees) : seen);
}

/* blockIdx.y is the KV head */
static __global__ void __launch_bounds__(THREADS)
rank_rows(float *rank, size_t stride, uint32_t *nan, const struct rank_call c)
{
	const uint32_t g = blockIdx.y, i = blockIdx.x * THREADS + threadIdx.x;
	float score = -INFINITY;

	if (i >= c.n[g])
		return;
	if (i < c.scored[g]) {
		score = score_of(c, g, i);
		if (isnan(score))
			atomicMin(&nan[g], i);
	}
	rank[g * stride + i] = i < c.first[g] || i >= c.last[g] ? INFINITY : score;
}

void
gpu_rank_rows(struct dev *d, float *rank, size_t stride, uint32_t *nan, const struct ranking *r,
    const struct layer_rows *l)
{
	struct rank_call c = { .lists = r->lists, .pos = l->pos, .stride = r->stride,
		.rule = r->rule, .G = l->heads, .R = 0, .start = {}, .n = {}, .scored = {},
		.first = {}, .last = {} };
	uint32_t most = 0;

	if (l->heads == 0 || l->heads > MAX_HEADS || r->H % l->heads != 0)
		gpu_fail(d, "rank: %u query heads over %u KV heads", r->H, l->heads);
	for (uint32_t g = 0; gpu_ok(d) && g < l->heads; g++) {
		c.start[g] = l->start[g];
		c.n[g] = l->len[g];
		c.scored[g] = r->scored[g];
		c.first[g] = r->first[g];
		c.last[g] = r->last[g];
		most = most > c.n[g] ? most : c.n[g];
		if (c.scored[g] > c.n[g] || c.n[g] > stride)
			gpu_fail(d, "rank: %u of %u rows of KV head %u, room for %zu", c.scored[g],
			    c.n[g], g, stride);
	}
	gpu_fixes_lengths(d);
	if (!gpu_ok(d))
		return;
	c.R = r->H / l->heads;
	LAUNCH(d, clear_nan, 1, MAX_HEADS, 0, nan, c.G);
	if (most > 0)
		LAUNCH(d, rank_rows, dim3(parts_of(most, THREADS), c.G), THREADS, 0, rank, stride,
		    nan, c);
}

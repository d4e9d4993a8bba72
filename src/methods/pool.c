/* pool.c - pooling along the rows, as torch's avg_pool1d and max_pool1d with stride 1
 *
 * Each output is computed from its own kernel, in order: a running sum would be faster for
 * large kernels, but its rounding would depend on distant rows. Kernels are small (5, 7). Where
 * the kernel is whole, many outputs are computed at once, each in the same order. */
#include <math.h>
#include <string.h>

#include "methods/methods.h"

#define AT_ONCE 256

/* Returns the output for x[first .. last]. */
static float
pool_one(const float *x, uint32_t first, uint32_t last, uint32_t kernel, enum pool pool)
{
	float v = pool == POOL_AVG ? 0 : -INFINITY;
	uint32_t j;

	for (j = first; j <= last; j++)
		v = pool == POOL_AVG ? v + x[j] : x[j] > v ? x[j] : v;
	return pool == POOL_AVG ? v / (float)kernel : v;
}

/* y[i] <- the output for x[i .. i + kernel - 1], for n <= AT_ONCE outputs */
static void
pool_whole(float *restrict y, const float *restrict x, uint32_t n, uint32_t kernel, enum pool pool)
{
	uint32_t i, j;

	for (i = 0; i < n; i++)
		y[i] = pool == POOL_AVG ? 0 : -INFINITY;
	for (j = 0; j < kernel; j++)
		if (pool == POOL_AVG)
			for (i = 0; i < n; i++)
				y[i] += x[i + j];
		else
			for (i = 0; i < n; i++)
				y[i] = x[i + j] > y[i] ? x[i + j] : y[i];
	for (i = 0; i < n && pool == POOL_AVG; i++)
		y[i] /= (float)kernel;
}

void
pool_rows(float *y, const float *x, uint32_t n, uint32_t kernel, enum pool pool)
{
	uint32_t half = kernel / 2, i = 0, last, part;

	if (half == 0 && n > 0)
		memcpy(y, x, n * sizeof *y);
	if (half == 0)
		return;
	for (; i < n && (i < half || half >= n - i); i++) {
		last = half < n - 1 - i ? i + half : n - 1;
		y[i] = pool_one(x, i > half ? i - half : 0, last, kernel, pool);
	}
	for (; half < n - i; i += part) {
		part = n - i - half < AT_ONCE ? n - i - half : AT_ONCE;
		pool_whole(y + i, x + i - half, part, kernel, pool);
	}
	for (; i < n; i++)
		y[i] = pool_one(x, i > half ? i - half : 0, n - 1, kernel, pool);
}

void
pool_and_reduce(float *score, const float *mass, size_t stride, uint32_t R, uint32_t n,
    const struct score_options *opt, float *scratch)
{
	uint32_t r;

	if (opt->order == REDUCE_FIRST) {
		reduce_group(scratch, mass, stride, R, n, opt->reduce);
		pool_rows(score, scratch, n, opt->kernel, opt->pool);
		return;
	}
	for (r = 0; r < R; r++)
		pool_rows(scratch + (size_t)r * n, mass + r * stride, n, opt->kernel, opt->pool);
	reduce_group(score, scratch, n, R, n, opt->reduce);
}

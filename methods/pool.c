/* pool.c - pooling along the rows, as torch's avg_pool1d and max_pool1d with stride 1 do it
 *
 * Each output is computed from its own kernel, in order: a running sum would be faster for
 * large kernels, but its rounding would depend on rows far away. Kernels are small (5, 7). */
#include <math.h>
#include <string.h>

#include "methods/methods.h"

void
pool_rows(float *y, const float *x, uint32_t n, uint32_t kernel, enum pool pool)
{
	uint32_t half = kernel / 2, first, last, i, j;
	float v;

	if (half == 0 && n > 0)
		memcpy(y, x, n * sizeof *y);
	if (half == 0)
		return;
	for (i = 0; i < n; i++) {
		first = i > half ? i - half : 0;
		last = half < n - 1 - i ? i + half : n - 1;
		if (pool == POOL_AVG) {
			for (j = first, v = 0; j <= last; j++)
				v += x[j];
			y[i] = v / (float)kernel;
		} else {
			for (j = first, v = -INFINITY; j <= last; j++)
				v = x[j] > v ? x[j] : v;
			y[i] = v;
		}
	}
}

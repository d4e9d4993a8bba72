/* reduce.c - reduces the lists of query heads to one for their KV head */
#include <string.h>

#include "methods/methods.h"

void
reduce_group(float *y, const float *x, size_t stride, uint32_t R, uint32_t n, enum reduce how)
{
	const float *list;
	uint32_t r, i;

	if (n == 0)
		return;
	memmove(y, x, n * sizeof *y);
	for (r = 1; r < R; r++) {
		list = x + r * stride;
		if (how == REDUCE_MAX)
			for (i = 0; i < n; i++)
				y[i] = list[i] > y[i] ? list[i] : y[i];
		else
			for (i = 0; i < n; i++)
				y[i] += list[i];
	}
	if (how == REDUCE_MEAN && R > 1)
		for (i = 0; i < n; i++)
			y[i] /= (float)R;
}

void
reduce_mass(float *score, const float *mass, const struct score_input *in, enum reduce how)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t R = in->query_heads / rows->heads;
	uint32_t g, n;

	for (g = 0; g < rows->heads; g++) {
		n = rows->count[g];
		reduce_group(score, mass, n, R, n, how);
		score += n;
		mass += (size_t)R * n;
	}
}

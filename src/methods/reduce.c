/* reduce.c - one list for a KV head from those of its query heads */
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

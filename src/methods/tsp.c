/* tsp.c - token-selective propagation: later layers run on the rows that one layer attends to
 *
 * Jo et al. 2025, "FastKV", section 4.2, equations 1 and 2. Layers up to the TSP layer run on the
 * whole prompt. There each row is scored by the attention that it gets from the last w queries, in
 * all heads together, and the best continue: later layers cost less, and the dropped rows have
 * already passed their information to the others.
 *
 * score(row) = sum over query heads of pool(attention summed over the w queries). The w rows of
 * the window always continue; softmax runs over all rows, pooling over those before the window.
 *
 * The paper says mean where we sum: the same order. It sums w + 1 queries in equation 1 and
 * calls the window w wide everywhere else; we use w. It does not say which pooling: the class
 * in the authors' code has average as its default, their evaluation script asks for the
 * maximum. */
#include <stdlib.h>
#include <string.h>

#include "methods/tokens.h"

int
keep_tsp(const struct tsp *o, const float *mass, uint32_t H, uint32_t N, uint32_t k,
    uint32_t *keep)
{
	uint32_t before = N - o->window, h, i;
	float *score = calloc((size_t)before + 1, sizeof *score);
	float *pooled = calloc((size_t)before + 1, sizeof *pooled);

	if (score == NULL || pooled == NULL) {
		free(score);
		free(pooled);
		return -1;
	}
	for (h = 0; h < H; h++) {
		pool_rows(pooled, mass + (size_t)h * N, before, o->kernel, o->pool);
		for (i = 0; i < before; i++)
			score[i] += pooled[i];
	}
	select_top(score, before, k - o->window, keep);
	for (i = 0; i < o->window; i++)
		keep[k - o->window + i] = before + i;
	free(score);
	free(pooled);
	return 0;
}

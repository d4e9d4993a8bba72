/* pyramidinfer.c - PyramidInfer: the deeper the layer, the fewer rows
 *
 * Yang et al. 2024, "PyramidInfer: Pyramid KV Cache Compression for High-throughput LLM
 * Inference", section 3; parameters as in the authors' code. After some layers, the rows before
 * the tail (the context) are ranked by the attention that they get from the tail, averaged over all
 * heads, later queries counting more; the best continue, with the tail and the first 4 rows. After
 * layer l the share
 *
 *	ratio(l) = p + (1 - p) (cos(pi l / L) + 1) / 2
 *
 * of the present context stays, so that shares multiply. ratio(0) is 1: nothing is dropped after
 * the first layer.
 *
 * This runs during prefill. The authors also compress while decoding. */
#include <math.h>
#include <stdlib.h>

#include "methods/tokens.h"

#define SINK 4

uint32_t
pyramidinfer_tail(const struct pyramidinfer *o, uint32_t T)
{
	uint32_t recent = budget_of_rate(T, o->recent);

	return recent < T ? recent + 1 : T;
}

uint32_t
pyramidinfer_rows(const struct pyramidinfer *o, uint32_t l, uint32_t L, uint32_t N,
    uint32_t tail)
{
	double ratio = o->decay + (1 - o->decay) * (cos(M_PI * l / L) + 1) / 2;
	uint32_t context = N - tail, stay = budget_of_rate(context, ratio);

	if (l % o->interval != 0 || stay <= o->least)
		return N;
	return stay + tail;
}

int
keep_pyramidinfer(const float *mass, uint32_t H, uint32_t N, uint32_t tail, uint32_t k,
    uint32_t *keep)
{
	uint32_t context = N - tail, h, i;
	float *score = calloc((size_t)context + 1, sizeof *score);

	if (score == NULL)
		return -1;
	for (h = 0; h < H; h++)
		for (i = 0; i < context; i++)
			score[i] += mass[(size_t)h * N + i];
	for (i = 0; i < SINK && i < context; i++)
		score[i] = INFINITY;
	select_top(score, context, k - tail, keep);
	for (i = 0; i < tail; i++)
		keep[k - tail + i] = context + i;
	free(score);
	return 0;
}

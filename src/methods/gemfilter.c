/* gemfilter.c - GemFilter: an early layer selects the tokens, and the model runs only these
 *
 * Shi et al. 2024, "Discovering the Gems in Early Layers: Accelerating Long-Context LLMs with
 * 1000x Input Token Reduction", section 3.2, algorithm 1. The prompt runs up to one layer. There
 * the last query is compared with all keys: q.k, not scaled and without softmax, summed over all
 * heads, then averaged over 5 neighbours. The k best tokens are a new, shorter prompt.
 *
 * Nothing is always kept, neither first nor last tokens: pooling usually keeps the end. */
#include <stdlib.h>

#include "methods/tokens.h"

int
keep_gemfilter(const float *product, uint32_t N, uint32_t k, uint32_t *keep)
{
	float *score = malloc(N * sizeof *score);

	if (score == NULL)
		return -1;
	pool_rows(score, product, N, GEMFILTER_KERNEL, POOL_AVG);
	select_top(score, N, k, keep);
	free(score);
	return 0;
}

/* kvcompose.c - KVCompose: the attention of probe tokens to a row, and its mean over the KV heads
 *
 * "KVCompose: Efficient Structured KV Cache Compression with Composite Tokens" (arXiv 2509.05165),
 * by kvpress's KVComposePress with its defaults. The mass of kv-observe is the maximum over the
 * probe tokens, or their sum (pAID in kv-snapshot(5)).
 *
 * score = s + the mean of s over the KV heads of the layer, where s is the mass from probe tokens
 * reduced over the R query heads of a KV head, by default their mean. What other heads attend to
 * steadies what this one does.
 *
 * Ours differs in this: heads may have different rows. The mean is over the KV heads that have the
 * position. Rows that kv-observe has marked (+inf) in any of them are always kept. */
#include <stdlib.h>

#include "methods/scorers.h"

/* sum[i], n[i] <- added to them the scores of KV head h at the positions of KV head g that it has,
 * and 1 */
static void
add_head(double *sum, uint32_t *n, const struct kv_rows *rows, uint32_t g, uint32_t h,
    const float *score)
{
	uint32_t i, j = 0;

	for (i = 0; i < rows->count[g]; i++) {
		while (j < rows->count[h] && rows->pos[h][j] < rows->pos[g][i])
			j++;
		if (j < rows->count[h] && rows->pos[h][j] == rows->pos[g][i]) {
			sum[i] += score[j];
			n[i]++;
		}
	}
}

int
score_kvcompose(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	const uint64_t total = kv_rows_total(rows);
	double *sum = calloc(total + 1, sizeof *sum);
	uint32_t *n = calloc(total + 1, sizeof *n), g, h;
	uint64_t i, at, of;
	int code = -1;

	if (sum != NULL && n != NULL) {
		reduce_mass(score, in->probe_mass, in, opt->reduce);
		for (at = 0, g = 0; g < rows->heads; at += rows->count[g++])
			for (of = 0, h = 0; h < rows->heads; of += rows->count[h++])
				add_head(sum + at, n + at, rows, g, h, score + of);
		for (i = 0; i < total; i++)
			score[i] = (float)(score[i] + sum[i] / n[i]);
		code = 0;
	}
	free(sum);
	free(n);
	return code;
}

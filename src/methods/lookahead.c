/* lookahead.c - LookaheadKV: the attention of learned tokens predicts that of the answer
 *
 * "LookaheadKV: Fast and Accurate KV Cache Eviction by Glimpsing into the Future without
 * Generation" (2026), section 3.1, algorithm 2, and appendix F (pooling, reduction).
 *
 * After the prompt run n learned rows that are no tokens, trained so that their attention is that
 * of the model's own answer (kv-observe --lookahead; kv-adapter(5)). score = the attention of
 * these rows, softmax over the prompt and the learned rows that each of them sees, averaged over
 * the n; pooled along the rows by its maximum, query head by query head, then averaged over the R
 * query heads of the KV head. The learned rows themselves are not stored, and have no score.
 *
 * Nothing is always kept: no observation window, no sink. That is the difference from snapkv.c,
 * besides the source of the queries; the authors found a window of the prompt's last queries to
 * cost 2 % (appendix E.2). With kv-observe --keep-window such queries precede the learned ones and
 * count like them.
 *
 * Limits: it is as good as its training. Rows stored after the observation were not seen by it;
 * they are always kept (+inf).
 *
 * Ours does not differ from the paper, which has no public code. */
#include <math.h>
#include <stdlib.h>

#include "methods/scorers.h"

/* Returns how many rows, the first ones, the last query sees. */
static uint32_t
rows_seen(const uint32_t *pos, uint32_t n, const struct score_input *in)
{
	return kv_rows_before(pos, n, (uint64_t)in->window_pos[in->window - 1] + 1);
}

/* score[n] <- the scores of one KV head's rows */
static void
score_head(float *score, const float *mass, size_t stride, uint32_t R, const uint32_t *pos,
    uint32_t n, const struct score_input *in, const struct score_options *opt, float *scratch)
{
	const uint32_t seen = rows_seen(pos, n, in);
	uint32_t s;

	pool_and_reduce(score, mass, stride, R, seen, opt, scratch);
	for (s = 0; s < seen; s++)
		score[s] /= (float)in->window;
	for (; s < n; s++)
		score[s] = INFINITY;
}

int
score_lookahead(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t R = in->query_heads / rows->heads;
	float *scratch = calloc((size_t)R * (in->stride + 1), sizeof *scratch);
	uint32_t g;

	if (scratch == NULL)
		return -1;
	for (g = 0; g < rows->heads; score += rows->count[g++])
		score_head(score, in->window_mass + (size_t)g * R * in->stride, in->stride, R,
		    rows->pos[g], rows->count[g], in, opt, scratch);
	free(scratch);
	return 0;
}

int
lists_lookahead(const struct score_input *in, const struct score_options *opt,
    struct list_rule *rule, uint32_t *scored)
{
	const struct kv_rows *rows = in->rows;
	uint32_t g;

	*rule = (struct list_rule){ .kernel = opt->kernel, .pool = opt->pool,
	    .reduce = opt->reduce, .order = opt->order, .divisor = in->window };
	for (g = 0; g < rows->heads; g++)
		scored[g] = rows_seen(rows->pos[g], rows->count[g], in);
	return 1;
}

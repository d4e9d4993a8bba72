/* snapkv.c - SnapKV: what the end of the prompt looks at is what the answer will look at
 *
 * Li et al. 2024, "SnapKV: LLM Knows What You Are Looking for Before Generation", section 4
 * (the vote of the observation window; clustering by pooling).
 *
 * The last W queries of the prompt (the observation window) stand for the queries that are
 * still to come. A row's importance is the attention they pay to it: softmax over all rows that
 * each of them sees, summed over the W queries. The window's own rows count in the normaliser
 * but get no score: they are always kept (+inf here).
 *
 * Queries of tokens that are not stored (kv-observe: the draft of an answer, in LAQ and SpecKV)
 * stand for those to come even better. Their own keys count in the normaliser, and there is
 * nothing of them to keep. SpecKV takes the maximum over the queries instead of the sum.
 *
 * Pooling along the rows keeps neighbours of a strongly attended row. A single token is rarely
 * a fact; without pooling the copied words survive and the words around them go. It runs over
 * the rows in front of the window only, so that the window, which attends to itself, does not
 * leak into its neighbours.
 *
 * Limits: it is wrong when the question does not stand in the window (a question asked before a
 * long context, or a snapshot that is made once for many questions), and it sees one moment:
 * rows that matter only later are lost. After rows were evicted "neighbour" means the neighbour
 * among survivors.
 *
 * Ours differs from the authors' code in this: selection is per KV head, not per query head
 * (the cache stays G heads wide), so the R query heads of a KV head are reduced to one list.
 * Pooling each query head's list first and reducing then is the order of kvpress, FastKV and
 * PruLong; KVCache-Factory and AdaKV reduce first. For average pooling with mean or sum the
 * two are the same; for max pooling they are not, hence the option. Their window is 64
 * (class default) or 32 wide; ours is what the snapshot holds. */
#include <math.h>
#include <stdlib.h>

#include "methods/scorers.h"

int
score_snapkv(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	uint32_t R = in->query_heads / rows->heads, g, n, s;
	float *scratch;

	scratch = calloc((size_t)R * (in->stride + 1), sizeof *scratch);
	if (scratch == NULL)
		return -1;
	for (g = 0; g < rows->heads; g++) {
		n = kv_rows_before(rows->pos[g], rows->count[g], in->window_pos[0]);
		pool_and_reduce(score, in->window_mass + (size_t)g * R * in->stride, in->stride, R,
		    n, opt, scratch);
		for (s = n; s < rows->count[g]; s++)
			score[s] = INFINITY;
		score += rows->count[g];
	}
	free(scratch);
	return 0;
}

int
lists_snapkv(const struct score_input *in, const struct score_options *opt, struct list_rule *rule,
    uint32_t *scored)
{
	const struct kv_rows *rows = in->rows;
	uint32_t g;

	*rule = (struct list_rule){ .kernel = opt->kernel, .pool = opt->pool,
	    .reduce = opt->reduce, .order = opt->order };
	for (g = 0; g < rows->heads; g++)
		scored[g] = kv_rows_before(rows->pos[g], rows->count[g], in->window_pos[0]);
	return 1;
}

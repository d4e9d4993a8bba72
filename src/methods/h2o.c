/* h2o.c - heavy hitters: rows with much attention so far will get more
 *
 * Zhang et al. 2023, "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large
 * Language Models", section 4 (accumulated attention as the score).
 *
 * score = the attention mass of a row: its softmax attention summed over every query of the text
 * so far, exact and causal, from kv-prefill --mass (mASS in kv-snapshot(5)), reduced over the R
 * query heads of the KV head, by default summed. Nothing is always kept here. The paper keeps as
 * many recent rows as heavy hitters, which is a matter of the budget: kv-evict --budget C --recent
 * C/2.
 *
 * Limits: sums favour early rows, which more queries have seen; the recent half makes up for it at
 * the end of the text, not in the middle. The question counts no more than any other query. If
 * rows were dropped between parts of a text, the attention of later queries went to the survivors,
 * whose mass is therefore larger.
 *
 * Ours differs from the authors' code in this: they score each query head and keep R times the
 * rows for it; here, as in KVCache-Factory's KV-head mode (which takes the mean, the same
 * ranking), a KV head has one list. They continue while decoding; one kv-score is one step.
 * Copies of the method in which only the last queries are masked (KVCache-Factory before its
 * issue 49, FastKV) score attention to the future, and are not reproduced. */
#include <string.h>

#include "methods/scorers.h"

int
score_h2o(const struct score_input *in, const struct score_options *opt, float *score)
{
	reduce_mass(score, in->mass, in, opt->reduce);
	return 0;
}

int
lists_h2o(const struct score_input *in, const struct score_options *opt, struct list_rule *rule,
    uint32_t *scored)
{
	*rule = (struct list_rule){ .kernel = 1, .reduce = opt->reduce };
	memcpy(scored, in->rows->count, in->rows->heads * sizeof *scored);
	return 1;
}

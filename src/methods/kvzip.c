/* kvzip.c - KVzip: the attention mass that probe tokens give to a row
 *
 * Kim et al. 2025, "KVzip: Query-Agnostic KV Cache Compression with Context Reconstruction",
 * section 3.2 (the maximum of the attention while the context is repeated), with the values that
 * kv-observe --repeat-context makes.
 *
 * score = the attention mass from probe tokens, which ran and were not stored: its sum or maximum
 * over them, as in kv-observe's section (pAID in kv-snapshot(5)), reduced over the R query heads
 * of the KV head, by default their maximum. Rows that it has marked (+inf: the sinks of a
 * repetition) are always kept.
 *
 * Limits: the scores are as good as the probe tokens. Those of a repeated text know no question,
 * and serve all of them; those of a draft know only its question.
 *
 * Ours differs from the authors' code in this: they compare the scores of all heads and layers
 * with one threshold (budgets are kv-evict's), or keep the same share in each head, as kv-evict
 * --rate does. */
#include "methods/scorers.h"

int
score_kvzip(const struct score_input *in, const struct score_options *opt, float *score)
{
	reduce_mass(score, in->probe_mass, in, opt->reduce);
	return 0;
}

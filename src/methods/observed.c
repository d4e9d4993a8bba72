/* observed.c - rows that the tokens of kv-observe have looked at
 *
 * Kim et al. 2025, "KVzip: Query-Agnostic KV Cache Compression with Context Reconstruction",
 * section 3.2 (the maximum of the attention that repeating the context pays), when kv-observe
 * --repeat-context has made the values.
 *
 * score = the attention that tokens have paid to a row which were run and not stored, as
 * kv-observe has added it up or taken its maximum (pAID in kv-snapshot(5)), reduced over the R
 * query heads of the KV head: by their maximum unless told otherwise. Rows that it has marked
 * (+inf: the sinks of a repetition) are always kept.
 *
 * Limits: the scores are as good as the tokens that were run. Those of a repeated text know
 * nothing of a question, and serve all of them; those of a draft know only its question.
 *
 * Ours differs from the authors' code in what comes after: they compare the scores of all heads
 * and layers with one threshold (budgets are kv-evict's), or keep the same share in each head,
 * as kv-evict --rate does. */
#include "methods/scorers.h"

int
score_observed(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t R = in->query_heads / rows->heads;
	const float *mass = in->probe_mass;
	uint32_t g, n;

	for (g = 0; g < rows->heads; g++) {
		n = rows->count[g];
		reduce_group(score, mass, n, R, n, opt->reduce);
		score += n;
		mass += (size_t)R * n;
	}
	return 0;
}

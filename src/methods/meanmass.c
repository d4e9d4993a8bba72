/* meanmass.c - the mean attention that a row gets from each query that could see it
 *
 * NVIDIA's kvpress has it as ObservedAttentionPress, "related to H2O"; no paper.
 *
 * score = the attention mass of h2o.c, reduced over the R query heads of the KV head (by default
 * their mean), divided by the number of queries that could see the row: those of its own token and
 * of all later ones, or those within a sliding window. So early rows, which more queries have
 * seen, have no advantage as in H2O; the latest rows have one: they share the attention of their
 * few queries, their own token's above all, with fewer others. Nothing is always kept here.
 *
 * Limits: a position and the next position give the number of queries only if every token of the
 * text has run in every layer, at its own position. That is not so after a token selection, or
 * when rows were renumbered: because of NEED_EVERY_QUERY the caller refuses that. If rows were
 * dropped between parts of a text, the attention of later queries went to the survivors.
 *
 * Ours does not differ from kvpress. */
#include "methods/scorers.h"

/* Returns how many queries could see the row at this position, which the next query sees. */
static uint32_t
queries_of(const struct score_input *in, uint32_t pos)
{
	const uint32_t n = in->next_position - pos;

	return in->sees != 0 && n > in->sees ? in->sees : n;
}

int
score_meanmass(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t *pos;
	uint32_t g, i;

	if (score_h2o(in, opt, score) != 0)
		return -1;
	for (g = 0; g < rows->heads; score += rows->count[g++])
		for (i = 0, pos = rows->pos[g]; i < rows->count[g]; i++)
			score[i] /= (float)queries_of(in, pos[i]);
	return 0;
}

int
lists_meanmass(const struct score_input *in, const struct score_options *opt,
    struct list_rule *rule, uint32_t *scored)
{
	lists_h2o(in, opt, rule, scored);
	rule->next_position = in->next_position;
	rule->sees = in->sees;
	return 1;
}

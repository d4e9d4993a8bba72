/* retrieval_choose.c - the steps of a choice that all methods share: count candidates, reduce
 * scores, select the best
 *
 * group_reduce() reduces the scores of the entries over the query heads of a KV head. Where
 * candidates are not the entries themselves, retrieve_by_label() gives each one the score of its
 * label (index.h). Candidates that are always read need no separate path: they have label 0, and
 * element 0, before the reduced scores, is +inf. If candidates are the entries, and all compete,
 * scores are reduced in place, which is no work without GQA. */
#include "retrieval/retrieval_internal.h"

/* ---- candidates ---- */

void
retrieve_set_choice(struct retrieval *t, const struct layer_rows *rows, uint32_t g, uint32_t u,
    uint64_t always, uint32_t of_budget)
{
	uint64_t n = (uint64_t)of_budget + always;

	t->chosen.rows = u;
	t->n[g] = rows->len[g] / u + (rows->len[g] % u != 0);
	t->seen[g] = rows->len[g];
	t->most = 0;
	t->always[g] = (uint32_t)always;
	t->chosen.n[g] = rows->len[g] <= t->opt.budget || n > t->n[g] ? t->n[g] : (uint32_t)n;
}

struct counts
retrieve_candidates(const struct retrieval *t)
{
	return (struct counts){ t->n, t->most };
}

const float *
retrieve_by_label(struct retrieval *t, const struct query *query, const uint32_t *n_entries,
    const struct labels *l)
{
	t->ops->group_reduce(t->dev, t->joint + 1, t->score, t->stride,
	    (struct counts){ n_entries, 0 }, query->sinks, t->H, t->G, t->opt.reduce);
	t->ops->scores_by_label(t->dev, t->candidate, t->stride, t->joint, t->stride, l->at,
	    l->stride, t->n, t->G);
	return t->candidate;
}

void
retrieve_choose(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	const struct retrieval_method *method = t->method;
	const float *score;

	if (method->choose != NULL) {
		method->choose(t, rows);
		return;
	}
	score = method->rank(t, query, rows, x);
	t->ops->topk(t->dev, &t->chosen, score, t->stride, retrieve_candidates(t), t->G);
	if (method->after_topk != NULL)
		method->after_topk(t);
}

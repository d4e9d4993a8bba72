/* retrieve_rank.c - what competes, how it is scored, and how much of it is chosen: one function for
 * each method of retrieval
 *
 * group_reduce() reduces the scores of the entries over the query heads of a KV head. Where
 * candidates are not the entries themselves, by_label() gives each one the score of its label
 * (index.h). Candidates that are always read need no path of their own: they have label 0, and
 * element 0 in front of the reduced scores is +inf. Where candidates are the entries, and all
 * compete, scores are reduced in place, which without GQA is no work.
 *
 * Quest has two rules. The authors' kernels always read the last page, within the budget; their
 * evaluation program (quest_attention.py) lets it compete with the bounds of the rows that it has,
 * and takes LEAST_PAGES at least. */
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

/* Candidates that are rows become more with them (0: they cannot). */
static uint32_t
most_rows(const struct layer_rows *rows)
{
	uint32_t g, most = 0;

	for (g = 0; rows->capacity != NULL && g < rows->heads; g++)
		most = rows->capacity[g] > most ? rows->capacity[g] : most;
	return most;
}

static struct counts
candidates(const struct retrieval *t)
{
	return (struct counts){ t->n, t->most };
}

/* Reduces the scores of the entries, and gives each candidate that of the entry its label names. */
static const float *
by_label(struct retrieval *t, const uint32_t *n_entries, const struct labels *l)
{
	t->ops->group_reduce(t->dev, t->joint + 1, t->score, t->stride,
	    (struct counts){ n_entries, 0 }, t->H, t->G, t->opt.reduce);
	t->ops->scores_by_label(t->dev, t->candidate, t->stride, t->joint, t->stride, l->at,
	    l->stride, t->n, t->G);
	return t->candidate;
}

void
retrieve_set_rows(struct retrieval *t, const struct layer_rows *rows)
{
	uint32_t g;

	for (g = 0; g < t->G; g++)
		retrieve_set_choice(t, rows, g, 1, 0, t->opt.budget);
	t->most = most_rows(rows);
}

static const float *
rank_rows(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	retrieve_set_rows(t, rows);
	t->ops->bits_scores(t->dev, t->score, t->stride, query, &x->bits, rows);
	t->ops->group_reduce(t->dev, t->score, t->score, t->stride, candidates(t), t->H, t->G,
	    t->opt.reduce);
	return t->score;
}

/* ---- pages ---- */

/* The last page is among the pages that the budget pays for. */
static const float *
rank_pages(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	uint32_t u = x->pages.rows, pages = t->opt.budget / u, g;

	for (g = 0; g < t->G; g++)
		retrieve_set_choice(t, rows, g, u, 1, pages > 0 ? pages - 1 : 0);
	t->ops->page_scores(t->dev, t->score, t->stride, query, &x->pages, t->dtype);
	return by_label(t, x->page_label.n, &x->page_label);
}

/* t->last.pages <- the pages of the index and, behind those of each KV head, one for a last page
 * that is not whole. It is written to where the index has room for it; when its rows are there, the
 * index puts its own in its place. A KV head of one page has none: that page is chosen in any
 * case. */
static void
pack_last_pages(struct retrieval *t, const struct layer_rows *rows, const struct entries *index)
{
	const uint32_t u = index->rows;
	struct entries *pages = &t->last.pages;
	struct chosen *c = &t->last.rows;
	uint32_t g, i, part, whole;

	pages->data = index->data;
	pages->bytes = index->bytes;
	pages->rows = u;
	for (g = 0; g < t->G; g++) {
		part = rows->len[g] % u;
		whole = rows->len[g] - part;
		c->n[g] = part > 0 && whole > 0 ? u : 0;
		for (i = 0; i < c->n[g]; i++)
			t->last.list[g * c->stride + i] = whole + (i < part ? i : part - 1);
		pages->start[g] = index->start[g] + index->len[g];
		pages->len[g] = 0;
		pages->capacity[g] = 1;
	}
	t->ops->put(t->dev, c->at, t->last.list, t->G * c->stride * sizeof *c->at);
	t->ops->gather(t->dev, &t->copy, rows, c);
	t->ops->pack_pages(t->dev, pages, &t->copy);
	for (g = 0; g < t->G; g++) {
		pages->start[g] = index->start[g];
		pages->len[g] += index->len[g];
	}
}

/* All pages compete. */
static const float *
rank_all_pages(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	uint32_t u = x->pages.rows, pages = t->opt.budget / u, g;

	for (g = 0; g < t->G; g++)
		retrieve_set_choice(t, rows, g, u, 0, pages > LEAST_PAGES ? pages : LEAST_PAGES);
	pack_last_pages(t, rows, &x->pages);
	t->ops->page_scores(t->dev, t->score, t->stride, query, &t->last.pages, t->dtype);
	t->ops->group_reduce(t->dev, t->score, t->score, t->stride,
	    (struct counts){ t->last.pages.len, 0 }, t->H, t->G, t->opt.reduce);
	return t->score;
}

/* Was a last page that is not whole chosen? The device knows. */
static void
leave_out_last(struct retrieval *t)
{
	const uint32_t u = t->chosen.rows;
	uint32_t g, last;

	for (g = 0; g < t->G; g++) {
		if (t->seen[g] % u == 0 || t->chosen.n[g] == t->n[g])
			continue;
		t->ops->get(t->dev, &last, t->chosen.at + g * t->chosen.stride + t->chosen.n[g] - 1,
		    sizeof last);
		if (last + 1 < t->n[g])
			t->seen[g] -= t->seen[g] % u;
	}
}

/* ---- clusters and chunks ---- */

/* Sink rows are among the rows that the budget pays for, those behind the clusters are not. */
static const float *
rank_clusters(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	uint32_t sink, end, g;

	for (g = 0; g < t->G; g++) {
		sink = x->sink < rows->len[g] ? x->sink : rows->len[g];
		end = x->end[g] > sink ? x->end[g] : sink;
		retrieve_set_choice(t, rows, g, 1, (uint64_t)sink + rows->len[g] - end,
		    t->opt.budget > sink ? t->opt.budget - sink : 0);
	}
	t->ops->key_scores(t->dev, t->score, t->stride, query, &x->mean);
	return by_label(t, x->mean.len, &x->row_label);
}

/* Exact chunks and rows behind the index come on top of the budget. */
static const float *
rank_chunks(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	uint32_t u = x->low.chunk, behind, g;

	for (g = 0; g < t->G; g++) {
		behind = rows->len[g] - x->low.n;
		retrieve_set_choice(t, rows, g, u,
		    (uint64_t)x->n_exact + behind / u + (behind % u != 0), t->opt.budget / u);
	}
	t->ops->key_scores(t->dev, t->score, t->stride, query, &x->landmark);
	return by_label(t, x->landmark.len, &x->chunk_label);
}

/* ---- a step ---- */

void
retrieve_choose(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	static const float *(*const rank[])(struct retrieval *, const struct query *,
	    const struct layer_rows *, const struct layer_index *) = {
		[RETRIEVE_FIER] = rank_rows, [RETRIEVE_QUEST] = rank_pages,
		[RETRIEVE_QUEST_EVAL] = rank_all_pages, [RETRIEVE_CLUSTER] = rank_clusters,
		[RETRIEVE_SHADOW] = rank_chunks };
	const float *score;

	if (t->opt.method == RETRIEVE_SPECONTEXT) {
		retrieve_choose_ahead(t, rows);
		return;
	}
	score = rank[t->opt.method](t, query, rows, x);
	t->ops->topk(t->dev, &t->chosen, score, t->stride, candidates(t), t->G);
	if (t->opt.method == RETRIEVE_QUEST_EVAL)
		leave_out_last(t);
}

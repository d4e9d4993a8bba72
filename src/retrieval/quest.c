/* quest.c - Quest (2024): pages compete, by the upper bound of the logit from the bounds of their
 * keys (pAGE)
 *
 * There are two rules. The authors' kernels always read the last page, within the budget (quest).
 * In their evaluation program (quest_attention.py) it competes, by the bounds of the rows that it
 * has, and at least LEAST_PAGES are read (quest-eval). */
#include <stdlib.h>

#include "retrieval/retrieval_internal.h"

enum { LEAST_PAGES = 3 };

/* The last page counts against the budget. */
static const float *
score_pages(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	uint32_t u = x->pages.rows, pages = t->opt.budget / u, g;

	for (g = 0; g < t->G; g++)
		retrieve_set_choice(t, rows, g, u, 1, pages > 0 ? pages - 1 : 0);
	t->ops->page_scores(t->dev, t->score, t->stride, query, &x->pages, t->dtype);
	return retrieve_by_label(t, query, x->page_label.n, &x->page_label);
}

/* t->last.pages <- the pages of the index and, after those of each KV head, an entry for a partial
 * last page. It is written into the spare room of the index, which overwrites it when the page is
 * whole. A KV head of one page gets none: that page is always chosen. */
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
	retrieve_copy_as(t, rows);
	t->ops->gather(t->dev, &t->copy, rows, c);
	t->ops->pack_pages(t->dev, pages, &t->copy);
	for (g = 0; g < t->G; g++) {
		pages->start[g] = index->start[g];
		pages->len[g] += index->len[g];
	}
}

/* All pages compete. */
static const float *
score_all_pages(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	uint32_t u = x->pages.rows, pages = t->opt.budget / u, g;

	for (g = 0; g < t->G; g++)
		retrieve_set_choice(t, rows, g, u, 0, pages > LEAST_PAGES ? pages : LEAST_PAGES);
	pack_last_pages(t, rows, &x->pages);
	t->ops->page_scores(t->dev, t->score, t->stride, query, &t->last.pages, t->dtype);
	t->ops->group_reduce(t->dev, t->score, t->score, t->stride,
	    (struct counts){ t->last.pages.len, 0 }, query->sinks, t->H, t->G, t->opt.reduce);
	return t->score;
}

/* Leaves a partial last page out of t->seen if it was not chosen. Reads the choice from the
 * device. */
static void
leave_out_last_page(struct retrieval *t)
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

/* Allocates t->last. Returns 0, or KV_ENOMEM. */
static int
reserve_last_pages(struct retrieval *t, const struct layer_index *x, uint64_t most)
{
	const uint32_t u = x->pages.rows;
	struct last_pages *l = &t->last;

	if (u > l->rows.stride) {
		t->ops->free(t->dev, l->rows.at);
		free(l->list);
		l->list = calloc((size_t)t->G * u, sizeof *l->list);
		l->rows.at = t->ops->alloc(t->dev, (size_t)t->G * u * sizeof *l->rows.at);
		l->rows.stride = l->list != NULL && l->rows.at != NULL ? u : 0;
	}
	(void)most;
	return l->rows.stride >= u ? retrieve_reserve_copy(t, u) : KV_ENOMEM;
}

static uint64_t
least_rows(const struct retrieval_options *o, const struct layer_index *x)
{
	(void)o;
	return x->pages.rows;
}

static uint64_t
least_rows_eval(const struct retrieval_options *o, const struct layer_index *x)
{
	(void)o;
	return (uint64_t)LEAST_PAGES * x->pages.rows;
}

static void
count_bytes(struct retrieval_stats *s, const struct retrieval *t, uint32_t g,
    const struct layer_rows *rows, const struct layer_index *x)
{
	(void)t;
	(void)rows;
	s->index_bytes += x->pages.len[g] * (uint64_t)x->pages.bytes;
}

/* Counts the partial last page, too, which was scored. */
static void
count_bytes_eval(struct retrieval_stats *s, const struct retrieval *t, uint32_t g,
    const struct layer_rows *rows, const struct layer_index *x)
{
	(void)rows;
	s->index_bytes += t->n[g] * (uint64_t)x->pages.bytes;
}

const struct retrieval_method retrieval_quest = { .rank = score_pages, .slots = least_rows,
	.count = count_bytes };
const struct retrieval_method retrieval_quest_eval = { .rank = score_all_pages,
	.after_topk = leave_out_last_page, .reserve = reserve_last_pages, .slots = least_rows_eval,
	.count = count_bytes_eval };

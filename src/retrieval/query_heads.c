/* query_heads.c - choices of rows for each query head, where a layer has one KV head
 *
 * SpeContext (Xu et al. 2025), section 4.3: with latent attention (MLA) the retrieval head does not
 * reduce over query heads; each one of the model has its own rows of the one latent cache. To the
 * ops these are the choices of H KV heads that all begin at the same row: attention reads the
 * chosen rows where they lie, once for each head that has chosen them.
 *
 * A step fetches the union of the choices, and counts it as read. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/retrieval_internal.h"

static int
per_query_head(const struct retrieval *t)
{
	return t->opt.per == PER_QUERY_HEAD;
}

const struct layer_rows *
retrieve_each(struct retrieval *t, const struct layer_rows *rows)
{
	struct query_heads *each = &t->each;
	uint64_t *start = each->rows.start;
	uint32_t *len = each->rows.len, c;

	if (!per_query_head(t))
		return rows;
	for (c = 0; c < t->lists; c++) {
		start[c] = rows->start[0];
		len[c] = rows->len[0];
	}
	each->rows = *rows;
	each->rows.start = start;
	each->rows.len = len;
	each->rows.capacity = NULL;
	each->rows.heads = t->lists;
	return &each->rows;
}

int
retrieve_reserve_each(struct retrieval *t, size_t stride)
{
	struct query_heads *each = &t->each;

	if (!per_query_head(t))
		return KV_OK;
	each->united.at = t->ops->alloc(t->dev, stride * sizeof *each->united.at);
	if (t->offload != NULL)
		each->placed.at = t->ops->alloc(t->dev,
		    t->lists * stride * sizeof *each->placed.at);
	each->united.stride = each->placed.stride = stride;
	each->placed.n = t->chosen.n;
	each->row = malloc(stride * sizeof *each->row);
	each->list = malloc(stride * sizeof *each->list);
	each->own = malloc(stride * sizeof *each->own);
	return each->united.at && (each->placed.at || t->offload == NULL) && each->row &&
	    each->list && each->own ? KV_OK : KV_ENOMEM;
}

void
retrieve_free_each(struct retrieval *t)
{
	struct query_heads *each = &t->each;

	t->ops->free(t->dev, each->united.at);
	t->ops->free(t->dev, each->placed.at);
	free(each->row);
	free(each->list);
	free(each->own);
	each->united.at = each->placed.at = each->row = each->list = each->own = NULL;
}

/* Returns the rows that query head c has chosen, in each->own. */
static uint32_t *
own_rows(struct retrieval *t, uint32_t c)
{
	t->ops->get(t->dev, t->each.own, t->chosen.at + c * t->chosen.stride,
	    t->chosen.n[c] * sizeof *t->each.own);
	return t->each.own;
}

void
retrieve_unite(struct retrieval *t)
{
	struct query_heads *each = &t->each;
	const uint32_t rows = t->n[0], *own;
	uint32_t c, i, n = 0;

	if (!per_query_head(t))
		return;
	memset(each->row, 0, rows * sizeof *each->row);
	for (c = 0; c < t->lists; c++)
		for (own = own_rows(t, c), i = 0; i < t->chosen.n[c]; i++)
			each->row[own[i]] = 1;
	for (i = 0; i < rows; i++)
		if (each->row[i])
			each->list[n++] = i;
	t->ops->put(t->dev, each->united.at, each->list, n * sizeof *each->list);
	each->united.n[0] = n;
}

const struct chosen *
retrieve_read(const struct retrieval *t)
{
	return per_query_head(t) ? &t->each.united : &t->chosen;
}

const struct chosen *
retrieve_placed(struct retrieval *t, const struct chosen *there)
{
	struct query_heads *each = &t->each;
	const uint32_t n = each->united.n[0];
	uint32_t c, i, *own;

	if (!per_query_head(t))
		return there;
	t->ops->get(t->dev, each->own, there->at, n * sizeof *each->own);
	for (i = 0; i < n; i++)
		each->row[each->list[i]] = each->own[i];
	for (c = 0; c < t->lists; c++) {
		for (own = own_rows(t, c), i = 0; i < t->chosen.n[c]; i++)
			own[i] = each->row[own[i]];
		t->ops->put(t->dev, each->placed.at + c * each->placed.stride, own,
		    t->chosen.n[c] * sizeof *own);
	}
	return &each->placed;
}

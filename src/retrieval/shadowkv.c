/* shadowkv.c - ShadowKV (2024): chunks of rows compete, by their mean keys; the keys of the chosen
 * ones are computed from factors (lOWR)
 *
 * Attention reads a copy of the chosen rows, in which keys are replaced by computed ones. */
#include "retrieval/retrieval_internal.h"

/* Exact chunks and rows after the index are read on top of the budget. */
static const float *
score_chunks(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	uint32_t u = x->low.chunk, behind, g;

	for (g = 0; g < t->G; g++) {
		behind = rows->len[g] - x->low.n;
		retrieve_set_choice(t, rows, g, u,
		    (uint64_t)x->n_exact + behind / u + (behind % u != 0), t->opt.budget / u);
	}
	t->ops->key_scores(t->dev, t->score, t->stride, query, &x->landmark);
	return retrieve_by_label(t, query, x->landmark.len, &x->chunk_label);
}

/* Makes room for a copy of the rows that are always read and of the budget. */
static int
reserve_rebuilt(struct retrieval *t, const struct layer_index *x, uint64_t most)
{
	uint64_t part = (uint64_t)x->n_exact * x->low.chunk + t->opt.budget;

	if (most > x->low.n)
		part += most - x->low.n;
	return retrieve_reserve_copy(t, part < most ? part : most);
}

static uint64_t
least_rows(const struct retrieval_options *o, const struct layer_index *x)
{
	return (uint64_t)x->n_exact * x->low.chunk + o->budget;
}

static struct attention
attend_rebuilt(struct retrieval *t, float *o, const struct query *query,
    const struct layer_rows *rows, const struct chosen *where, const struct layer_index *x)
{
	retrieve_copy_as(t, rows);
	t->ops->gather(t->dev, &t->copy, rows, where);
	t->ops->rebuild(t->dev, &t->copy, &t->chosen, &x->low, t->freq);
	return (struct attention){ .o = o, .query = *query, .rows = &t->copy };
}

static void
count_bytes(struct retrieval_stats *s, const struct retrieval *t, uint32_t g,
    const struct layer_rows *rows, const struct layer_index *x)
{
	const uint64_t esize = kv_dtype_size(t->dtype), row = t->E * esize;
	const uint64_t rebuilt = (uint64_t)(t->chosen.n[g] - t->always[g]) * x->low.chunk;

	(void)rows;
	s->index_bytes += x->landmark.len[g] * row + rebuilt * x->low.rank * esize +
	    (rebuilt > 0) * row * x->low.rank;
	s->key_bytes -= rebuilt * row;
}

const struct retrieval_method retrieval_shadow = { .rank = score_chunks, .reserve = reserve_rebuilt,
	.slots = least_rows, .count = count_bytes, .attend = attend_rebuilt };

/* fier.c - FIER (2025): rows compete, by their keys in one bit (bITS)
 *
 * Steps can be captured in a graph and launched: all rows compete, and the device reads the lengths
 * of the lists. */
#include "retrieval/retrieval_internal.h"

/* Returns struct counts.most: candidates are rows, so lists grow up to the capacity; 0: they do not
 * grow. */
static uint32_t
most_rows(const struct layer_rows *rows)
{
	uint32_t g, most = 0;

	for (g = 0; rows->capacity != NULL && g < rows->heads; g++)
		most = rows->capacity[g] > most ? rows->capacity[g] : most;
	return most;
}

static void
count_candidates(struct retrieval *t, const struct layer_rows *rows)
{
	uint32_t g;

	for (g = 0; g < t->G; g++)
		retrieve_set_choice(t, rows, g, 1, 0, t->opt.budget);
	t->most = most_rows(rows);
}

static const float *
score_rows_by_bits(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
    const struct layer_index *x)
{
	count_candidates(t, rows);
	t->ops->bits_scores(t->dev, t->score, t->stride, query, &x->bits, rows);
	t->ops->group_reduce(t->dev, t->score, t->score, t->stride, retrieve_candidates(t),
	    query->sinks, t->H, t->G, t->opt.reduce);
	return t->score;
}

/* Adds the bits, and the keys of rows that have no bits yet. */
static void
count_bytes(struct retrieval_stats *s, const struct retrieval *t, uint32_t g,
    const struct layer_rows *rows, const struct layer_index *x)
{
	(void)t;
	s->index_bytes += x->bits.len[g] * (uint64_t)x->bits.bytes;
	s->key_bytes += (rows->len[g] - x->bits.len[g] * (uint64_t)x->bits.rows) *
	    rows_k_bytes(rows);
}

const struct retrieval_method retrieval_fier = { .rank = score_rows_by_bits, .count = count_bytes,
	.launched = count_candidates };

/* clusterkv.c - ClusterKV (2024): clusters of rows compete, by their centroids (cLUS) */
#include "retrieval/retrieval_internal.h"

/* Sink rows count against the budget, rows after the clusters do not. */
static const float *
score_clusters(struct retrieval *t, const struct query *query, const struct layer_rows *rows,
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
	return retrieve_by_label(t, query, x->mean.len, &x->row_label);
}

static uint64_t
least_rows(const struct retrieval_options *o, const struct layer_index *x)
{
	(void)o;
	return x->sink;
}

/* Adds the centroids, and the label of each row. */
static void
count_bytes(struct retrieval_stats *s, const struct retrieval *t, uint32_t g,
    const struct layer_rows *rows, const struct layer_index *x)
{
	const uint64_t row = t->E * kv_dtype_size(t->dtype);

	s->index_bytes += x->mean.len[g] * row + rows->len[g] * (uint64_t)4;
}

const struct retrieval_method retrieval_cluster = { .rank = score_clusters, .slots = least_rows,
	.count = count_bytes };

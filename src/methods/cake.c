/* cake.c - CAKE: rows that the window looks at, steadily or now and then, and how far and how
 * variably each layer looks around
 *
 * Qin et al. 2025, "CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences", ICLR,
 * section 4. a[i][s] is the attention of query i of the observation window, W queries, to the
 * n rows s in front of the window, of one query head; rows of the window are in the softmax alone.
 *
 *     score[s] = mean a[.][s] + gamma var a[.][s]         equation 11; over i, gamma 200
 *
 * with the variance over W - 1, or 0 for one query; averages of `kernel` (5) neighbours; the mean
 * over the query heads of the KV head. The rows of the window have +inf. Of each layer two sums
 * over its query heads belong to its scores, in their label, from which kv-evict --policy cake
 * makes the layer's share of the budget (shares.c):
 *
 *     entropy  = - sum over i, s of a ln(a + 1e-10)       how evenly attention is spread
 *     variance = sum over s of var a[.][s]                how much it moves from query to query
 *
 * Limits: the attention of each query is in memory, W H n numbers of a layer; with W = 32 that is
 * about as much as its keys and values. */
#include <math.h>
#include <stdlib.h>

#include "methods/scorers.h"

struct work {
	double *mean, *variance;        /* [n] of a query head */
	float *list;                    /* [R][n] */
	float *scratch;                 /* [R][n] for pool_and_reduce() */
};

/* Sets w->mean and w->variance of n rows, and adds to *spread: for one query head, whose query i
 * pays a[i * of_query + s] to row s. */
static void
take_attention(struct work *w, const float *a, size_t of_query, uint32_t queries, uint32_t n,
    struct attention_spread *spread)
{
	const float *row;
	double off;
	uint32_t i, s;

	for (s = 0; s < n; s++)
		w->mean[s] = w->variance[s] = 0;
	for (i = 0, row = a; i < queries; i++, row += of_query)
		for (s = 0; s < n; s++) {
			w->mean[s] += (double)row[s] / queries;
			spread->entropy -= row[s] * log(row[s] + 1e-10);
		}
	for (i = 0, row = a; i < queries && queries > 1; i++, row += of_query)
		for (s = 0; s < n; s++) {
			off = row[s] - w->mean[s];
			w->variance[s] += off * off / (queries - 1);
		}
	for (s = 0; s < n; s++)
		spread->variance += w->variance[s];
}

/* method_score() calls this for one KV head at a time. */
int
score_cake(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint32_t R = in->query_heads, n = in->rows->count[0];
	const uint32_t front = kv_rows_before(in->rows->pos[0], n, in->window_pos[0]);
	const size_t lists = (size_t)R * (front + 1);
	struct work w = { malloc((front + 1) * sizeof *w.mean),
	    malloc((front + 1) * sizeof *w.variance), malloc(lists * sizeof *w.list),
	    malloc(lists * sizeof *w.scratch) };
	const int rc = w.mean != NULL && w.variance != NULL && w.list != NULL &&
	    w.scratch != NULL ? 0 : -1;
	uint32_t r, s;

	*in->spread = (struct attention_spread){ 0, 0 };
	for (r = 0; rc == 0 && r < R; r++) {
		take_attention(&w, in->window_mass + r * in->stride, in->of_query, in->window,
		    front, in->spread);
		for (s = 0; s < front; s++)
			w.list[(size_t)r * front + s] =
			    (float)(w.mean[s] + opt->gamma.value * w.variance[s]);
	}
	if (rc == 0)
		pool_and_reduce(score, w.list, front, R, front, opt, w.scratch);
	for (s = front; rc == 0 && s < n; s++)
		score[s] = INFINITY;
	free(w.mean);
	free(w.variance);
	free(w.list);
	free(w.scratch);
	return rc;
}

/* triattention.c - the attention logits that mean queries at later distances give a key
 *
 * TriAttention (2026), for long generations. Queries before rotary embedding gather around a mean
 * in each pair of rotated channels. With q the mean of a query head's in pair f, a complex number,
 * A the mean of their moduli, k the key's before rotary embedding, at position p, and w the
 * frequency of the pair, the score of the query head is
 *
 *     mean over d = 1, 2, 4, ..., 65536 of  sum over f of |q| |k| cos(w (t - p + d) + arg(q k*))
 *     + sum over f of (A - |q|) |k|,
 *
 * where t is the next position: the first term is what a mean query gives at these distances, the
 * second grows where queries of the pair point everywhere. The first is computed as the product of
 * the stored key with the mean query, turned by the mean rotation of the positions t + d. Channels
 * that are not rotated add their product to it.
 *
 * With z_score the scores of a query head are taken less their mean over the rows and over their
 * standard deviation (n - 1); then query heads are reduced (max).
 *
 * Its authors evict after every 128 tokens (kv-decode --every 128), and keep the prompt (--since).
 *
 * Limits: knows no question. Statistics are those of the text so far, or of other texts, as the
 * authors have them. */
#include <math.h>
#include <stdlib.h>

#include "methods/future_queries.h"
#include "methods/scorers.h"
#include "methods/standardise.h"

enum { DISTANCES = 17 };

/* A query head */
struct head {
	double *mean;                   /* [E] turned to the later positions */
	double *spread;                 /* [pairs] A - |q| */
};

/* Sums of numbers of f32 do not overflow here. The hypot of one C library rounds otherwise than
 * that of another. */
static double
length(double x, double y)
{
	return sqrt(x * x + y * y);
}

static void
set_head(struct head *to, const struct mean_rotation *turn, const struct score_input *in,
    uint32_t h)
{
	const struct kv_query_stats *q = in->query_stats;
	const double *sum = q->sum + (size_t)h * in->width + in->rope_first;
	uint32_t f;

	future_mean(to->mean, turn, in, h);
	for (f = 0; f < turn->pairs; f++)
		to->spread[f] = in->rope_factor / q->n * (q->modulus[(size_t)h * turn->pairs + f] -
		    length(sum[f], sum[f + turn->pairs]));
}

static double
score_of(const struct head *head, const float *key, const double *modulus, uint32_t E,
    uint32_t pairs)
{
	double score = 0;
	uint32_t i;

	for (i = 0; i < E; i++)
		score += head->mean[i] * key[i];
	for (i = 0; i < pairs; i++)
		score += head->spread[i] * modulus[i];
	return score;
}

/* lists[R][n] <- the scores of each query head */
static void
make_lists(float *lists, const struct head *head, double *modulus, float *key,
    const struct score_input *in, uint32_t pairs)
{
	const uint32_t R = in->query_heads, E = in->width, n = in->rows->count[0];
	const size_t size = kv_row_bytes(in->key_type, E);
	const float *rotated = key + in->rope_first;
	uint32_t i, f, r;

	for (i = 0; i < n; i++) {
		kv_rows_to_f32(key, (const char *)in->keys + i * size, in->key_type, E, 1);
		for (f = 0; f < pairs; f++)
			modulus[f] = length(rotated[f], rotated[f + pairs]);
		for (r = 0; r < R; r++)
			lists[(size_t)r * n + i] = (float)score_of(&head[r], key, modulus, E,
			    pairs);
	}
}

/* method_score() calls this for one KV head at a time. */
int
score_triattention(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint32_t R = in->query_heads, E = in->width, n = in->rows->count[0];
	const size_t each = (size_t)E + E / 2;
	uint64_t at[DISTANCES];
	struct mean_rotation turn;
	struct head *head = malloc(R * sizeof *head);
	double *numbers = malloc((R * each + E) * sizeof *numbers);
	float *lists = malloc(((size_t)R * n + E) * sizeof *lists);
	uint32_t r, i;
	int rc = -1;

	for (i = 0; i < DISTANCES; i++)
		at[i] = in->next_position + (UINT64_C(1) << i);
	if (mean_rotation_of(&turn, in, at, DISTANCES) == 0 && head != NULL && numbers != NULL &&
	    lists != NULL) {
		for (r = 0; r < R; r++) {
			head[r] = (struct head){ numbers + r * each, numbers + r * each + E };
			set_head(&head[r], &turn, in, in->head * R + r);
		}
		make_lists(lists, head, numbers + R * each, lists + (size_t)R * n, in, turn.pairs);
		for (r = 0; r < R && opt->z_score; r++)
			standardise(lists + (size_t)r * n, n, 1e-30);
		reduce_group(score, lists, n, R, n, opt->reduce);
		rc = 0;
	}
	mean_rotation_free(&turn);
	free(head);
	free(numbers);
	free(lists);
	return rc;
}

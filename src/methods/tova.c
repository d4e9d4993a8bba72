/* tova.c - TOVA: rows that the last token does not attend to are dropped
 *
 * Oren et al. 2024, "Transformers are Multi-State RNNs", section 3.2 (token omission via
 * attention).
 *
 * score = the softmax attention of the last query alone, over all rows that it sees, averaged over
 * all H query heads of the layer. Every KV head gets the same list: TOVA drops tokens from a
 * layer, not rows from heads. The current token competes like any other; keep_last protects it, as
 * kvpress does.
 *
 * If heads were evicted separately, a position may be left in some of them only. Then the mean is
 * over the query heads of the KV heads that still have it: a head that has lost a row says nothing
 * about it. So the score of a position is the same in all heads that have it, and with equal heads
 * this is the paper's mean.
 *
 * Rows later than the query (tokens after the observation) were not seen by it. They cannot be
 * scored, and are always kept (+inf).
 *
 * Limits: one query is one moment. The authors apply the rule again at every decoded token,
 * each time the cache exceeds its budget; one kv-score is one step of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/scorers.h"

/* The attention of a position, over the KV heads that have it. */
struct tally {
	uint32_t pos;
	uint32_t heads;                 /* number of query heads summed */
	double sum;
};

/* out <- a[n] and one KV head's positions pos[m], merged; new ones start at zero. Returns their
 * number. out has room for n + m. */
static size_t
merge_positions(struct tally *out, const struct tally *a, size_t n, const uint32_t *pos, uint32_t m)
{
	size_t i = 0, count = 0;
	uint32_t s = 0;

	while (i < n || s < m) {
		if (s == m || (i < n && a[i].pos <= pos[s])) {
			s += s < m && a[i].pos == pos[s];
			out[count++] = a[i++];
		} else
			out[count++] = (struct tally){ .pos = pos[s++] };
	}
	return count;
}

/* Adds the R lists of one KV head to the tallies of its positions, all of which exist. */
static void
add_head(struct tally *t, const uint32_t *pos, uint32_t n, const float *mass, size_t stride,
    uint32_t R)
{
	uint32_t s, r;

	for (s = 0; s < n; s++) {
		while (t->pos < pos[s])
			t++;
		t->heads += R;
		for (r = 0; r < R; r++)
			t->sum += mass[r * stride + s];
	}
}

/* Returns whether the row at this position stays whatever its score. */
static int
stays(uint32_t pos, uint32_t query, int keep_last)
{
	return pos > query || (keep_last && pos == query);
}

static void
score_head(float *score, const struct tally *t, const uint32_t *pos, uint32_t n, uint32_t query,
    int keep_last)
{
	uint32_t s;

	for (s = 0; s < n; s++) {
		while (t->pos < pos[s])
			t++;
		if (stays(pos[s], query, keep_last))
			score[s] = INFINITY;
		else
			score[s] = (float)(t->sum / t->heads);
	}
}

int
score_tova(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t R = in->query_heads / rows->heads, query = in->window_pos[in->window - 1];
	const uint64_t total = kv_rows_total(rows);
	struct tally *t = calloc(total + 1, sizeof *t), *more = calloc(total + 1, sizeof *more);
	struct tally *swap;
	const int short_of_memory = t == NULL || more == NULL;
	size_t n = 0;
	uint32_t g;

	for (g = 0; !short_of_memory && g < rows->heads; g++) {
		n = merge_positions(more, t, n, rows->pos[g], rows->count[g]);
		swap = t, t = more, more = swap;
		add_head(t, rows->pos[g], rows->count[g],
		    in->window_mass + (size_t)g * R * in->stride, in->stride, R);
	}
	for (g = 0; !short_of_memory && g < rows->heads; g++) {
		score_head(score, t, rows->pos[g], rows->count[g], query, opt->keep_last);
		score += rows->count[g];
	}
	free(t);
	free(more);
	return short_of_memory ? -1 : 0;
}

/* If a position is left in some heads only, the device has no rule for its mean. */
int
lists_tova(const struct score_input *in, const struct score_options *opt, struct list_rule *rule,
    uint32_t *scored)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t query = in->window_pos[in->window - 1], n = rows->count[0];
	const uint32_t seen =
	    kv_rows_before(rows->pos[0], n, (uint64_t)query + !opt->keep_last);
	uint32_t g;

	for (g = 0; g < rows->heads; g++) {
		if (rows->count[g] != n || (n > 0 && memcmp(rows->pos[g], rows->pos[0],
		    n * sizeof *rows->pos[g]) != 0))
			return 0;
		scored[g] = seen;
	}
	*rule = (struct list_rule){ .whole_layer = 1 };
	return 1;
}

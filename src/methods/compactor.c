/* compactor.c - leverage of the keys, and attention within chunks without a causal mask
 *
 * Chari, Van Durme 2025, "Compactor: Calibrated Query-Agnostic KV Cache Compression with
 * Approximate Leverage Scores"; kvpress's CompactorPress. Of the rows behind the first `sink`
 * positions (8) and before the last `recent` (4)
 *
 *     score = blend z(leverage) + z(noncausal),
 *
 * the scores of leverage.c and noncausal.c among these rows alone, each less its mean over the
 * layer and over its standard deviation (n - 1, at least 1e-6). blend is 0.35, as in the paper;
 * kvpress takes the compression ratio. The other rows have +inf; in kvpress they are as good as the
 * best.
 *
 * Leverage is exact, or with `sketch` of keys that are projected at random, as for leverage.
 *
 * Limits: ignores the question. */
#include <math.h>
#include <stdlib.h>

#include "methods/scorers.h"
#include "methods/standardise.h"

static const double LEAST_DEVIATION = 1e-6;     /* kvpress's */

/* Returns the input of KV head g alone, with its rows first .. end - 1 only. */
static struct score_input
middle_of(const struct score_input *in, uint32_t g, uint64_t before, uint32_t first,
    const uint32_t *count, const uint32_t *const *pos, struct kv_rows *rows)
{
	const uint32_t R = in->query_heads / in->rows->heads;
	const uint64_t row = (in->first_row != NULL ? in->first_row[g] : before) + first;
	struct score_input one = *in;

	*rows = (struct kv_rows){ 1, count, pos };
	one.head = g;
	one.query_heads = R;
	one.rows = rows;
	one.keys = (const char *)in->keys + row * kv_row_bytes(in->key_type, in->width);
	one.values = (const char *)in->values + row * kv_row_bytes(in->value_type, in->width);
	one.first_row = NULL;
	one.noncausal = in->noncausal + before + first;
	return one;
}

/* The rows of KV head g that compete are first .. end - 1. */
static void
ends_of(const struct score_input *in, const struct score_options *opt, uint32_t g, uint32_t *first,
    uint32_t *end)
{
	const uint32_t n = in->rows->count[g], next = in->next_position;

	*first = kv_rows_before(in->rows->pos[g], n, opt->sink);
	*end = kv_rows_before(in->rows->pos[g], n, next > opt->recent ? next - opt->recent : 0);
	*end = *end > *first ? *end : *first;
}

/* lever, mass <- the scores of the rows that compete, KV head after KV head; *n <- how many. */
static int
both_scores(float *lever, float *mass, const struct score_input *in,
    const struct score_options *opt, uint64_t *n)
{
	uint64_t before = 0;
	uint32_t g, first, end, count;
	struct kv_rows rows;

	*n = 0;
	for (g = 0; g < in->rows->heads; before += in->rows->count[g++]) {
		ends_of(in, opt, g, &first, &end);
		if ((count = end - first) == 0)
			continue;
		const uint32_t *const pos = in->rows->pos[g] + first;
		const struct score_input one = middle_of(in, g, before, first, &count, &pos, &rows);

		if (score_leverage(&one, opt, lever + *n) != 0 ||
		    score_noncausal(&one, opt, mass + *n) != 0)
			return -1;
		*n += count;
	}
	return 0;
}

int
score_compactor(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint64_t total = kv_rows_total(in->rows);
	float *lever = malloc((2 * total + 1) * sizeof *lever), *mass = lever + total;
	uint32_t g, s, first, end;
	uint64_t n, at = 0;

	if (lever == NULL || both_scores(lever, mass, in, opt, &n) != 0) {
		free(lever);
		return -1;
	}
	standardise(lever, n, LEAST_DEVIATION);
	standardise(mass, n, LEAST_DEVIATION);
	for (g = 0; g < in->rows->heads; g++) {
		ends_of(in, opt, g, &first, &end);
		for (s = 0; s < in->rows->count[g]; s++)
			if (s < first || s >= end)
				*score++ = INFINITY;
			else {
				*score++ = (float)(opt->blend.value * lever[at] + mass[at]);
				at++;
			}
	}
	free(lever);
	return 0;
}

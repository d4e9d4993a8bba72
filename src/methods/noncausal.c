/* noncausal.c - rows that the others of their chunk attend to, in both directions, by value norm
 *
 * Chari, Van Durme 2025, "Compactor: Calibrated Query-Agnostic KV Cache Compression with
 * Approximate Leverage Scores"; kvpress's NonCausalAttnPress. With c, the sum over the queries of a
 * chunk of 256 rows of their softmax over the chunk, without a causal mask and not divided by
 * sqrt(E) (kv-snapshot(5), 4.25), and the Euclidean norm of the value,
 *
 *     score = the mean of c |v| over the row and its two neighbours, 0 beyond the ends.
 *
 * kvpress also takes the mean of all scores of a layer off and divides by their standard deviation,
 * which changes no order within it. Its last chunk, where shorter, is filled up with rows of zeros
 * that take and give attention; here it has its own rows only.
 *
 * Limits: ignores the question. */
#include <math.h>
#include <stdlib.h>

#include "methods/scorers.h"
#include "methods/squared_length.h"

/* method_score() calls this for one KV head at a time. */
int
score_noncausal(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint32_t n = in->rows->count[0];
	const size_t size = kv_row_bytes(in->value_type, in->width);
	float *value = malloc(in->width * sizeof *value);
	double *paid = malloc((n + (size_t)1) * sizeof *paid);
	uint32_t s;

	(void)opt;
	for (s = 0; value != NULL && paid != NULL && s < n; s++) {
		kv_rows_to_f32(value, (const char *)in->values + s * size, in->value_type,
		    in->width, 1);
		paid[s] = in->noncausal[s] * sqrt(squared_length(value,
		    value_channels(in)));
	}
	for (s = 0; value != NULL && paid != NULL && s < n; s++)
		score[s] = (float)(((s > 0 ? paid[s - 1] : 0) + paid[s] +
		    (s + 1 < n ? paid[s + 1] : 0)) / 3);
	free(value);
	free(paid);
	return value != NULL && paid != NULL ? 0 : -1;
}

/* cur.c - rows with large keys and values are kept, compared with their neighbours
 *
 * Sengupta et al. 2025, "Value-Guided KV Compression for LLMs via Approximated CUR Decomposition"
 * (CurDKV), in the approximation of kvpress's CURPress: a row's leverage is its squared norm.
 *
 * For each KV head: |k|^2 of each key, as stored, and |v|^2 of each value, each over the sum of its
 * window of `local` rows (the first row begins one, the last one may be shorter); score = their
 * product, or by `norms` their mean or one of them, over the sum of all rows of the head; sinks
 * have 1, which no other row has more than.
 *
 * A window of zeros has 0, where kvpress divides by 0. kvpress can project rows onto 20 random
 * directions first; that is not here, since it approximates the norms that are computed.
 *
 * Limits: ignores the question and the direction of keys. */
#include <stdlib.h>

#include "methods/scorers.h"
#include "methods/squared_length.h"

const char *const norms_names[] = { "product", "mean", "keys", "values", NULL };

/* norm[n] <- the squared norms of the first channels of rows, each over the sum of its window;
 * local 0: as they are */
static void
local_norms(double *norm, const char *rows, enum kv_row_type type, uint32_t n, uint32_t E,
    uint32_t channels, uint32_t local, float *x)
{
	const size_t size = kv_row_bytes(type, E);
	double sum = 0;
	uint32_t i, first = 0;

	for (i = 0; i < n; i++, rows += size) {
		kv_rows_to_f32(x, rows, type, E, 1);
		norm[i] = squared_length(x, channels);
		sum += norm[i];
		if (local == 0 || (i + 1 < n && i + 1 - first < local))
			continue;
		for (; first <= i; first++)
			norm[first] = sum == 0 ? 0 : norm[first] / sum;
		sum = 0;
	}
}

static double
of_both(double key, double value, enum norms norms)
{
	switch (norms) {
	case NORMS_MEAN: return (key + value) / 2;
	case NORMS_KEYS: return key;
	case NORMS_VALUES: return value;
	default: return key * value;
	}
}

static void
score_head(float *score, const double *keys, const double *values, const uint32_t *pos, uint32_t n,
    const struct score_options *opt)
{
	double sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		sum += of_both(keys[i], values[i], opt->norms);
	for (i = 0; i < n; i++)
		score[i] = pos[i] < opt->sink ? 1 :
		    sum == 0 ? 0 : (float)(of_both(keys[i], values[i], opt->norms) / sum);
}

int
score_cur(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t E = in->width;
	const char *keys = in->keys, *values = in->values;
	float *x = malloc(E * sizeof *x);
	double *norm;
	uint32_t g, n, longest = 0;

	for (g = 0; g < rows->heads; g++)
		longest = rows->count[g] > longest ? rows->count[g] : longest;
	norm = malloc((2 * (size_t)longest + 1) * sizeof *norm);
	for (g = 0; x != NULL && norm != NULL && g < rows->heads; g++) {
		if ((n = rows->count[g]) == 0)          /* without rows keys may be NULL */
			continue;
		local_norms(norm, keys, in->key_type, n, E, E, opt->local, x);
		local_norms(norm + n, values, in->value_type, n, E, value_channels(in), opt->local,
		    x);
		score_head(score, norm, norm + n, rows->pos[g], n, opt);
		score += n;
		keys += n * kv_row_bytes(in->key_type, E);
		values += n * kv_row_bytes(in->value_type, E);
	}
	free(x);
	free(norm);
	return x != NULL && norm != NULL ? 0 : -1;
}

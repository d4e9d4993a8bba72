/* knorm.c - rows whose keys have a small norm are kept
 *
 * Devoto et al. 2024, "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression".
 *
 * score = -|k|: the norm of the key as stored, after rotary embedding (a rotation, which does not
 * change it). An observation about trained models, not a theorem: the keys that many queries
 * attend to, sinks above all, are short, because they point away from the common direction of all
 * other keys. It needs no query, so it suits a cache that is made once and asked many times.
 *
 * Limits: ignores the question; in the first two layers the correlation is weak.
 *
 * Ours differs from the authors' code in this: they leave layers 0 and 1 whole and keep
 * ceil(rate * rows); here every layer gets the same budget by the one rounding rule. Protect
 * the latest rows with kv-evict --recent, which the paper does not do. */
#include <math.h>
#include <stdlib.h>

#include "methods/scorers.h"
#include "methods/squared_length.h"

int
score_knorm(const struct score_input *in, const struct score_options *opt, float *score)
{
	const char *key = in->keys;
	size_t row_size = kv_row_bytes(in->key_type, in->width);
	uint64_t total = kv_rows_total(in->rows), s;
	float *k;

	(void)opt;
	if ((k = malloc(in->width * sizeof *k)) == NULL)
		return -1;
	for (s = 0; s < total; s++, key += row_size) {
		kv_rows_to_f32(k, key, in->key_type, in->width, 1);
		score[s] = (float)-sqrt(squared_length(k, in->width));
	}
	free(k);
	return 0;
}

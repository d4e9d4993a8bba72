/* qfilter.c - rows whose keys lie towards the queries are kept
 *
 * Godey et al. 2025, "Q-Filters: Leveraging QK Geometry for Efficient Key-Value Cache
 * Compression".
 *
 * score = -<f, k>: k is the key as stored, f the filter of the KV head: a direction that most
 * queries of the model point away from, found once by a decomposition of queries of other texts
 * (train/q_filters.py), and published for some models. So the score is the projection of the key on
 * the common direction of queries. It needs no query of this text, and costs a dot product.
 *
 * Limits: ignores the question, and which row is recent: the authors' cache always keeps the last
 * 64 rows (kv-evict --recent 64); kvpress, whose QFilterPress this is, keeps none by force. */
#include <stdlib.h>

#include "methods/scorers.h"

int
score_qfilter(const struct score_input *in, const struct score_options *opt, float *score)
{
	const size_t row_size = kv_row_bytes(in->key_type, in->width);
	const float *filter = in->filter;
	const char *key = in->keys;
	float *k = malloc(in->width * sizeof *k);
	uint32_t g, s, e;
	double dot;

	(void)opt;
	for (g = 0; k != NULL && g < in->rows->heads; g++, filter += in->width)
		for (s = 0; s < in->rows->count[g]; s++, key += row_size) {
			kv_rows_to_f32(k, key, in->key_type, in->width, 1);
			for (dot = 0, e = 0; e < in->width; e++)
				dot += (double)filter[e] * k[e];
			*score++ = (float)-dot;
		}
	free(k);
	return k != NULL ? 0 : -1;
}

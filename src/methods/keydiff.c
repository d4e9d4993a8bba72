/* keydiff.c - rows whose keys differ from the others are kept
 *
 * Park et al. 2025, "KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM
 * Inference in Resource-Constrained Environments".
 *
 * For each KV head: every key k_j, as stored (after rotary embedding), is scaled to length 1, u_j
 * = k_j/|k_j|; the anchor is the mean of the u_j; score = -cos(k_j, anchor). In trained models
 * most keys of a head have about the same direction, and those that many queries attend to another
 * one. It needs no query, so the question may come later.
 *
 * A key of length 0 has no direction: it adds nothing to the anchor and scores 0, like one at
 * right angles to it. If the directions cancel out there is no anchor, and every row scores 0.
 *
 * Limits: ignores the question and the length of a key; among few rows the anchor is mostly the
 * row's own direction.
 *
 * Ours differs from the paper in this: the paper processes the prompt in blocks of 128 tokens
 * and after each keeps the best of the rows kept so far and the block, with an anchor over
 * these. That is a loop over kv-prefill --resume, kv-score and kv-evict (kvpipe(7)); one
 * kv-score is one step of it, over the present rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/scorers.h"
#include "methods/squared_length.h"

/* u[E] <- the direction of a key; 0 if it has none. double: squares of f32 may overflow */
static void
direction(double *u, float *k, const void *key, enum kv_row_type type, uint32_t E)
{
	double sum, scale;
	uint32_t e;

	kv_rows_to_f32(k, key, type, E, 1);
	sum = squared_length(k, E);
	scale = sum == 0 ? 0 : 1 / sqrt(sum);
	for (e = 0; e < E; e++)
		u[e] = k[e] * scale;
}

/* score[n] <- one KV head's scores. u, anchor [E], k [E]: scratch. The anchor's length does not
 * matter for a cosine, so it is a sum, not a mean. */
static void
score_head(float *score, const char *keys, uint32_t n, const struct score_input *in, double *u,
    double *anchor, float *k)
{
	const size_t row_size = kv_row_bytes(in->key_type, in->width);
	double length = 0, dot;
	uint32_t s, e;

	memset(anchor, 0, in->width * sizeof *anchor);
	for (s = 0; s < n; s++) {
		direction(u, k, keys + s * row_size, in->key_type, in->width);
		for (e = 0; e < in->width; e++)
			anchor[e] += u[e];
	}
	for (e = 0; e < in->width; e++)
		length += anchor[e] * anchor[e];
	length = sqrt(length);
	for (s = 0; s < n; s++) {
		direction(u, k, keys + s * row_size, in->key_type, in->width);
		for (e = 0, dot = 0; e < in->width; e++)
			dot += u[e] * anchor[e];
		score[s] = length == 0 ? 0 : (float)(-dot / length);
	}
}

int
score_keydiff(const struct score_input *in, const struct score_options *opt, float *score)
{
	const size_t row_size = kv_row_bytes(in->key_type, in->width);
	double *u = malloc(2 * in->width * sizeof *u);
	float *k = malloc(in->width * sizeof *k);
	const char *keys = in->keys;
	uint32_t g;

	(void)opt;
	for (g = 0; u != NULL && k != NULL && g < in->rows->heads; g++) {
		score_head(score, keys, in->rows->count[g], in, u, u + in->width, k);
		score += in->rows->count[g];
		if (in->rows->count[g] > 0)             /* without rows the keys may be NULL */
			keys += in->rows->count[g] * row_size;
	}
	free(u);
	free(k);
	return u != NULL && k != NULL ? 0 : -1;
}

/* leverage.c - how much of what spans the keys a row is alone in
 *
 * Chari, Van Durme 2025, "Compactor: Calibrated Query-Agnostic KV Cache Compression with
 * Approximate Leverage Scores"; kvpress's LeverageScorePress. With X[rows][E], the keys of a KV
 * head before rotary embedding less their mean, a row's leverage is
 *
 *     x' (X'X + ridge)^-1 x,   0 <= leverage < 1,
 *
 * the ridge 0.01, times 10 until the matrix can be decomposed. With a sketch, X is multiplied by
 * Phi[E][K] first: normal numbers over sqrt(K), others for each layer and KV head.
 *
 * kvpress has the sketch only, of 48, and another one at each call. Here exact leverage is the
 * default: it does not depend on chance, and E^2 products for each row are little beside the prompt
 * (E = 128: 1.5 times as long as a sketch of 48). A sketch as wide as a key, or wider, spans what
 * keys span, and is left out.
 *
 * kvpress also takes the mean of all scores of a layer off, and divides by their standard
 * deviation. That changes neither the order of a KV head's rows nor that among KV heads, so no
 * choice by order: uniform, ada-kvpress, pyramid. Where scores are more than an order (kv-evict
 * --first-stage, --threshold, spiky chunks) or layers compete, these are the leverages. */
#include <math.h>
#include <stdlib.h>

#include "methods/cholesky.h"
#include "methods/mix_word.h"
#include "methods/scorers.h"
#include "methods/unrotate.h"

static const double RIDGE = 1e-2;

struct work {
	struct unrotation unrotation;
	size_t K;                       /* width of x: E, or that of the sketch */
	double *phi;                    /* [E][K], or NULL: exact */
	double *mean, *sum;             /* [E] of keys before rotary embedding */
	double *key;                    /* [E] one of them, less the mean */
	double *x;                      /* [K] the key, sketched */
	double *columns;                /* [K][CHOLESKY_COLUMNS] x of some rows */
	double *a;                      /* [K][K] X'X + ridge, then L, in the lower triangle */
	float *row;                     /* [E] */
};

static void
free_work(struct work *w)
{
	unrotation_free(&w->unrotation);
	free(w->mean);
	free(w->phi);
	free(w->row);
}

/* phi[n] <- normal numbers over sqrt(K), by Box and Muller, of this seed, layer and KV head */
static void
make_sketch(double *phi, size_t n, size_t K, uint64_t seed, uint32_t layer, uint32_t head)
{
	const uint64_t state = mix_word(mix_word(mix_word(0, seed), layer), head);
	double u, v;
	size_t i;

	for (i = 0; i < n; i++) {
		u = (double)((mix_word(state, 2 * i) >> 11) + 1) * 0x1p-53;     /* 0 < u <= 1 */
		v = (double)(mix_word(state, 2 * i + 1) >> 11) * 0x1p-53;
		phi[i] = sqrt(-2 * log(u) / (double)K) * cos(2 * M_PI * v);
	}
}

static int
alloc_work(struct work *w, const struct score_input *in, const struct score_options *opt)
{
	const size_t E = in->width;
	const int sketched = opt->sketch != 0 && opt->sketch < E;
	const size_t K = sketched ? opt->sketch : E;

	*w = (struct work){ .K = K };
	w->mean = calloc(3 * E + K * (1 + CHOLESKY_COLUMNS + K), sizeof *w->mean);
	w->row = malloc(E * sizeof *w->row);
	if (sketched)
		w->phi = malloc(E * K * sizeof *w->phi);
	if (w->mean == NULL || w->row == NULL || (sketched && w->phi == NULL) ||
	    unrotation_init(&w->unrotation, in) != 0) {
		free_work(w);
		return -1;
	}
	w->sum = w->mean + E;
	w->key = w->sum + E;
	w->x = w->key + E;
	w->columns = w->x + K;
	w->a = w->columns + K * CHOLESKY_COLUMNS;
	if (sketched)
		make_sketch(w->phi, E * K, K, opt->seed, in->layer, in->head);
	return 0;
}

/* w->key <- row s before rotary embedding, less w->mean */
static void
take_key(struct work *w, const struct score_input *in, uint32_t s)
{
	const size_t size = kv_row_bytes(in->key_type, in->width);
	uint32_t e;

	kv_rows_to_f32(w->row, (const char *)in->keys + s * size, in->key_type, in->width, 1);
	unrotate_key(w->key, &w->unrotation, in, w->row, in->rows->pos[0][s]);
	for (e = 0; e < in->width; e++)
		w->key[e] -= w->mean[e];
}

/* w->x <- row s of X */
static void
take_row(struct work *w, const struct score_input *in, uint32_t s)
{
	size_t e, k;

	take_key(w, in, s);
	for (k = 0; k < w->K; k++)
		w->x[k] = w->phi == NULL ? w->key[k] : 0;
	for (e = 0; w->phi != NULL && e < in->width; e++)
		for (k = 0; k < w->K; k++)
			w->x[k] += w->key[e] * w->phi[e * w->K + k];
}

/* w->mean <- the mean of n keys before rotary embedding. w->mean and w->sum must be 0. */
static void
make_mean(struct work *w, const struct score_input *in, uint32_t n)
{
	uint32_t s, e;

	for (s = 0; s < n; s++) {
		take_key(w, in, s);
		for (e = 0; e < in->width; e++)
			w->sum[e] += w->key[e];
	}
	for (e = 0; e < in->width; e++)
		w->mean[e] = w->sum[e] / n;
}

/* w->a <- X'X + ridge, decomposed. If there are keys that are not finite, no form is a number. */
static void
make_gram(struct work *w, const struct score_input *in, uint32_t n)
{
	const size_t K = w->K;
	double ridge, trace;
	uint32_t s;
	size_t i;
	int rc = -1;

	for (ridge = RIDGE, trace = 0; rc != 0 && isfinite(trace); ridge *= 10) {
		for (i = 0; i < K * K; i++)
			w->a[i] = i % (K + 1) == 0 ? ridge : 0;
		for (s = 0; s < n; s++) {
			take_row(w, in, s);
			cholesky_add(w->a, w->x, K, 1);
		}
		for (i = 0, trace = 0; i < K; i++)
			trace += w->a[i * K + i];
		rc = cholesky_decompose(w->a, K);
	}
}

/* method_score() calls this for one KV head at a time. */
int
score_leverage(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint32_t n = in->rows->count[0];
	double form[CHOLESKY_COLUMNS];
	uint32_t at, b, some;
	struct work w;
	size_t k;

	if (alloc_work(&w, in, opt) != 0)
		return -1;
	make_mean(&w, in, n);
	make_gram(&w, in, n);
	for (at = 0; at < n; at += some) {
		some = n - at < CHOLESKY_COLUMNS ? n - at : CHOLESKY_COLUMNS;
		for (b = 0; b < some; b++) {
			take_row(&w, in, at + b);
			for (k = 0; k < w.K; k++)
				w.columns[k * CHOLESKY_COLUMNS + b] = w.x[k];
		}
		cholesky_forms(form, w.a, w.columns, w.K);
		for (b = 0; b < some; b++)
			score[at + b] = (float)form[b];
	}
	free_work(&w);
	return 0;
}

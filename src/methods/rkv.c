/* rkv.c - rows that the last queries attend to, and whose keys few others repeat
 *
 * Cai et al. 2025, "R-KV: Redundancy-aware KV Cache Compression for Training-Free Reasoning Models
 * Acceleration", as the authors' program has it. A row before the window of W queries (8) has
 *
 *     score = lambda importance - (1 - lambda) redundancy,        lambda 0.07 (the paper: 0.1).
 *
 * Importance: for each query the softmax over these rows of the greatest logit among the query
 * heads of the KV head; the mean over the queries; the maximum of `kernel` (7) neighbours.
 * Redundancy: the softmax over all rows of the mean cosine of the row's key with the others'; but
 * of the keys that a key is like (a cosine above 0.5) the last one is forgiven, so that of rows
 * that repeat each other the latest stays. A key that is like none forgives the first row, as in
 * the program. The rows of the window have +inf.
 *
 * For long generations: the authors keep 128 rows and more, and evict after every 128 tokens
 * (kv-decode --every 128).
 *
 * Limits: for each row others are tried until one is like it, so that a text without repetitions
 * costs rows^2 E products. */
#include <math.h>
#include <stdlib.h>

#include "methods/scorers.h"
#include "methods/softmax.h"
#include "methods/squared_length.h"

static const double LIKE = 0.5;

struct work {
	float *key;                     /* [n][E] over their lengths */
	double *sum;                    /* [E] of all keys */
	double *length;                 /* [n] of the keys */
	double *logits;                 /* [n] of one query */
	double *redundancy;             /* [n] */
	float *importance, *pooled;     /* [front] */
};

static void
free_work(struct work *w)
{
	free(w->key);
	free(w->sum);
	free(w->length);
	free(w->logits);
	free(w->redundancy);
	free(w->importance);
	free(w->pooled);
}

static int
alloc_work(struct work *w, size_t n, size_t E)
{
	*w = (struct work){ .key = malloc((n * E + 1) * sizeof *w->key),
	    .sum = calloc(E + 1, sizeof *w->sum), .length = malloc((n + 1) * sizeof *w->length),
	    .logits = malloc((n + 1) * sizeof *w->logits),
	    .redundancy = malloc((n + 1) * sizeof *w->redundancy),
	    .importance = calloc(n + 1, sizeof *w->importance),
	    .pooled = malloc((n + 1) * sizeof *w->pooled) };
	if (w->key != NULL && w->sum != NULL && w->length != NULL && w->logits != NULL &&
	    w->redundancy != NULL && w->importance != NULL && w->pooled != NULL)
		return 0;
	free_work(w);
	return -1;
}

static double
dot(const float *a, const float *b, size_t E)
{
	double sum = 0;
	size_t e;

	for (e = 0; e < E; e++)
		sum += (double)a[e] * b[e];
	return sum;
}

/* Returns whether the product is above LIKE. First in f32, in lanes, which is ten times as fast and
 * off by less than `slack` for rows of length 1. */
static int
is_like(const float *a, const float *b, size_t E)
{
	const float slack = (float)E * 0x1p-22f;
	float lane[8] = { 0 }, sum = 0;
	size_t e, i;

	for (e = 0; e + 8 <= E; e += 8)
		for (i = 0; i < 8; i++)
			lane[i] += a[e + i] * b[e + i];
	for (i = 0; i < 8; i++)
		sum += lane[i];
	for (; e < E; e++)
		sum += a[e] * b[e];
	return sum > (float)LIKE - slack && dot(a, b, E) > LIKE;
}

/* Returns the greatest logit of a key for the query heads of the KV head in one query row. */
static double
greatest_logit(const struct score_input *in, const float *q, const float *key, double length)
{
	const double scale = length / sqrt((double)in->width), cap = in->softcap;
	double most = -INFINITY, x;
	uint32_t r;

	for (r = 0; r < in->query_heads; r++, q += in->width) {
		x = dot(q, key, in->width) * scale;
		x = cap > 0 ? cap * tanh(x / cap) : x;
		most = x > most ? x : most;
	}
	return most;
}

/* w->importance[front] <- the mean softmax of the queries. */
static void
make_importance(struct work *w, const struct score_input *in, uint32_t front)
{
	const size_t E = in->width, row = (size_t)in->queries_heads * E;
	const float *q = in->queries + (size_t)in->head * in->query_heads * E;
	uint32_t i, s, first;

	for (i = 0; i < in->window; i++, q += row) {
		first = in->sees > 0 && in->window_pos[i] >= in->sees ? kv_rows_before(
		    in->rows->pos[0], front, in->window_pos[i] - in->sees + 1) : 0;
		for (s = first; s < front; s++)
			w->logits[s] = greatest_logit(in, q, w->key + s * E, w->length[s]);
		softmax(w->logits + first, front - first);
		for (s = first; s < front; s++)
			w->importance[s] += (float)(w->logits[s] / in->window);
	}
}

/* w->redundancy[n] <- the softmax of the mean cosines. */
static void
make_redundancy(struct work *w, uint32_t n, size_t E)
{
	double *redundancy = w->redundancy, total, cosine;
	uint32_t i, j, like;
	size_t e;

	for (i = 0; i < n; i++) {
		for (total = 0, e = 0; e < E; e++)
			total += w->sum[e] * w->key[i * E + e];
		redundancy[i] = total - dot(w->key + i * E, w->key + i * E, E);
	}
	for (i = 0; i < n; i++) {
		like = 0;
		for (j = n; j-- > 0;)
			if (j != i && is_like(w->key + i * E, w->key + j * E, E)) {
				like = j;
				break;
			}
		cosine = like != i ? dot(w->key + i * E, w->key + like * E, E) : 0;
		redundancy[like] -= cosine;
	}
	for (i = 0; i < n; i++)
		redundancy[i] /= n;
	softmax(redundancy, n);
}

/* w->key <- the keys over their lengths; w->sum <- their sum; w->length <- their lengths. */
static void
take_keys(struct work *w, const struct score_input *in)
{
	const size_t E = in->width, size = kv_row_bytes(in->key_type, E);
	const uint32_t n = in->rows->count[0];
	float *key;
	uint32_t s;
	size_t e;

	for (s = 0; s < n; s++) {
		key = w->key + s * E;
		kv_rows_to_f32(key, (const char *)in->keys + s * size, in->key_type, E, 1);
		w->length[s] = sqrt(squared_length(key, E)) + 1e-8;
		for (e = 0; e < E; e++) {
			key[e] = (float)(key[e] / w->length[s]);
			w->sum[e] += key[e];
		}
	}
}

/* method_score() calls this for one KV head at a time. */
int
score_rkv(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint32_t n = in->rows->count[0];
	const uint32_t front = kv_rows_before(in->rows->pos[0], n, in->window_pos[0]);
	struct work w;
	uint32_t s;

	if (alloc_work(&w, n, in->width) != 0)
		return -1;
	take_keys(&w, in);
	make_importance(&w, in, front);
	pool_rows(w.pooled, w.importance, front, opt->kernel, POOL_MAX);
	make_redundancy(&w, n, in->width);
	for (s = 0; s < front; s++)
		score[s] = (float)(opt->lambda.value * w.pooled[s] -
		    (1 - opt->lambda.value) * w.redundancy[s]);
	for (; s < n; s++)
		score[s] = INFINITY;
	free_work(&w);
	return 0;
}

/* cluster.c - clusters of keys by direction: spherical k-means
 *
 * Lloyd's rounds, as in ClusterKV: a key is assigned to the cluster with the greatest cosine
 * between key and mean, of equal ones the lower; then each mean is that of its unnormalised keys.
 * The length of a key does not affect its assignment, so products with the direction of each mean
 * suffice. The direction of a mean is that in which the sum of the products with its keys is
 * greatest. So both steps increase the sum over all keys of key . direction, or leave it: that is
 * the objective, and the rounds end.
 *
 * Seeds, as in k-means++ (Arthur, Vassilvitskii 2007): a key becomes the next seed with a
 * probability proportional to its deficit, its length less its greatest product with the direction
 * of a seed. k-means++'s own squared distances would be 2 (1 - cosine) for keys of length 1. Seeds
 * are drawn from a sample of equally spaced rows, PER_SEED for each seed: seeding passes over the
 * sample once for each seed, and over all rows it would take longer than the rounds. If no key has
 * a deficit there are no more directions, and fewer clusters than wanted.
 *
 * A cluster that has lost its keys keeps its direction, and may win some again; one without keys
 * at the end is left out.
 *
 * Sums are in the order of the rows, in double precision; the caller computes the products. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/cluster.h"
#include "methods/squared_length.h"

#define PER_SEED 16
#define SAME 1e-5               /* largest deficit of a key in the direction of a seed */
#define PRODUCTS (1u << 20)     /* products at a time, or TILE_LEAST rows */
#define TILE_LEAST 64

struct kmeans {
	const struct cluster_input *in;
	size_t row_size;
	uint32_t n;                     /* clusters */
	uint32_t tile;                  /* rows at a time */
	uint32_t *label;                /* the caller's [rows] */
	double *sum;                    /* [n][E] sum of the keys of each cluster */
	uint32_t *members;              /* [n] */
	float *toward;                  /* [n][E] directions, of length 1 or 0 */
	float *y;                       /* [n][tile] products; or with a sample [its rows] */
	float *best;                    /* [tile] */
	uint32_t *to;                   /* [tile] */
	float *k;                       /* [E] */
};

/* ---- random numbers ---- */

/* SplitMix64 (Steele, Lea, Flood 2014): the finaliser, after a step by its constant */
static uint64_t
mixed(uint64_t z)
{
	z += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

uint64_t
cluster_seed(uint64_t seed, uint32_t layer, uint32_t head, uint32_t first)
{
	return mixed(mixed(mixed(mixed(seed) ^ layer) ^ head) ^ first);
}

/* Returns a random 0 <= x < 1. */
static double
chance(uint64_t *state)
{
	uint64_t z = mixed(*state);

	*state += 0x9e3779b97f4a7c15;
	return (double)(z >> 11) * 0x1p-53;
}

/* ---- products ---- */

static int
slow_products(const struct cluster_input *in, float *k, float *y, const float *x, uint32_t n,
    const char *keys, uint32_t rows)
{
	const size_t E = in->width;
	uint32_t i, t;
	size_t e;

	for (t = 0; t < rows; t++, keys += kv_row_bytes(in->key_type, E)) {
		kv_rows_to_f32(k, keys, in->key_type, E, 1);
		for (i = 0; i < n; i++) {
			y[(size_t)i * rows + t] = 0;
			for (e = 0; e < E; e++)
				y[(size_t)i * rows + t] += x[i * E + e] * k[e];
		}
	}
	return 0;
}

static int
products(const struct kmeans *w, const float *x, uint32_t n, const void *keys, uint32_t rows)
{
	if (w->in->products == NULL)
		return slow_products(w->in, w->k, w->y, x, n, keys, rows);
	return w->in->products(w->in->with, w->y, x, n, keys, rows);
}

/* k[E] <- a key; returns its length */
static double
load_key(float *k, const void *key, const struct cluster_input *in)
{
	kv_rows_to_f32(k, key, in->key_type, in->width, 1);
	return sqrt(squared_length(k, in->width));
}

/* ---- seeds ---- */

/* The rows from which seeds are drawn. */
struct sample {
	uint32_t n;
	char *keys;                     /* [n] of key_type */
	double *length;                 /* [n] */
	double *lack;                   /* [n] */
};

static int
take_sample(struct sample *s, struct kmeans *w)
{
	const struct cluster_input *in = w->in;
	uint64_t most = (uint64_t)PER_SEED * in->clusters;
	uint32_t i;

	s->n = in->rows < most ? in->rows : (uint32_t)most;
	s->keys = malloc(s->n * w->row_size);
	s->length = malloc(s->n * sizeof *s->length);
	s->lack = malloc(s->n * sizeof *s->lack);
	if (s->keys == NULL || s->length == NULL || s->lack == NULL)
		return CLUSTER_ENOMEM;
	for (i = 0; i < s->n; i++) {
		memcpy(s->keys + i * w->row_size, (const char *)in->keys +
		    (uint64_t)i * in->rows / s->n * w->row_size, w->row_size);
		s->length[i] = s->lack[i] = load_key(w->k, s->keys + i * w->row_size, in);
	}
	return CLUSTER_OK;
}

/* Returns an index below s->n, drawn in proportion to the deficits; s->n if all are 0. */
static uint32_t
draw(const struct sample *s, uint64_t *state)
{
	double total = 0, target;
	uint32_t i, last = s->n;

	for (i = 0; i < s->n; i++)
		total += s->lack[i];
	target = chance(state) * total;
	for (i = 0, total = 0; i < s->n; i++) {
		if (s->lack[i] == 0)
			continue;
		last = i;
		if ((total += s->lack[i]) > target)
			break;
	}
	return last;
}

/* w->toward[c] <- the direction of sample i; lowers the deficits accordingly. */
static int
plant(struct kmeans *w, struct sample *s, uint32_t c, uint32_t i)
{
	const uint32_t E = w->in->width;
	float *x = w->toward + (size_t)c * E;
	double lack;
	uint32_t e;

	kv_rows_to_f32(x, s->keys + i * w->row_size, w->in->key_type, E, 1);
	for (e = 0; e < E; e++)
		x[e] = (float)(x[e] / s->length[i]);
	if (products(w, x, 1, s->keys, s->n) != 0)
		return CLUSTER_EDEVICE;
	for (i = 0; i < s->n; i++) {
		lack = s->length[i] - w->y[i];
		if (lack < SAME * s->length[i])
			lack = 0;
		if (c == 0 || lack < s->lack[i])
			s->lack[i] = lack;
	}
	return CLUSTER_OK;
}

/* Sets the directions of w->n seeds, at least one: if all keys are 0, the direction 0. */
static int
plant_seeds(struct kmeans *w)
{
	uint64_t state = w->in->seed;
	struct sample s = { 0 };
	uint32_t i;
	int code = take_sample(&s, w);

	while (code == CLUSTER_OK && w->n < w->in->clusters && (i = draw(&s, &state)) < s.n)
		code = plant(w, &s, w->n++, i);
	if (w->n == 0)
		w->n = 1;
	free(s.keys);
	free(s.length);
	free(s.lack);
	return code;
}

/* ---- rounds ---- */

/* Assigns the rows whose product y with the direction of cluster c exceeds their best one to c. */
static void
compare(float *restrict best, uint32_t *restrict to, const float *restrict y, uint32_t c,
    uint32_t rows)
{
	uint32_t t;
	int more;

	for (t = 0; t < rows; t++) {
		more = y[t] > best[t];
		to[t] = more ? c : to[t];
		best[t] = more ? y[t] : best[t];
	}
}

/* Assigns each key to its cluster. *changed <- whether an assignment changed. */
static int
assign(struct kmeans *w, int *changed)
{
	const struct cluster_input *in = w->in;
	uint32_t from, rows, c, t;

	*changed = 0;
	for (from = 0; from < in->rows; from += rows) {
		rows = in->rows - from < w->tile ? in->rows - from : w->tile;
		if (products(w, w->toward, w->n, (const char *)in->keys + from * w->row_size,
		    rows) != 0)
			return CLUSTER_EDEVICE;
		memset(w->to, 0, rows * sizeof *w->to);
		memcpy(w->best, w->y, rows * sizeof *w->best);
		for (c = 1; c < w->n; c++)
			compare(w->best, w->to, w->y + (size_t)c * rows, c, rows);
		for (t = 0; t < rows; t++)
			*changed |= w->to[t] != w->label[from + t];
		memcpy(w->label + from, w->to, rows * sizeof *w->to);
	}
	return CLUSTER_OK;
}

static void
add_up(struct kmeans *w)
{
	const size_t E = w->in->width;
	const char *key = w->in->keys;
	double *sum;
	uint32_t t;
	size_t e;

	memset(w->sum, 0, w->n * E * sizeof *w->sum);
	memset(w->members, 0, w->n * sizeof *w->members);
	for (t = 0; t < w->in->rows; t++, key += w->row_size) {
		kv_rows_to_f32(w->k, key, w->in->key_type, E, 1);
		sum = w->sum + w->label[t] * E;
		for (e = 0; e < E; e++)
			sum[e] += w->k[e];
		w->members[w->label[t]]++;
	}
}

static void
aim(struct kmeans *w)
{
	const uint32_t E = w->in->width;
	double length, *sum = w->sum;
	uint32_t c, e;

	for (c = 0; c < w->n; c++, sum += E) {
		for (e = 0, length = 0; e < E; e++)
			length += sum[e] * sum[e];
		length = sqrt(length);
		for (e = 0; length > 0 && e < E; e++)
			w->toward[(size_t)c * E + e] = (float)(sum[e] / length);
	}
}

static int
go_round(struct kmeans *w)
{
	uint32_t i;
	int changed, code;

	memset(w->label, 0xff, w->in->rows * sizeof *w->label);
	for (i = 0;; i++) {
		if ((code = assign(w, &changed)) != CLUSTER_OK)
			return code;
		add_up(w);
		if (!changed || i == w->in->iterations)
			return CLUSTER_OK;
		aim(w);
	}
}

/* ---- all of it ---- */

/* mean[] <- the means of the clusters with keys, which are renumbered. Returns their number. */
static uint32_t
finish(struct kmeans *w, char *mean)
{
	const size_t E = w->in->width;
	/* overwrites an array that is not read any more */
	uint32_t *number = w->members, c, t, n = 0;
	size_t e;

	for (c = 0; c < w->n; c++) {
		if (w->members[c] == 0)
			continue;
		for (e = 0; e < E; e++)
			w->k[e] = (float)(w->sum[c * E + e] / w->members[c]);
		kv_from_f32(mean + n * E * kv_dtype_size(w->in->dtype), w->k, w->in->dtype, E);
		number[c] = n++;
	}
	for (t = 0; t < w->in->rows; t++)
		w->label[t] = number[w->label[t]];
	return n;
}

static int
work_start(struct kmeans *w)
{
	const size_t E = w->in->width, C = w->in->clusters;
	const uint64_t sample = (uint64_t)PER_SEED * C;
	size_t y;

	w->tile = C < PRODUCTS / TILE_LEAST ? (uint32_t)(PRODUCTS / C) : TILE_LEAST;
	w->tile = w->tile < w->in->rows ? w->tile : w->in->rows;
	y = C * w->tile;
	y = y > sample ? y : sample;
	w->sum = malloc(C * E * sizeof *w->sum);
	w->members = malloc(C * sizeof *w->members);
	w->toward = calloc(C * E, sizeof *w->toward);
	w->y = malloc(y * sizeof *w->y);
	w->best = malloc(w->tile * sizeof *w->best);
	w->to = malloc(w->tile * sizeof *w->to);
	w->k = malloc(E * sizeof *w->k);
	if (w->sum == NULL || w->members == NULL || w->toward == NULL || w->y == NULL ||
	    w->best == NULL || w->to == NULL || w->k == NULL)
		return CLUSTER_ENOMEM;
	return CLUSTER_OK;
}

static void
work_end(struct kmeans *w)
{
	free(w->sum);
	free(w->members);
	free(w->toward);
	free(w->y);
	free(w->best);
	free(w->to);
	free(w->k);
}

/* Returns the first row whose key is not finite, or the number of rows. */
static uint32_t
not_finite(const struct kmeans *w)
{
	const char *key = w->in->keys;
	uint32_t t;

	for (t = 0; t < w->in->rows; t++, key += w->row_size)
		if (!isfinite(load_key(w->k, key, w->in)))
			return t;
	return t;
}

int
cluster_keys(const struct cluster_input *in, uint32_t *label, void *mean, uint32_t *n)
{
	struct kmeans w = { .in = in, .label = label };
	int code;

	w.row_size = kv_row_bytes(in->key_type, in->width);
	code = work_start(&w);
	if (code == CLUSTER_OK && (*n = not_finite(&w)) < in->rows)
		code = CLUSTER_EKEY;
	if (code == CLUSTER_OK)
		code = plant_seeds(&w);
	if (code == CLUSTER_OK)
		code = go_round(&w);
	if (code == CLUSTER_OK)
		*n = finish(&w, mean);
	work_end(&w);
	return code;
}

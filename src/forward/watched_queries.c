/* watched_queries.c - the attention of the last rows of a stream in one layer
 *
 * For token selection, between two layers: which rows the end of the text attends to in the first
 * one. The queries are kept while that layer runs; the keys are in the cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/layer_by_layer.h"

#define TILE 256                       /* queries of one call of attend() */

static size_t
query_row(const struct model *m)
{
	return (size_t)m->id.query_heads * m->id.head_width;
}

void
prompt_unwatch(struct prompt_stream *s)
{
	const struct model *m = s->sequence->cache->model;
	struct observation *w = &s->watched;

	if (w->q != NULL)
		m->ops->free(m->dev, w->q[s->watched_layer]);
	observation_free(w, m);
	s->watched_capacity = 0;
}

/* Allocates memory for W queries of the watched layer. */
static int
watch_more(struct prompt_stream *s, uint32_t W)
{
	const struct model *m = s->sequence->cache->model;
	struct observation *w = &s->watched;

	prompt_unwatch(s);
	w->on_device = 1;
	w->pos = malloc(W * sizeof *w->pos);
	w->q = calloc(m->id.layers, sizeof *w->q);
	if (w->q != NULL)
		w->q[s->watched_layer] = m->ops->alloc(m->dev, W * query_row(m) * sizeof(float));
	if (w->pos == NULL || w->q == NULL || w->q[s->watched_layer] == NULL) {
		prompt_unwatch(s);
		return MODEL_ENOMEM;
	}
	s->watched_capacity = W;
	return 0;
}

int
prompt_watch(struct prompt_stream *s, uint32_t l, uint32_t W)
{
	struct observation *w = &s->watched;
	float *q;

	if (W > s->watched_capacity && watch_more(s, W) != 0)
		return MODEL_ENOMEM;
	q = w->q[s->watched_layer];
	w->q[s->watched_layer] = NULL;
	w->q[l] = q;
	s->watched_layer = l;
	w->window = w->have = W;
	w->first = s->pos[s->N - W];
	memcpy(w->pos, s->pos + s->N - W, W * sizeof *w->pos);
	return 0;
}

/* Device memory of prompt_mass(). */
struct area {
	float *lse;                    /* [TILE][H] */
	uint32_t *pos;                 /* [TILE] */
	float *mass;                   /* [H][stride] */
	float *norm;                   /* host [TILE][H] */
	size_t stride;
};

static void
free_area(const struct model *m, struct area *a)
{
	m->ops->free(m->dev, a->lse);
	m->ops->free(m->dev, a->pos);
	m->ops->free(m->dev, a->mass);
	free(a->norm);
}

static int
alloc_area(const struct model *m, const struct layer_rows *rows, struct area *a)
{
	size_t H = m->id.query_heads;
	uint32_t g;

	memset(a, 0, sizeof *a);
	for (g = 0; g < rows->heads; g++)
		a->stride = rows->len[g] > a->stride ? rows->len[g] : a->stride;
	a->lse = m->ops->alloc(m->dev, TILE * H * sizeof *a->lse);
	a->pos = m->ops->alloc(m->dev, TILE * sizeof *a->pos);
	a->mass = m->ops->alloc(m->dev, H * a->stride * sizeof *a->mass);
	a->norm = malloc(TILE * H * sizeof *a->norm);
	if (!a->lse || !a->pos || !a->mass || !a->norm) {
		free_area(m, a);
		return MODEL_ENOMEM;
	}
	m->ops->clear(m->dev, a->mass, H * a->stride * sizeof *a->mass);
	return 0;
}

/* Adds the mass of a tile of queries. A query's weight w is put into its log-sum-exp: exp(q.k -
 * (lse - log w)) is w times the attention. So the op makes the weighted sum, without a matrix of
 * queries and rows. */
static void
add_tile(const struct prompt_stream *s, struct area *a, uint32_t at, uint32_t n, double last)
{
	const struct observation *w = &s->watched;
	const struct layer_rows *rows = &s->sequence->cache->layer[s->watched_layer];
	const struct model *m = s->sequence->cache->model;
	const struct ops *o = m->ops;
	uint32_t H = m->id.query_heads, i, h;
	const struct query query = { .q = w->q[s->watched_layer] + at * query_row(m), .pos = a->pos,
		.N = n, .H = H, .window = m->layer[s->watched_layer].window,
		.softcap = (float)m->id.attention_softcap,
		.sinks = m->layer[s->watched_layer].sinks };
	double weight;

	o->put(m->dev, a->pos, w->pos + at, n * sizeof *a->pos);
	o->attend(m->dev, NULL, a->lse, &query, rows);
	if (last != 1) {
		o->get(m->dev, a->norm, a->lse, (size_t)n * H * sizeof *a->norm);
		for (i = 0; i < n; i++) {
			weight = w->have == 1 ? 1 : 1 + (last - 1) * (at + i) / (w->have - 1);
			for (h = 0; h < H; h++)
				a->norm[(size_t)i * H + h] -= (float)log(weight);
		}
		o->put(m->dev, a->lse, a->norm, (size_t)n * H * sizeof *a->norm);
	}
	o->attend_mass(m->dev, a->mass, a->stride, &query, a->lse, rows, QUERIES_SUM);
}

/* The rows of the stream are the last N of each KV head. */
int
prompt_mass(struct prompt_stream *s, double last, float *mass, char *err, size_t errlen)
{
	const struct layer_rows *rows = &s->sequence->cache->layer[s->watched_layer];
	const struct model *m = s->sequence->cache->model;
	uint32_t H = m->id.query_heads, R = H / rows->heads, W = s->watched.have, h, at;
	const char *failure;
	struct area a;

	if (alloc_area(m, rows, &a) != 0) {
		snprintf(err, errlen, "no memory for the attention of %u rows", W);
		return MODEL_ENOMEM;
	}
	for (at = 0; at < W; at += TILE)
		add_tile(s, &a, at, W - at < TILE ? W - at : TILE, last);
	for (h = 0; h < H; h++)
		m->ops->get(m->dev, mass + (size_t)h * s->N,
		    a.mass + h * a.stride + rows->len[h / R] - s->N, s->N * sizeof *mass);
	failure = m->ops->sync(m->dev);
	if (failure != NULL)
		snprintf(err, errlen, "%s", failure);
	free_area(m, &a);
	return failure == NULL ? 0 : MODEL_EIO;
}

/* sum[N] <- the products of q with all keys, on the host in double precision. q: the last watched
 * query, on the host */
static int
products_on_host(const struct prompt_stream *s, const float *q, double *sum)
{
	const struct layer_rows *rows = &s->sequence->cache->layer[s->watched_layer];
	const struct model *m = s->sequence->cache->model;
	size_t E = rows->width, R = m->id.query_heads / rows->heads;
	size_t row = rows_k_bytes(rows), e, r;
	char *keys = malloc(s->N * row);
	float *k = malloc(E * sizeof *k);
	double dot;
	uint32_t g, i;

	for (g = 0; g < rows->heads && keys && k; g++, q += R * E) {
		m->ops->get(m->dev, keys,
		    (char *)rows->k + (rows->start[g] + rows->len[g] - s->N) * row, s->N * row);
		for (i = 0; i < s->N; i++) {
			kv_rows_to_f32(k, keys + i * row, rows_k_type(rows), E, 1);
			for (r = 0, dot = 0; r < R; r++)
				for (e = 0; e < E; e++)
					dot += (double)q[r * E + e] * k[e];
			sum[i] += dot;
		}
	}
	free(keys);
	free(k);
	return g == rows->heads ? 0 : MODEL_ENOMEM;
}

/* As products_on_host(), but products on the device, in f32; only the sum over the query heads is
 * on the host. q: on the device */
static int
products_on_device(const struct prompt_stream *s, const float *q, double *sum)
{
	const struct layer_rows *rows = &s->sequence->cache->layer[s->watched_layer];
	const struct model *m = s->sequence->cache->model;
	const size_t H = m->id.query_heads, N = s->N;
	uint64_t *start = malloc(rows->heads * sizeof *start);
	uint32_t *len = malloc(rows->heads * sizeof *len), g;
	float *on_device = m->ops->alloc(m->dev, H * N * sizeof *on_device);
	float *product = malloc(H * N * sizeof *product);
	const struct query query = { .q = q, .N = 1, .H = (uint32_t)H };  /* no softcap */
	struct layer_rows last = *rows;
	const int rc = start && len && on_device && product ? 0 : MODEL_ENOMEM;
	size_t h, i;

	for (g = 0; rc == 0 && g < rows->heads; g++) {
		start[g] = rows->start[g] + rows->len[g] - s->N;
		len[g] = s->N;
	}
	if (rc == 0) {
		last.start = start;
		last.len = len;
		m->ops->key_scores(m->dev, on_device, N, &query, &last);
		m->ops->get(m->dev, product, on_device, H * N * sizeof *product);
		for (h = 0; h < H; h++)
			for (i = 0; i < N; i++)
				sum[i] += product[h * N + i] * sqrt(rows->width);
	}
	m->ops->free(m->dev, on_device);
	free(product);
	free(start);
	free(len);
	return rc;
}

int
prompt_products(struct prompt_stream *s, float *score, char *err, size_t errlen)
{
	const struct model *m = s->sequence->cache->model;
	const float *q = s->watched.q[s->watched_layer] + (s->watched.have - 1) * query_row(m);
	float *on_host = malloc(query_row(m) * sizeof *on_host);
	double *sum = calloc(s->N, sizeof *sum);
	const char *failure;
	int rc = MODEL_ENOMEM;
	uint32_t i;

	if (on_host != NULL && sum != NULL && m->ops->runs_ahead)
		rc = products_on_device(s, q, sum);
	else if (on_host != NULL && sum != NULL) {
		m->ops->get(m->dev, on_host, q, query_row(m) * sizeof *on_host);
		rc = products_on_host(s, on_host, sum);
	}
	for (i = 0; i < s->N && rc == 0; i++)
		score[i] = (float)sum[i];
	free(on_host);
	free(sum);
	if (rc != 0)
		snprintf(err, errlen, "no memory for the keys of %u rows", s->N);
	else if ((failure = m->ops->sync(m->dev)) != NULL) {
		snprintf(err, errlen, "%s", failure);
		rc = MODEL_EIO;
	}
	return rc;
}

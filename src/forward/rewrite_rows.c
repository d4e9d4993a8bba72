/* rewrite_rows.c - computes rows of a cache again, in their places
 *
 * The new rows of a tile are appended to memory of their own, so that rounding and quantisation are
 * those of every other row, and copied from there to the places of the old ones. Attention of the
 * tile comes after that. Later tiles have higher positions, which earlier ones do not see, so the
 * result does not depend on the size of a tile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/finite.h"
#include "forward/forward_internal.h"
#include "forward/rewrite_rows.h"
#include "ops/compose.h"

struct rewrite_rows {
	struct layer_rows rows;        /* memory for the new rows of a tile, in any layer's types */
	uint32_t N;                    /* of each KV head */
	/* host: [G * N] rows of the layer that are replaced, and by which of the new ones */
	uint64_t *at, *from;
	char *host;                    /* [G * N] new keys or values; NULL with shared memory */
	char *scattered;               /* those that replace others, one after the other */
	const struct cache *cache;
};

/* Returns the bytes of the largest row of any layer. */
static size_t
largest_row(const struct cache *c)
{
	size_t most = 0, k, v;
	uint32_t l;

	for (l = 0; l < c->model->id.layers; l++) {
		k = rows_k_bytes(&c->layer[l]);
		v = rows_v_bytes(&c->layer[l]);
		most = k > most ? k : most;
		most = v > most ? v : most;
	}
	return most;
}

static int
make_memory(struct rewrite_rows *w, uint32_t N)
{
	const struct model *m = w->cache->model;
	const uint32_t G = m->id.kv_heads;
	const size_t n = (size_t)G * N, bytes = n * largest_row(w->cache) + 1;
	uint32_t g;

	w->rows.k = m->ops->alloc(m->dev, bytes);
	w->rows.v = m->ops->alloc(m->dev, bytes);
	w->rows.pos = m->ops->alloc(m->dev, n * sizeof *w->rows.pos + 1);
	w->rows.start = calloc(G, sizeof *w->rows.start);
	w->rows.len = calloc(G, sizeof *w->rows.len);
	w->rows.capacity = calloc(G, sizeof *w->rows.capacity);
	w->at = calloc(n, sizeof *w->at);
	w->from = calloc(n, sizeof *w->from);
	if (w->rows.k == NULL || w->rows.v == NULL || w->rows.pos == NULL ||
	    w->rows.start == NULL || w->rows.len == NULL || w->rows.capacity == NULL ||
	    w->at == NULL || w->from == NULL)
		return MODEL_ENOMEM;
	for (g = 0; g < G; g++) {
		w->rows.start[g] = (uint64_t)g * N;
		w->rows.capacity[g] = N;
	}
	if (m->ops->shares_memory)
		return 0;
	w->host = malloc(bytes);
	w->scattered = malloc(bytes);
	return w->host != NULL && w->scattered != NULL ? 0 : MODEL_ENOMEM;
}

struct rewrite_rows *
rewrite_rows_new(const struct cache *c, uint32_t N)
{
	struct rewrite_rows *w = calloc(1, sizeof *w);

	if (w == NULL)
		return NULL;
	w->cache = c;
	w->N = N;
	if (make_memory(w, N) != 0) {
		rewrite_rows_free(w);
		return NULL;
	}
	return w;
}

void
rewrite_rows_free(struct rewrite_rows *w)
{
	const struct model *m;

	if (w == NULL)
		return;
	m = w->cache->model;
	m->ops->free(m->dev, w->rows.k);
	m->ops->free(m->dev, w->rows.v);
	m->ops->free(m->dev, w->rows.pos);
	free(w->rows.start);
	free(w->rows.len);
	free(w->rows.capacity);
	free(w->at);
	free(w->from);
	free(w->host);
	free(w->scattered);
	free(w);
}

/* w->at, w->from <- the rows of layer l at positions pos[N], and which of the new rows replace
 * them. Returns their number. */
static uint32_t
match_rows(struct rewrite_rows *w, uint32_t l, const uint32_t *pos, uint32_t N)
{
	const struct layer_rows *to = &w->cache->layer[l];
	uint32_t *const *have = w->cache->pos[l];
	uint32_t n = 0, g, s, i;

	for (g = 0; g < to->heads; g++) {
		s = kv_rows_before(have[g], to->len[g], pos[0]);
		for (i = 0; i < N && s < to->len[g]; i++) {
			while (s < to->len[g] && have[g][s] < pos[i])
				s++;
			if (s == to->len[g] || have[g][s] != pos[i])
				continue;
			w->at[n] = to->start[g] + s;
			w->from[n++] = w->rows.start[g] + i;
		}
	}
	return n;
}

/* Copies n new rows, of `bytes` each, to the places of the old ones. */
static void
replace(struct rewrite_rows *w, void *to, const void *from, uint32_t n, size_t bytes)
{
	const struct model *m = w->cache->model;
	char *row = to;
	uint32_t i;

	if (m->ops->shares_memory) {
		for (i = 0; i < n; i++)
			memcpy(row + w->at[i] * bytes, (const char *)from + w->from[i] * bytes,
			    bytes);
		return;
	}
	m->ops->get(m->dev, w->host, from, (size_t)w->rows.heads * w->N * bytes);
	for (i = 0; i < n; i++)
		memcpy(w->scattered + i * bytes, w->host + w->from[i] * bytes, bytes);
	m->ops->put_scattered(m->dev, to, w->at, n, w->scattered, bytes);
}

void
rewrite_rows_append(struct rewrite_rows *w, uint32_t l, float *q, float *k, const float *v,
    const uint32_t *device_pos, const uint32_t *pos, uint32_t N)
{
	const struct model *m = w->cache->model;
	const struct layer_rows *to = &w->cache->layer[l];
	struct layer_rows rows = *to;
	uint32_t n;

	rows.k = w->rows.k;             /* in the types of the layer */
	rows.v = to->v_in_k ? rows.k : w->rows.v;
	rows.pos = w->rows.pos;
	rows.start = w->rows.start;
	rows.len = w->rows.len;
	rows.capacity = w->rows.capacity;
	w->rows.heads = to->heads;
	memset(w->rows.len, 0, to->heads * sizeof *w->rows.len);
	run_rope_append(m->ops, m->dev, &rows, q, k, v, device_pos, m->layer[l].rope, N,
	    m->id.query_heads);
	if ((n = match_rows(w, l, pos, N)) == 0)
		return;
	replace(w, to->k, rows.k, n, rows_k_bytes(to));
	if (!to->v_in_k)
		replace(w, to->v, rows.v, n, rows_v_bytes(to));
}

int
rewrite_rows_run(struct rewrite_rows *w, struct sequence *s, struct workspace *ws, float *x,
    const uint32_t *pos, uint32_t N, uint32_t l0, uint32_t l1, uint64_t done,
    const struct step_hook *step, char *err, size_t errlen)
{
	const struct model *m = s->cache->model;
	const uint32_t tile = ws->rows < w->N ? ws->rows : w->N;
	const char *failure;
	uint32_t at, n;

	for (at = 0; at < N; at += n) {
		struct part part = { .s = s, .pos = pos + at, .rewrite = w };

		n = part.N = N - at < tile ? N - at : tile;
		workspace_use(ws, x + (size_t)at * m->id.hidden);
		m->ops->put(m->dev, ws->pos, pos + at, n * sizeof *pos);
		forward_parts(m, ws, &part, 1, l0, l1);
		workspace_use(ws, NULL);
		if ((failure = m->ops->sync(m->dev)) != NULL) {
			snprintf(err, errlen, "%s", failure);
			return MODEL_EIO;
		}
		if (step != NULL && step->call != NULL)
			step->call(step->with, done + (uint64_t)(at + n) * (l1 - l0));
	}
	s->cache->ran += l0 == 0 ? N : 0;
	return N == 0 ? 0 : check_row(s->cache, ws, x + (size_t)(N - 1) * m->id.hidden, pos[N - 1],
	    l0, l1, err, errlen);
}

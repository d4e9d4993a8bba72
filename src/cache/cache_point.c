/* cache_point.c - a state of a cache to go back to
 *
 * Rows of tokens after the point are the last ones of their KV heads, since positions ascend: going
 * back sets the lengths, and removes what was made of these rows. Attention mass is a sum that
 * cannot be undone, so it is copied. */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_point.h"
#include "cache/cache_recent.h"

/* A copy of a layer's positions, KV head after KV head, and of its mass, query head after query
 * head */
struct point_mass {
	uint32_t *pos;
	float *sum;
	uint32_t *len;                  /* [G] */
};

/* ---- the point ---- */

static int
take_mass(const struct cache *c, uint32_t l, struct point_mass *to)
{
	const struct layer_rows *rows = &c->layer[l];
	const uint32_t R = c->model->id.query_heads / rows->heads;
	size_t total = 0, at = 0;
	uint32_t g, r;

	for (g = 0; g < rows->heads; g++)
		total += rows->len[g];
	to->len = malloc(rows->heads * sizeof *to->len);
	to->pos = malloc(total * sizeof *to->pos + 1);
	to->sum = malloc(total * R * sizeof *to->sum + 1);
	if (to->len == NULL || to->pos == NULL || to->sum == NULL)
		return MODEL_ENOMEM;
	memcpy(to->len, rows->len, rows->heads * sizeof *to->len);
	for (g = 0; g < rows->heads; at += rows->len[g++]) {
		if (rows->len[g] == 0)
			continue;
		memcpy(to->pos + at, c->pos[l][g], rows->len[g] * sizeof *to->pos);
		for (r = 0; r < R; r++)
			c->model->ops->get(c->model->dev, to->sum + at * R + r * rows->len[g],
			    c->mass[l].sum + (g * R + r) * c->mass[l].stride,
			    rows->len[g] * sizeof *to->sum);
	}
	return 0;
}

static int
take_query_stats(const struct cache *c, struct cache_point *to)
{
	const uint32_t L = c->model->id.layers;
	uint32_t l;

	to->query_sums = calloc(L, sizeof *to->query_sums);
	to->queries = malloc(L * sizeof *to->queries);
	if (to->query_sums == NULL || to->queries == NULL)
		return MODEL_ENOMEM;
	memcpy(to->queries, c->query_stats->n, L * sizeof *to->queries);
	for (l = 0; l < L; l++) {
		to->query_sums[l] = malloc(kv_query_stats_numbers(&c->model->id, l) *
		    sizeof **to->query_sums);
		if (to->query_sums[l] == NULL)
			return MODEL_ENOMEM;
		query_stats_get(c->query_stats, c->model, l, to->query_sums[l]);
	}
	return 0;
}

static void
take_clusters(const struct cache *c, uint32_t *to)
{
	uint32_t l, g;

	for (l = 0; l < c->model->id.layers; l++)
		for (g = 0; g < c->model->id.kv_heads; g++) {
			*to++ = c->index[l].end[g];
			*to++ = c->index[l].mean.len[g];
		}
}

int
cache_point_take(struct cache *c, struct cache_point *p)
{
	const struct kv_model *id = &c->model->id;
	const size_t heads = (size_t)id->layers * id->kv_heads;
	uint32_t l;

	*p = (struct cache_point){ .position = c->next_position, .n_tokens = c->n_tokens };
	kv_log_place(&c->log, &p->log);
	if ((p->logged_rows = malloc(heads * sizeof *p->logged_rows)) == NULL ||
	    (c->logits != NULL &&
		(p->logits = malloc(id->vocabulary * sizeof *p->logits)) == NULL) ||
	    (c->index != NULL &&
		(p->clusters = malloc(2 * heads * sizeof *p->clusters)) == NULL) ||
	    (c->mass != NULL && (p->mass = calloc(id->layers, sizeof *p->mass)) == NULL))
		return MODEL_ENOMEM;
	memcpy(p->logged_rows, c->logged_rows, heads * sizeof *p->logged_rows);
	if (p->logits != NULL)
		memcpy(p->logits, c->logits, id->vocabulary * sizeof *p->logits);
	if (p->clusters != NULL)
		take_clusters(c, p->clusters);
	for (l = 0; p->mass != NULL && l < id->layers; l++)
		if (take_mass(c, l, &p->mass[l]) != 0)
			return MODEL_ENOMEM;
	return c->query_stats != NULL ? take_query_stats(c, p) : 0;
}

void
cache_point_free(struct cache_point *p, const struct cache *c)
{
	uint32_t l;

	for (l = 0; p->mass != NULL && l < c->model->id.layers; l++) {
		free(p->mass[l].pos);
		free(p->mass[l].sum);
		free(p->mass[l].len);
	}
	for (l = 0; p->query_sums != NULL && l < c->model->id.layers; l++)
		free(p->query_sums[l]);
	free(p->query_sums);
	free(p->queries);
	free(p->mass);
	free(p->logits);
	free(p->logged_rows);
	free(p->clusters);
	memset(p, 0, sizeof *p);
}

/* ---- going back to it ---- */

/* Restores the mass of the rows of KV head g in its R lists from old[R][n], the mass of the rows at
 * pos[n]; the rows of now are a subset of these. list: scratch [len] */
static void
put_head_mass(struct cache *c, uint32_t l, uint32_t g, const uint32_t *pos, const float *old,
    uint32_t n, float *list)
{
	const uint32_t R = c->model->id.query_heads / c->model->id.kv_heads;
	const uint32_t len = c->layer[l].len[g];
	uint32_t r, i, from;

	for (r = 0; r < R && len > 0; r++, old += n) {
		for (i = from = 0; i < len; i++) {
			while (pos[from] != c->pos[l][g][i])
				from++;
			list[i] = old[from];
		}
		c->model->ops->put(c->model->dev, c->mass[l].sum + (g * R + r) * c->mass[l].stride,
		    list, len * sizeof *list);
	}
}

static int
put_mass(struct cache *c, uint32_t l, const struct point_mass *from)
{
	const uint32_t G = c->model->id.kv_heads, R = c->model->id.query_heads / G;
	const uint32_t *pos = from->pos;
	const float *old = from->sum;
	uint32_t g, most = 0;
	float *list;

	for (g = 0; g < G; g++)
		most = from->len[g] > most ? from->len[g] : most;
	if ((list = malloc(most * sizeof *list + 1)) == NULL)
		return MODEL_ENOMEM;
	for (g = 0; g < G; pos += from->len[g], old += (size_t)R * from->len[g], g++)
		put_head_mass(c, l, g, pos, old, from->len[g], list);
	free(list);
	return 0;
}

/* Sets the mass of rows from .. to-1 to 0, for rows that will be appended there. */
static int
clear_mass(struct cache *c, uint32_t l, uint32_t g, uint32_t from, uint32_t to)
{
	const uint32_t R = c->model->id.query_heads / c->model->id.kv_heads;
	float *none;
	uint32_t r;

	if (c->mass == NULL || from == to)
		return 0;
	if ((none = calloc(to - from, sizeof *none)) == NULL)
		return MODEL_ENOMEM;
	for (r = 0; r < R; r++)
		c->model->ops->put(c->model->dev,
		    c->mass[l].sum + (g * R + r) * c->mass[l].stride + from, none,
		    (to - from) * sizeof *none);
	free(none);
	return 0;
}

static int
cut_rows(struct cache *c, uint32_t l, uint32_t position)
{
	struct layer_rows *rows = &c->layer[l];
	uint32_t g, had;
	int rc = 0;

	for (g = 0; rc == 0 && g < rows->heads; g++) {
		had = rows->len[g];
		while (rows->len[g] > 0 && c->pos[l][g][rows->len[g] - 1] >= position)
			rows->len[g]--;
		rc = clear_mass(c, l, g, rows->len[g], had);
	}
	recent_go_back(rows);
	return rc;
}

/* Logs n tokens that ran one after the other and were not stored, and the evictions meanwhile. */
static int
log_cut(struct cache *c, const struct cache_point *p, uint32_t n)
{
	const struct kv_model *id = &c->model->id;
	struct kv_event e = { KV_EVENT_RUN, p->position, n, 0, id->layers, p->logged_rows,
		p->logged_rows };

	if (!c->logged)
		return 0;
	kv_log_return(&c->log, &p->log);
	memcpy(c->logged_rows, p->logged_rows, (size_t)id->layers * id->kv_heads *
	    sizeof *c->logged_rows);
	if (n > 0 && kv_log_append(&c->log, &e, id->kv_heads) != KV_OK)
		return MODEL_ENOMEM;
	return cache_log(c, KV_EVENT_EVICT, 0, 0, id->layers);
}

int
cache_cut(struct cache *c, struct cache_point *p)
{
	const uint32_t L = c->model->id.layers, G = c->model->id.kv_heads, n = c->next_position -
	    p->position;
	uint32_t l;
	int rc = 0;

	c->next_position = p->position;
	c->n_tokens = p->n_tokens;
	free(c->logits);
	c->logits = p->logits;
	p->logits = NULL;
	for (l = 0; rc == 0 && l < L; l++) {
		rc = cut_rows(c, l, p->position);
		if (rc == 0 && c->index != NULL &&
		    index_cut(&c->index[l], &c->layer[l], p->clusters + 2 * (size_t)l * G) !=
			KV_OK)
			rc = MODEL_ENOMEM;
		if (rc == 0 && p->mass != NULL)
			rc = put_mass(c, l, &p->mass[l]);
		if (rc == 0 && p->query_sums != NULL) {
			query_stats_put(c->query_stats, c->model, l, p->query_sums[l]);
			c->query_stats->n[l] = p->queries[l];
		}
	}
	return rc == 0 ? log_cut(c, p, n) : rc;
}

/* evict_cache.c - one layer of a cache judged and evicted in process */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/opt_evict.h"
#include "engine/evict_cache.h"
#include "engine/readback.h"
#include "engine/score.h"

static const struct method *method;     /* NULL: rows are not judged */

void
eviction_check(const char *score, const char *evict)
{
	size_t n = score != NULL ? strcspn(score, " \t\n") : 0;
	char name[64];

	if (score != NULL) {
		snprintf(name, sizeof name, "%.*s", (int)n, score);
		options_words("score", score + n, scoring_opts);
		method = scoring_check(name);
		if (method->needs & NEED_PROBE_MASS)
			die(EXIT_USAGE, "--score: method %s goes by tokens that are not stored, "
			    "which only kv-observe runs", method->name);
	}
	options_words("evict", evict, evicting_opts);
	evicting_check();
}

unsigned
eviction_needs(void)
{
	return method != NULL ? method->needs : 0;
}

void
eviction_fit(uint32_t layers)
{
	uint32_t l;

	for (l = 0; method == NULL && l < layers; l++)
		if (evicting_needs_scores(l))
			die(EXIT_USAGE, "--evict: layer %u cannot be evicted without scores: give "
			    "--score, too", l);
}

/* ---- a layer, on the host ---- */

/* The keys, packed, for a method that is no op of the device */
static void *
take_keys(const struct cache *c, const struct layer_rows *from, uint64_t total)
{
	size_t row = from->width * kv_dtype_size(from->dtype);
	char *keys = must_alloc(total, row), *at = keys;
	uint32_t g;

	for (g = 0; g < from->heads; at += from->len[g++] * row)
		c->model->ops->get(c->model->dev, at, (char *)from->k + from->start[g] * row,
		    from->len[g] * row);
	return keys;
}

/* The last n queries of the layer, rounded as a snapshot has them: where the device has them, there;
 * else *host <- them, to be freed. */
static void
take_queries(const struct cache *c, const struct observation *obs, struct scoring_layer *layer,
    float **host)
{
	const struct model *m = c->model;
	uint32_t n = layer->in.window;
	size_t size = (size_t)n * m->id.query_heads * m->id.head_width;
	float *q = obs->q[layer->in.layer] + size / n * (obs->have - n);
	void *stored;

	if (obs->there) {
		m->ops->round(m->dev, q, size, c->dtype);
		layer->queries_there = q;
		return;
	}
	stored = must_alloc(size, kv_dtype_size(c->dtype));
	layer->queries = *host = must_alloc(size, sizeof *q);
	kv_from_f32(stored, q, c->dtype, size);
	kv_to_f32(*host, stored, c->dtype, size);
	free(stored);
}

/* ---- judging, dropping ---- */

/* Layers that are begun, number l in place l % FETCHES. */
static struct scoring_layer begun[FETCHES];
static struct kv_rows begun_rows[FETCHES];

void
eviction_begin(const struct cache *c, uint32_t l, const struct observation *obs)
{
	const struct model *m = c->model;
	const struct device device = { m->ops, m->dev };
	struct scoring_layer *layer = &begun[l % FETCHES];
	float *queries = NULL;

	begun_rows[l % FETCHES] = cache_rows(c, l);
	*layer = (struct scoring_layer){ .in = { .layer = l, .query_heads = m->id.query_heads,
	    .width = m->id.head_width, .rows = &begun_rows[l % FETCHES], .dtype = c->dtype,
	    .next_position = c->next_position }, .there = &c->layer[l] };
	if (eviction_needs() & NEED_MASS) {
		layer->mass_there = c->mass[l].sum;
		layer->mass_stride = c->mass[l].stride;
	}
	if (eviction_needs() & NEED_WINDOW) {
		layer->in.window = scoring_window(obs->have, l);
		layer->in.window_pos = obs->pos + obs->have - layer->in.window;
		take_queries(c, obs, layer, &queries);
		if ((layer->n_own = obs->n_own) > 0) {
			layer->own_keys = obs->own[l];
			layer->own_pos = obs->pos + obs->have - obs->n_own;
		}
	}
	if (method != NULL)
		scoring_begin(&device, layer);
	free(queries);
}

/* The scores; to be freed. */
static float *
judge(const struct cache *c, struct scoring_layer *layer)
{
	const struct device device = { c->model->ops, c->model->dev };
	const uint32_t l = layer->in.layer;
	uint64_t total = kv_rows_total(layer->in.rows);
	float *score = must_alloc(total, sizeof *score);
	void *keys = NULL;

	if ((method->needs & NEED_KEYS) && layer->place < 0)
		layer->in.keys = keys = take_keys(c, &c->layer[l], total);
	scoring_finish(&device, layer, score);
	free(keys);
	return score;
}

void
eviction_finish(struct cache *c, uint32_t l)
{
	struct scoring_layer *layer = &begun[l % FETCHES];
	struct evict_input in = { .layer = l, .layers = c->model->id.layers,
	    .rows = layer->in.rows, .next_position = c->next_position,
	    .tokens = (uint32_t)c->n_tokens };
	struct kept kept;
	float *score;

	in.score = score = method != NULL ? judge(c, layer) : NULL;
	evicting_choose(&in, &kept);
	cache_keep(c, l, kept.count, kept.keep);
	kept_free(&kept);
	free(score);
}

void
eviction_all(struct cache *c, const struct observation *obs)
{
	const uint32_t L = c->model->id.layers, behind = c->model->ops->runs_ahead ? FETCHES - 1 : 0;
	uint32_t l;

	for (l = 0; l < L + behind; l++) {
		if (l < L)
			eviction_begin(c, l, obs);
		if (l >= behind && l - behind < L)
			eviction_finish(c, l - behind);
	}
}

void
eviction_warn(const struct cache *c)
{
	char commands[128] = "";
	int kind;

	for (kind = 0; kind < INDEX_KINDS; kind++)
		if (c->index_dropped >> kind & 1) {
			strcat(commands, *commands != '\0' ? ", " : "");
			strcat(commands, index_command(kind));
		}
	if (*commands != '\0')
		warning("indexes of layers whose rows have changed are dropped; what makes them "
		    "anew: %s", commands);
}

void
eviction_end(const struct cache *c)
{
	const struct device device = { c->model->ops, c->model->dev };

	scoring_end(&device);
}

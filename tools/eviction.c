/* eviction.c - one layer of a cache judged and evicted in process */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/evicting.h"
#include "tools/eviction.h"
#include "tools/scoring.h"

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
		if (method->needs & NEED_PAID)
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

/* The keys, packed. */
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

/* What the rows have received: KV head 0's R lists, then KV head 1's, ... */
static float *
take_mass(const struct cache *c, uint32_t l, uint64_t total)
{
	const struct layer_rows *rows = &c->layer[l];
	const struct received *from = &c->mass[l];
	uint32_t H = c->model->id.query_heads, R = H / rows->heads, h;
	float *mass = must_alloc(total * R, sizeof *mass), *at = mass;

	for (h = 0; h < H; at += rows->len[h++ / R])
		c->model->ops->get(c->model->dev, at, from->sum + h * from->stride,
		    rows->len[h / R] * sizeof *at);
	return mass;
}

/* The last n queries, [n][H][E], rounded as a snapshot has them. */
static float *
take_queries(const struct cache *c, uint32_t l, const struct observation *obs, uint32_t n)
{
	size_t row = (size_t)c->model->id.query_heads * c->model->id.head_width;
	float *q = must_alloc(n, row * sizeof *q);
	void *stored = must_alloc(n, row * kv_dtype_size(c->dtype));

	kv_from_f32(stored, obs->q[l] + (obs->have - n) * row, c->dtype, n * row);
	kv_to_f32(q, stored, c->dtype, n * row);
	free(stored);
	return q;
}

/* ---- judging, dropping ---- */

/* The scores of layer l; to be freed. */
static float *
judge(const struct cache *c, uint32_t l, const struct kv_rows *rows, const struct observation *obs)
{
	const struct model *m = c->model;
	const struct device device = { m->ops, m->dev };
	uint64_t total = kv_rows_total(rows);
	float *score = must_alloc(total, sizeof *score), *queries = NULL, *mass = NULL;
	void *keys = NULL;
	struct scoring_layer layer = { .in = { .layer = l, .query_heads = m->id.query_heads,
	    .width = m->id.head_width, .rows = rows, .dtype = c->dtype,
	    .next_position = c->next_position }, .there = &c->layer[l] };

	if (method->needs & NEED_KEYS)
		layer.in.keys = keys = take_keys(c, &c->layer[l], total);
	if (method->needs & NEED_MASS)
		layer.in.mass = mass = take_mass(c, l, total);
	if (method->needs & NEED_WINDOW) {
		layer.in.window = scoring_window(obs->have, l);
		layer.in.window_pos = obs->pos + obs->have - layer.in.window;
		layer.queries = queries = take_queries(c, l, obs, layer.in.window);
		if ((layer.n_own = obs->n_own) > 0) {
			layer.own_keys = obs->own[l];
			layer.own_pos = obs->pos + obs->have - obs->n_own;
		}
	}
	scoring_judge(&device, &layer, score);
	free(keys);
	free(mass);
	free(queries);
	return score;
}

void
eviction_layer(struct cache *c, uint32_t l, const struct observation *obs)
{
	struct evict_input in = { .layer = l, .layers = c->model->id.layers,
	    .next_position = c->next_position, .tokens = (uint32_t)c->n_tokens };
	const struct kv_rows rows = cache_rows(c, l);
	struct kept kept;
	float *score;

	score = method != NULL ? judge(c, l, &rows, obs) : NULL;
	in.rows = &rows;
	in.score = score;
	evicting_choose(&in, &kept);
	cache_keep(c, l, kept.count, kept.keep);
	kept_free(&kept);
	free(score);
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

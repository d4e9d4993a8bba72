/* step_graph.c - steps of decoding as launches of a captured graph */
#include <stdlib.h>
#include <string.h>

#include "model/step_graph.h"

/* The memory of a layer's rows, and how many rows there are */
struct layer_state {
	const void *k, *v, *pos, *mass;
	uint64_t *start;               /* [G] */
	uint32_t *len;                 /* [G] */
};

struct step_graph {
	const struct model *m;
	uint32_t most;
	/* The caches, and [n][L] of them, before the captured step or, without a graph, before the
	 * last step */
	const struct cache **cache;    /* [most] */
	uint32_t n;                    /* 0: none yet */
	struct layer_state *state;
	uint64_t *start;               /* [most][L][G] of all states */
	uint32_t *len;                 /* the same */
	uint32_t graph;                /* for graph_launch(); 0: none */
	int capture_failed;
	uint64_t launches;
};

struct step_graph *
step_graph_new(const struct model *m, uint32_t most)
{
	const size_t layers = (size_t)most * m->id.layers, G = m->id.kv_heads;
	struct step_graph *s = calloc(1, sizeof *s);
	size_t i;

	if (s == NULL)
		return NULL;
	*s = (struct step_graph){ .m = m, .most = most, .cache = calloc(most, sizeof *s->cache),
	    .state = calloc(layers, sizeof *s->state), .start = calloc(layers * G, sizeof *s->start),
	    .len = calloc(layers * G, sizeof *s->len) };
	if (s->cache == NULL || s->state == NULL || s->start == NULL || s->len == NULL) {
		step_graph_free(s);
		return NULL;
	}
	for (i = 0; i < layers; i++) {
		s->state[i].start = s->start + i * G;
		s->state[i].len = s->len + i * G;
	}
	return s;
}

void
step_graph_free(struct step_graph *s)
{
	if (s == NULL)
		return;
	free(s->cache);
	free(s->state);
	free(s->start);
	free(s->len);
	free(s);
}

uint64_t
step_graph_launches(const struct step_graph *s)
{
	return s->launches;
}

int
step_graph_capture_failed(const struct step_graph *s)
{
	return s->capture_failed;
}

/* Can everything that a step does with this cache be captured, where `more` rows have been appended
 * since? Attention mass goes by the lengths of the capture. */
static int
can_capture(const struct cache *c, uint32_t more)
{
	uint32_t l;

	if (c->probe_mass != NULL || c->retrieval != NULL || c->head != NULL ||
	    (c->mass != NULL && more > 0))
		return 0;
	for (l = 0; c->index != NULL && l < c->model->id.layers; l++)
		if (c->index[l].present != 0)
			return 0;
	return 1;
}

static const void *
mass_of(const struct cache *c, uint32_t l)
{
	return c->mass != NULL ? c->mass[l].sum : NULL;
}

static void
save_state(struct step_graph *s, const struct step *step)
{
	const uint32_t L = s->m->id.layers;
	uint32_t i, l;

	for (i = 0; i < step->n; i++) {
		s->cache[i] = step->cache[i];
		for (l = 0; l < L; l++) {
			const struct layer_rows *rows = &step->cache[i]->layer[l];
			struct layer_state *to = &s->state[(size_t)i * L + l];

			to->k = rows->k;
			to->v = rows->v;
			to->pos = rows->pos;
			to->mass = mass_of(step->cache[i], l);
			memcpy(to->start, rows->start, rows->heads * sizeof *to->start);
			memcpy(to->len, rows->len, rows->heads * sizeof *to->len);
		}
	}
	s->n = step->n;
}

/* Is the layer as save_state() found it, but for so many rows more of each KV head? */
static int
layer_holds(const struct layer_state *was, const struct layer_rows *rows, const void *mass,
    uint32_t more)
{
	uint32_t g;

	if (rows->k != was->k || rows->v != was->v || rows->pos != was->pos || mass != was->mass ||
	    memcmp(rows->start, was->start, rows->heads * sizeof *was->start) != 0)
		return 0;
	for (g = 0; g < rows->heads; g++)
		if (rows->len[g] < was->len[g] || rows->len[g] - was->len[g] != more)
			return 0;
	return 1;
}

/* Are the caches as save_state() found them, but that all KV heads of all layers have *more rows
 * more, and can their step be captured? */
static int
state_holds(const struct step_graph *s, const struct step *step, uint32_t *more)
{
	const uint32_t L = s->m->id.layers;
	uint32_t i, l;

	if (s->n == 0 || s->n != step->n)
		return 0;
	*more = step->cache[0]->layer[0].len[0] - s->len[0];
	for (i = 0; i < s->n; i++) {
		const struct cache *c = step->cache[i];

		if (c != s->cache[i] || !can_capture(c, *more))
			return 0;
		for (l = 0; l < L; l++)
			if (!layer_holds(&s->state[(size_t)i * L + l], &c->layer[l], mass_of(c, l),
			    *more))
				return 0;
	}
	return 1;
}

/* Captures a step. The ops have counted its rows on the host, which is taken back: the step has not
 * run yet. */
static void
capture(struct step_graph *s, const struct step *step)
{
	const uint32_t L = s->m->id.layers;
	uint32_t i, l;

	save_state(s, step);
	if (s->m->ops->graph_begin(s->m->dev)) {
		step->run(step->with);
		s->graph = s->m->ops->graph_end(s->m->dev, step->pos);
		for (i = 0; i < step->n; i++)
			for (l = 0; l < L; l++)
				memcpy(step->cache[i]->layer[l].len, s->state[(size_t)i * L + l].len,
				    s->m->id.kv_heads * sizeof(uint32_t));
	}
	s->capture_failed = s->graph == 0;
}

/* What the ops of a step do on the host */
static void
count_rows(const struct step *step, const struct model *m)
{
	uint32_t i, l, g;

	for (i = 0; i < step->n; i++)
		for (l = 0; l < m->id.layers; l++) {
			struct cache *c = step->cache[i];

			cache_expect(c, l, &c->next_position, 1);
			for (g = 0; g < m->id.kv_heads; g++)
				c->layer[l].len[g]++;
		}
}

int
step_graph_launch(struct step_graph *s, const struct step *step)
{
	uint32_t more;

	if (s->m->ops->graph_begin == NULL || s->capture_failed || !state_holds(s, step, &more))
		return 0;
	if (s->graph == 0) {
		capture(s, step);
		more = 0;
	}
	if (s->graph == 0 || !s->m->ops->graph_launch(s->m->dev, s->graph, more))
		return 0;
	count_rows(step, s->m);
	s->launches++;
	return 1;
}

void
step_graph_note(struct step_graph *s, const struct step *step)
{
	save_state(s, step);
	s->graph = 0;
}

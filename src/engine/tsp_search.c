/* tsp_search.c - searches for the best layer of token-selective propagation
 *
 * FastKV (methods/tsp.c), equation 3: over some prompts, the layer at which TSP changes the final
 * hidden state least, in mean squared L2 norm. The paper's authors published no code for it, and
 * the paper does not say which hidden states it means. Here: those after the final norm, from which
 * the model's output is computed; the choice is by the last token, which every run has, and the
 * table also has the mean over all tokens that go on.
 *
 * Each layer's keys and values are dropped before the next one runs, so that memory holds one
 * layer, two residual streams, and the final states. */
#include <math.h>
#include <stdlib.h>

#include "engine/tsp_search.h"

/* A running search */
struct search {
	const struct tsp_search *t;
	struct sequence s;
	struct workspace *ws;
	uint64_t passes;                /* passes done */
	struct engine_error *e;         /* gets the failures of all functions with this struct */
};

uint32_t
tsp_search_max(const struct tsp_search *t, const struct model *m)
{
	return t->max_layer != TSP_HALF ? t->max_layer : m->id.layers / 2;
}

int
tsp_search_fit(const struct tsp_search *t, const struct model *m, size_t n, struct engine_error *e)
{
	uint32_t l;

	if (t->max_layer != TSP_HALF && t->max_layer >= m->id.layers)
		return engine_fail(e, ENGINE_EOPTION,
		    "--max-layer %u: the model has layers 0 to %u", t->max_layer, m->id.layers - 1);
	for (l = 0; l <= tsp_search_max(t, m); l++)
		if (token_select_at(m, l, n))
			return tsp_fit(&t->tsp, n, e);
	return token_select_sees(m, 0, 1, n, "tsp", e);
}

void
tsp_search_demand(const struct model *m, size_t n, struct memory_demand *d)
{
	d->rows = (uint64_t)n * m->id.kv_heads;
	d->stream = n;
}

uint64_t
tsp_search_total(const struct tsp_search *t, const struct model *m, size_t prompts, size_t longest)
{
	const uint32_t max = tsp_search_max(t, m), L = m->id.layers;
	uint64_t passes = L;
	uint32_t l;

	for (l = 0; l <= max; l++)
		if (token_select_at(m, l, longest))
			passes += L - l - 1;
	return passes * prompts;
}

/* ---- passes ---- */

/* Runs layers l0 .. l1-1, and drops their keys and values. */
static int
pass(struct search *h, struct prompt_stream *s, uint32_t l0, uint32_t l1)
{
	uint32_t l;
	int rc = ENGINE_OK;

	for (l = l0; rc == ENGINE_OK && l < l1; l++) {
		rc = engine_ran(h->e, prompt_run(s, h->ws, l, l + 1, NULL, h->e->text,
		    sizeof h->e->text));
		if (rc == ENGINE_OK)
			rc = engine_ran(h->e, cache_clear(h->s.cache));
		h->passes++;
		if (rc == ENGINE_OK && h->t->step.call != NULL)
			h->t->step.call(h->t->step.with, h->passes);
	}
	return rc;
}

/* Returns the states [N][D] after the final norm, to be freed; the stream cannot be used
 * afterwards. */
static float *
final_states(struct search *h, struct prompt_stream *s)
{
	const struct model *m = h->s.cache->model;
	const uint32_t D = m->id.hidden;
	float *states = engine_alloc((size_t)s->N * D, sizeof *states, h->e);
	const char *failure;

	if (states == NULL)
		return NULL;
	run_norm(m->ops, m->dev, s->x, s->x, &m->norm, s->N, D);
	m->ops->get(m->dev, states, s->x, (size_t)s->N * D * sizeof *states);
	if ((failure = m->ops->sync(m->dev)) != NULL) {
		engine_fail(h->e, ENGINE_ERUN, "%s", failure);
		free(states);
		return NULL;
	}
	return states;
}

static double
squared_distance(const float *a, const float *b, uint32_t D)
{
	double sum = 0, d;
	uint32_t i;

	for (i = 0; i < D; i++) {
		d = (double)a[i] - b[i];
		sum += d * d;
	}
	return sum;
}

/* ---- TSP at one layer ---- */

/* Runs rows keep[k] of s from layer l to the end, and adds the distance of their final states from
 * full[N][D], those without TSP. */
static int
follow(struct search *h, const struct prompt_stream *s, uint32_t l, const uint32_t *keep,
    uint32_t k, const float *full, struct tsp_distance *to)
{
	const uint32_t D = h->s.cache->model->id.hidden;
	struct prompt_stream branch;
	double far = 0, sum = 0;
	float *states = NULL;
	uint32_t i;
	int rc = engine_ran(h->e, prompt_branch(s, &branch, keep, k));

	if (rc != ENGINE_OK)
		return rc;
	rc = pass(h, &branch, l, h->s.cache->model->id.layers);
	if (rc == ENGINE_OK && (states = final_states(h, &branch)) == NULL)
		rc = h->e->code;
	for (i = 0; rc == ENGINE_OK && i < k; i++) {
		far = squared_distance(full + (size_t)keep[i] * D, states + (size_t)i * D, D);
		sum += far;
	}
	to->last += far;
	to->surviving += sum / k;
	prompt_close(&branch);
	free(states);
	return rc;
}

/* Runs layer l, before which s is, and adds the error of TSP there if it is tried; full[N][D]:
 * final states without TSP */
static int
try_layer(struct search *h, struct prompt_stream *s, uint32_t l, const float *full,
    struct tsp_distance *to)
{
	const uint32_t k = tsp_rows(&h->t->tsp, s->N);
	uint32_t *keep = NULL;
	int rc = ENGINE_OK;

	if (to->tried)
		rc = engine_ran(h->e, prompt_watch(s, l, h->t->tsp.window));
	if (rc == ENGINE_OK)
		rc = engine_ran(h->e, prompt_run(s, h->ws, l, l + 1, NULL, h->e->text,
		    sizeof h->e->text));
	if (rc == ENGINE_OK && to->tried)
		rc = tsp_select(&h->t->tsp, s, k, &keep, h->e);
	if (rc == ENGINE_OK)
		rc = engine_ran(h->e, cache_clear(h->s.cache));
	if (rc == ENGINE_OK && to->tried)
		rc = follow(h, s, l + 1, keep, k, full, to);
	free(keep);
	return rc;
}

/* ---- a prompt ---- */

/* *full <- the final states without TSP; to be freed. */
static int
run_full(struct search *h, const struct prompt *p, float **full)
{
	struct prompt_stream s;
	int rc = engine_ran(h->e, prompt_open(&s, &h->s, NULL, p->ids, p->n, h->e->text,
	    sizeof h->e->text));

	if (rc != ENGINE_OK)
		return rc;
	rc = pass(h, &s, 0, h->s.cache->model->id.layers);
	if (rc == ENGINE_OK && (*full = final_states(h, &s)) == NULL)
		rc = h->e->code;
	prompt_close(&s);
	return rc;
}

static int
try_prompt(struct search *h, const struct prompt *p, uint32_t max, struct tsp_distance *to)
{
	struct prompt_stream s = { .sequence = NULL };
	float *full = NULL;
	uint32_t l;
	int rc;

	h->s.cache->n_tokens = 0;
	rc = run_full(h, p, &full);
	if (rc == ENGINE_OK)
		rc = engine_ran(h->e, prompt_open(&s, &h->s, NULL, p->ids, p->n, h->e->text,
		    sizeof h->e->text));
	for (l = 0; rc == ENGINE_OK && l <= max; l++)
		rc = try_layer(h, &s, l, full, &to[l]);
	prompt_close(&s);
	if (rc == ENGINE_OK)
		rc = engine_ran(h->e, cache_clear(h->s.cache));
	free(full);
	return rc;
}

/* Returns the first layer that was tried within (1 + tolerance) times the least distance. */
static uint32_t
choose(const struct tsp_distance *d, uint32_t max, double tolerance)
{
	double least = INFINITY;
	uint32_t l;

	for (l = 0; l <= max; l++)
		least = d[l].tried && d[l].last < least ? d[l].last : least;
	for (l = 0; l < max && !(d[l].tried && d[l].last <= (1 + tolerance) * least); l++)
		;
	return l;
}

int
tsp_search_run(const struct tsp_search *t, const struct model *m, struct workspace *ws,
    enum kv_dtype dtype, const struct prompt *prompts, size_t n, struct tsp_distance *distance,
    uint32_t *chosen, struct engine_error *e)
{
	const uint32_t max = tsp_search_max(t, m);
	struct search h = { .t = t, .s = { .cache = cache_new(m, dtype) }, .ws = ws, .e = e };
	uint32_t l;
	size_t i, longest = 0;
	int rc = ENGINE_OK;

	if (h.s.cache == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for the cache");
	h.s.cache->logged = 0;
	e->text[0] = '\0';
	for (i = 0; i < n; i++)
		longest = prompts[i].n > longest ? prompts[i].n : longest;
	for (l = 0; l <= max; l++)
		distance[l] = (struct tsp_distance){ .tried = token_select_at(m, l, longest) };
	for (i = 0; rc == ENGINE_OK && i < n; i++)
		rc = try_prompt(&h, &prompts[i], max, distance);
	for (l = 0; l <= max; l++) {
		distance[l].last /= (double)n;
		distance[l].surviving /= (double)n;
	}
	if (rc == ENGINE_OK)
		*chosen = choose(distance, max, t->tolerance);
	sequence_free(&h.s);
	return rc;
}

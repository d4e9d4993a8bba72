/* observe.c - runs probe tokens on a cache without storing them */
#include <stdlib.h>
#include <string.h>

#include "engine/device_memory.h"
#include "engine/observe.h"
#include "forward/forward.h"
#include "forward/probe_mass.h"
#include "model/adapter.h"

#define REPEATED_BEFORE 8       /* how many tokens of the chunk before run before a chunk */

/* ---- sizes ---- */

/* Returns how many tokens of the chunk before run before a chunk that is not the first. */
static uint32_t
leading(const struct observe_options *o)
{
	return o->chunk < REPEATED_BEFORE ? o->chunk : REPEATED_BEFORE;
}

size_t
observe_longest(const struct observe_options *o, uint32_t next_position, size_t n)
{
	const uint32_t context = next_position > o->sink ? next_position - o->sink : 0;

	if (!o->repeat)
		return n;
	return n + (context <= o->chunk ? context : (size_t)o->chunk + leading(o));
}

uint64_t
observe_total(const struct observe_options *o, uint32_t next_position, size_t n)
{
	const uint64_t context = next_position - o->sink;
	const uint64_t chunks = (context + o->chunk - 1) / o->chunk;

	return o->repeat ? context + chunks * n + (chunks - 1) * leading(o) : n;
}

uint32_t
observe_rows(const struct ops *ops, size_t n)
{
	const uint32_t most = ops_tile(ops);

	return n < most ? (uint32_t)n : most;
}

int
observe_check(const struct observe_options *o, const struct cache *c, const char *name,
    struct engine_error *e)
{
	const uint32_t vocabulary = c->model->id.vocabulary;
	size_t i;

	if (c->n_tokens != c->next_position)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: %zu tokens, but the next position "
		    "is %u: the text cannot be repeated, because the tokens' positions are unknown",
		    name, c->n_tokens, c->next_position);
	if (c->n_tokens <= o->sink)
		return engine_fail(e, ENGINE_ERUN, "%s: %zu tokens, of which the first %u are "
		    "not repeated: nothing is left", name, c->n_tokens, o->sink);
	for (i = 0; i < c->n_tokens; i++)
		if (c->tokens[i] >= vocabulary)
			return engine_fail(e, ENGINE_EDAMAGED, "%s: token %zu is %u, and the "
			    "vocabulary ends before %u", name, i, c->tokens[i], vocabulary);
	return ENGINE_OK;
}

/* ---- runs ---- */

struct runs {
	struct sequence *s;
	const struct observe_options *o;
	struct workspace *ws;
	struct observation *obs;
	const struct step_hook *step;
	size_t done;                    /* tokens of the runs before */
};

static void
show(void *with, uint64_t done)
{
	const struct runs *r = with;

	if (r->step != NULL)
		r->step->call(r->step->with, r->done + done);
}

static int
run(struct runs *r, const uint32_t *ids, size_t n, struct engine_error *e)
{
	const struct step_hook step = { show, r };
	struct cache *c = r->s->cache;
	const struct model *m = c->model;
	char err[512] = "";
	int rc;

	if (r->o->adapter != NULL)
		rc = run_unstored_embeddings(m, r->s, r->ws, r->o->adapter->embedding, n,
		    r->o->adapter, r->obs, &step, err, sizeof err);
	else
		rc = run_unstored(m, r->s, r->ws, ids, n, r->obs, &step, err, sizeof err);
	if (rc != 0)
		return engine_fail_model(e, rc, err);
	if (cache_log(c, KV_EVENT_RUN, (uint32_t)n, 0, m->id.layers) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for the event log");
	r->done += n;
	return ENGINE_OK;
}

/* As run(), and adds mass to rows at positions from .. to-1. */
static int
run_for_mass(struct runs *r, const uint32_t *ids, size_t n, uint32_t from, uint32_t to,
    struct engine_error *e)
{
	struct probe_mass *mass = r->s->probe_mass;
	const struct cache *c = r->s->cache;

	if (probe_mass_begin(mass, c, r->o->repeat ? r->o->sink : 0, from, to) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for the attention mass of positions "
		    "%u to %u", from, to);
	if (run(r, ids, n, e) != ENGINE_OK)
		return e->code;
	probe_mass_end(mass, c);
	return ENGINE_OK;
}

/* After the last range: weighs the mass by the norms of value outputs, if that is asked for. */
static int
weigh(const struct runs *r, struct engine_error *e)
{
	const struct cache *c = r->s->cache;
	const struct device d = { c->model->ops, c->model->dev };

	if (!r->o->weigh)
		return ENGINE_OK;
	if (probe_mass_times_norms(r->s->probe_mass, c) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for norms of value outputs");
	return device_synced(&d, e);
}

/* Runs the context after the sinks, chunk by chunk. ids: room for the longest run, begins with the
 * n tokens that ask. */
static int
run_context(struct runs *r, uint32_t *ids, size_t n, struct engine_error *e)
{
	const uint32_t T = r->s->cache->next_position;
	uint32_t at, own, before;

	for (at = r->o->sink; at < T; at += own) {
		own = T - at < r->o->chunk ? T - at : r->o->chunk;
		before = at == r->o->sink ? 0 : leading(r->o);
		memcpy(ids + n, r->s->cache->tokens + at - before, (before + own) * sizeof *ids);
		if (run_for_mass(r, ids, n + before + own, at, at + own, e) != ENGINE_OK)
			return e->code;
	}
	if (weigh(r, e) != ENGINE_OK)
		return e->code;
	probe_mass_keep_sinks(r->s->probe_mass, r->s->cache);
	return ENGINE_OK;
}

static int
repeat_context(struct runs *r, const uint32_t *asking, size_t n, struct engine_error *e)
{
	const size_t longest = observe_longest(r->o, r->s->cache->next_position, n);
	uint32_t *ids = engine_alloc(longest, sizeof *ids, e);
	int rc;

	if (ids == NULL)
		return e->code;
	if (n > 0)
		memcpy(ids, asking, n * sizeof *ids);
	rc = run_context(r, ids, n, e);
	free(ids);
	return rc;
}

int
observe(struct sequence *s, const struct observe_options *o, const uint32_t *ids, size_t n,
    struct observation *obs, const struct step_hook *step, size_t *ran, struct engine_error *e)
{
	const struct cache *c = s->cache;
	const uint32_t rows = observe_rows(c->model->ops,
	    observe_longest(o, c->next_position, n));
	struct runs r = { .s = s, .o = o, .ws = workspace_new(c->model, rows), .obs = obs,
	    .step = step };
	int rc;

	if (r.ws == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory to run the model");
	if (o->mass && (s->probe_mass = probe_mass_new(c, o->over, rows)) == NULL)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for attention mass");
	else if (o->weigh && probe_mass_weigh(s->probe_mass, c, rows) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for attention mass");
	else if (o->repeat)
		rc = repeat_context(&r, ids, n, e);
	else if (o->mass)
		rc = run_for_mass(&r, ids, n, 0, UINT32_MAX, e) == ENGINE_OK ? weigh(&r, e) :
		    e->code;
	else
		rc = run(&r, ids, n, e);
	workspace_free(r.ws, c->model);
	*ran = r.done;
	return rc;
}

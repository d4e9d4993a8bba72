/* prefill_layers.c - layer by layer: each layer sees all tokens and is evicted before the next
 * one fills, or the one after that (prefill_behind()) */
#include "engine/prefill_internal.h"
#include "model/prompt_stream.h"

/* The queries of a layer that are to be saved, where nothing overwrites them until they are read.
 * */
struct saved {
	float *q;                       /* device [n][H][E]; NULL = none */
	size_t n, row;                  /* queries, floats of each */
	uint64_t copied;                /* the event after which they are there */
};

static int
begin_layer(struct prefill_run *r, struct prompt_stream *s, struct saved *saved, uint32_t l)
{
	const struct model *m = r->c->model;
	const struct observation *w = &s->watched;
	int rc = evict_cache_begin(&r->p->evict, r->c, l, w->q != NULL ? w : r->obs, r->e);

	if (rc != ENGINE_OK || saved->q == NULL)
		return rc;
	m->ops->copy(m->dev, saved->q, w->q[l] + (w->have - saved->n) * saved->row,
	    saved->n * saved->row * sizeof *saved->q);
	saved->copied = m->ops->event_record(m->dev);
	return ENGINE_OK;
}

static int
finish_layer(struct prefill_run *r, const struct saved *saved, uint32_t l)
{
	struct cache *c = r->c;
	const struct device d = { c->model->ops, c->model->dev };
	struct observation *obs = r->obs;
	int rc = evict_cache_finish(&r->p->evict, c, l, r->e);

	if (rc == ENGINE_OK)
		rc = prefill_log_eviction(r, l, l + 1);
	if (rc == ENGINE_OK && r->p->schedule == PREFILL_LAYERS &&
	    cache_trim(c, l, l + 1 + prefill_behind(c->model)) != 0)
		rc = engine_fail(r->e, ENGINE_ERUN, "no memory to move layer %u", l);
	if (rc != ENGINE_OK || saved->q == NULL)
		return rc;
	if ((rc = device_waited(&d, saved->copied, r->e)) == ENGINE_OK)
		d.ops->get_side(d.dev, obs->q[l] + (obs->have - saved->n) * saved->row, saved->q,
		    saved->n * saved->row * sizeof *saved->q);
	return rc;
}

/* When these tokens bring all queries of the window, the device keeps those of one layer, instead
 * of the stream those of all: nobody waits for them. The next chunk may want them again. */
static int
open_stream(struct prefill_run *r, struct prompt_stream *s, struct saved *saved,
    const uint32_t *ids, size_t n)
{
	const struct model *m = r->c->model;
	struct observation *obs = r->obs;
	const int watch = obs != NULL && obs->window <= n;
	int rc;

	if (watch)
		observation_expect(obs, m, r->c->next_position, n);
	rc = prompt_open(s, r->c, watch ? NULL : obs, ids, n, r->e->text, sizeof r->e->text);
	if (rc != 0)
		return prefill_ran(r, rc);
	saved->n = !watch ? 0 : r->p->schedule == PREFILL_CHUNKS ? obs->window : r->p->observe;
	if (saved->n == 0)
		return ENGINE_OK;
	saved->row = (size_t)m->id.query_heads * m->id.head_width;
	saved->q = m->ops->alloc(m->dev, saved->n * saved->row * sizeof *saved->q);
	if (saved->q != NULL)
		return ENGINE_OK;
	prompt_close(s);
	return engine_fail(r->e, ENGINE_ERUN, "no memory for %zu observation queries", saved->n);
}

/* Layer l runs, and it or the one before is evicted. */
static int
pass_layer(struct prefill_run *r, struct prompt_stream *s, struct saved *saved, uint32_t l,
    const struct step_hook *step)
{
	const struct observation *obs = r->obs;
	const uint32_t behind = prefill_behind(r->c->model);
	int rc;

	if (obs != NULL && s->obs == NULL && prompt_watch(s, l, obs->window) != 0)
		return engine_fail(r->e, ENGINE_ERUN, "no memory for %u observation queries",
		    obs->window);
	rc = prefill_ran(r, prompt_run(s, r->ws, l, l + 1, step, r->e->text, sizeof r->e->text));
	if (rc == ENGINE_OK && behind && l > 0)
		rc = finish_layer(r, saved, l - 1);
	if (rc == ENGINE_OK)
		rc = begin_layer(r, s, saved, l);
	if (rc == ENGINE_OK && (!behind || l + 1 == r->c->model->id.layers))
		rc = finish_layer(r, saved, l);
	return rc;
}

int
prefill_pass_layers(struct prefill_run *r, const uint32_t *ids, size_t n,
    const struct step_hook *step, int last)
{
	const struct model *m = r->c->model;
	struct saved saved = { .q = NULL };
	struct prompt_stream s;
	uint32_t l;
	int rc = open_stream(r, &s, &saved, ids, n);

	if (rc != ENGINE_OK)
		return rc;
	for (l = 0; rc == ENGINE_OK && l < m->id.layers; l++)
		rc = pass_layer(r, &s, &saved, l, step);
	if (rc == ENGINE_OK && last)
		rc = prefill_ran(r, prompt_logits(&s, r->ws, r->e->text, sizeof r->e->text));
	m->ops->free(m->dev, saved.q);
	prompt_close(&s);
	return rc;
}

int
prefill_by_layers(struct prefill_run *r, const uint32_t *ids, size_t n)
{
	const struct step_hook *step = r->p->step.call != NULL ? &r->p->step : NULL;

	prefill_since(r, r->c->next_position);
	return prefill_pass_layers(r, ids, n, step, 1);
}

/* prefill_layers.c - layer by layer: each layer runs all tokens, or those that were selected before
 * it, and is evicted before the next one fills, or the one after that (prefill_behind()) */
#include <stdlib.h>

#include "engine/prefill_internal.h"
#include "forward/layer_by_layer.h"

/* A copy of the queries of a layer to save, which nothing overwrites until they are read */
struct saved {
	float *q;                       /* device [n][H][E]; NULL = none */
	size_t n, row;                  /* queries, floats of each */
	uint64_t copied;                /* the event after the copy */
};

static int
begin_layer(struct prefill_run *r, struct prompt_stream *s, struct saved *saved, uint32_t l)
{
	const struct model *m = r->s->cache->model;
	const struct observation *w = &s->watched, *scoring = w->q != NULL ? w : r->obs;
	int rc = evict_cache_begin(&r->p->evict, r->s->cache, l,
	    r->learned != NULL ? &r->learned->obs : scoring, r->e);

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
	struct cache *c = r->s->cache;
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

/* Opens the stream. If all queries of the window are in these tokens and layers are evicted, only
 * one layer's are kept, on the device, because each layer is scored right after it ran. The next
 * chunk may need those of all layers again. */
static int
open_stream(struct prefill_run *r, struct prompt_stream *s, struct saved *saved,
    const uint32_t *ids, size_t n)
{
	const struct model *m = r->s->cache->model;
	struct observation *obs = r->obs;
	const int watch = r->p->schedule != PREFILL_PLAIN && obs != NULL && obs->window <= n;
	int rc;

	if (watch)
		observation_expect(obs, m, r->s->cache->next_position, n);
	rc = prompt_open(s, r->s, watch ? NULL : obs, ids, n, r->e->text, sizeof r->e->text);
	if (rc != 0)
		return engine_ran(r->e, rc);
	if (r->p->select.rule == TOKENS_GEMFILTER)
		r->s->cache->n_tokens -= n;    /* the first run has added them already */
	saved->n = !watch ? 0 : r->p->schedule == PREFILL_CHUNKS ? obs->window : r->p->observe;
	if (saved->n == 0)
		return ENGINE_OK;
	saved->row = (size_t)m->id.query_heads * m->id.head_width;
	saved->q = m->ops->alloc(m->dev, saved->n * saved->row * sizeof *saved->q);
	if (saved->q != NULL)
		return ENGINE_OK;
	return engine_fail(r->e, ENGINE_ERUN, "no memory for %zu observation queries", saved->n);
}

/* Has the stream, which began with n rows, keep the queries of layer l that score it, and the last
 * `window` that select tokens. If a layer is scored after the next one ran, it still reads their
 * positions, so these must be the same in all layers. */
static int
watch_layer(struct prefill_run *r, struct prompt_stream *s, uint32_t l, uint32_t window, size_t n)
{
	if (r->obs != NULL && s->obs == NULL) {
		window = token_select_window(&r->p->select, n);
		if (window < r->obs->window)
			window = r->obs->window;
	}
	if (window == 0 || prompt_watch(s, l, window) == 0)
		return ENGINE_OK;
	return engine_fail(r->e, ENGINE_ERUN, "no memory for %u observation queries", window);
}

/* Begins the eviction of layer l, which has run, and finishes that of this layer or of the one
 * before. */
static int
evict_layer(struct prefill_run *r, struct prompt_stream *s, struct saved *saved, uint32_t l)
{
	const uint32_t behind = prefill_behind(r->s->cache->model);
	int rc = ENGINE_OK;

	if (behind && l > 0)
		rc = finish_layer(r, saved, l - 1);
	if (rc == ENGINE_OK)
		rc = begin_layer(r, s, saved, l);
	if (rc == ENGINE_OK && (!behind || l + 1 == r->s->cache->model->id.layers))
		rc = finish_layer(r, saved, l);
	return rc;
}

/* Drops all rows of the stream except keep[k], after layer l. */
static int
drop_others(struct prefill_run *r, struct prompt_stream *s, uint32_t l, const uint32_t *keep,
    uint32_t k)
{
	if (prompt_keep(s, keep, k) != 0)
		return engine_fail(r->e, ENGINE_ERUN, "no memory for the tokens that go on");
	token_select_tell(&r->p->select, l, k);
	return ENGINE_OK;
}

/* Runs the learned tokens through layer l. */
static int
run_learned(struct prefill_run *r, uint32_t l)
{
	const struct evict_hook *hook = &r->p->evict.hook;
	int rc;

	if (r->learned == NULL)
		return ENGINE_OK;
	evict_hook_begin(hook);
	rc = learned_layer(r->learned, r->s, r->ws, l, r->e);
	evict_hook_end(hook);
	return rc;
}

/* Runs layers l0 .. l1-1 of a stream that began with n rows, and after the last one drops rows from
 * the stream, or from the layer, or both. The stream's rows are chosen first, from all rows, by
 * queries that scoring has not rounded yet. */
static int
pass_layers(struct prefill_run *r, struct prompt_stream *s, struct saved *saved, uint32_t l0,
    uint32_t l1, size_t n, const struct step_hook *step)
{
	const struct token_select *t = &r->p->select;
	const uint32_t l = l1 - 1;
	uint32_t window, *keep = NULL;
	const uint32_t k = token_select_after(t, l, r->s->cache->model->id.layers, n, s->N,
	    &window);
	int rc = watch_layer(r, s, l, window, n);

	if (rc == ENGINE_OK && r->learned != NULL)
		rc = learned_reserve(r->learned, r->s->cache, l, s->N, r->e);
	if (rc == ENGINE_OK)
		rc = engine_ran(r->e, prompt_run(s, r->ws, l0, l1, step, r->e->text,
		    sizeof r->e->text));
	if (rc == ENGINE_OK && window != 0)
		rc = token_select_choose(t, s, k, &keep, r->e);
	if (rc == ENGINE_OK)
		rc = run_learned(r, l);
	if (rc == ENGINE_OK && r->p->schedule != PREFILL_PLAIN)
		rc = evict_layer(r, s, saved, l);
	if (rc == ENGINE_OK && keep != NULL)
		rc = drop_others(r, s, l, keep, k);
	free(keep);
	return rc;
}

/* Runs all layers of an open stream that began with n rows. */
static int
pass_all(struct prefill_run *r, struct prompt_stream *s, struct saved *saved, size_t n,
    const struct step_hook *step)
{
	const uint32_t L = r->s->cache->model->id.layers;
	const int evicts = r->p->schedule != PREFILL_PLAIN;
	uint32_t l0, l1;
	int rc = ENGINE_OK;

	for (l0 = 0; rc == ENGINE_OK && l0 < L; l0 = l1) {
		l1 = evicts ? l0 + 1 : token_select_next(&r->p->select, l0, L);
		rc = pass_layers(r, s, saved, l0, l1, n, step);
	}
	return rc;
}

/* As pass_all(), with the learned tokens after each layer */
static int
pass_all_learned(struct prefill_run *r, struct prompt_stream *s, struct saved *saved, size_t n,
    const struct step_hook *step)
{
	struct learned learned;
	int rc = learned_begin(&learned, r->p->adapter, r->s->cache, r->e);

	r->learned = &learned;
	if (rc == ENGINE_OK)
		rc = pass_all(r, s, saved, n, step);
	r->learned = NULL;
	learned_free(&learned, r->s->cache->model);
	return rc;
}

int
prefill_pass_layers(struct prefill_run *r, const uint32_t *ids, size_t n,
    const struct step_hook *step, int last)
{
	const struct model *m = r->s->cache->model;
	struct saved saved = { .q = NULL };
	struct prompt_stream s;
	int rc = open_stream(r, &s, &saved, ids, n);

	if (rc == ENGINE_OK)
		rc = (r->p->adapter != NULL ? pass_all_learned : pass_all)(r, &s, &saved, n, step);
	if (rc == ENGINE_OK && last)
		rc = engine_ran(r->e, prompt_logits(&s, r->ws, r->e->text, sizeof r->e->text));
	if (rc == ENGINE_OK)
		rc = prefill_logits(r, s.x, s.N, s.pos[0]);
	m->ops->free(m->dev, saved.q);
	prompt_close(&s);
	return rc;
}

/* A second run, whose progress is added to that of the first */
struct second_run {
	const struct prefill_run *r;
	uint64_t before;
};

static void
show_second(void *with, uint64_t done)
{
	const struct second_run *second = with;

	prefill_show(second->r, second->before + done);
}

static int
run_gemfilter(struct prefill_run *r, const uint32_t *ids, size_t n, const struct step_hook *step)
{
	const struct token_select *t = &r->p->select;
	const uint32_t k = gemfilter_tokens(t, n);
	struct second_run second = { r, n * ((uint64_t)t->layer + 1) };
	uint32_t *picked = engine_alloc(k, sizeof *picked, r->e);
	int rc = picked == NULL ? r->e->code :
	    gemfilter_pick(t, r->s, r->ws, ids, n, step, picked, k, r->e);

	if (rc == ENGINE_OK) {
		token_select_tell(t, t->layer, k);
		rc = prefill_pass_layers(r, picked, k, &(struct step_hook){ show_second, &second },
		    1);
	}
	free(picked);
	return rc;
}

int
prefill_by_layers(struct prefill_run *r, const uint32_t *ids, size_t n)
{
	const struct step_hook *step = r->p->step.call != NULL ? &r->p->step : NULL;
	struct prefill *p = r->p;

	/* a layer that selects may have more queries than the scorer reads */
	if (p->evict.scorer.method != NULL && p->select.rule != TOKENS_ALL && p->adapter == NULL)
		p->evict.scorer.options.window = prefill_scored_queries(p);
	prefill_since(r, r->s->cache->next_position - p->reused);
	if (p->select.rule == TOKENS_GEMFILTER)
		return run_gemfilter(r, ids, n, step);
	return prefill_pass_layers(r, ids, n, step, 1);
}

/* prefill.c - runs a prompt through all layers, in one of three schedules
 *
 * The two that evict differ in order. Chunk by chunk (prefill_chunks.c), all layers run a chunk of
 * the prompt and are evicted before the next chunk: later tokens see only the kept rows of earlier
 * ones, and memory is bounded by budget and chunk (KeyDiff, Park et al. 2025; PruLong, Bhaskar et
 * al. 2025). Layer by layer (prefill_layers.c), each layer runs the whole prompt, is evicted, and
 * frees its memory before the next layer fills, or, on a GPU, the one after that: the result is
 * that of eviction after prefill, with one full layer in memory at a time, or two. */
#include "engine/prefill_internal.h"
#include "model/adapter.h"

uint32_t
prefill_scored_queries(const struct prefill *p)
{
	uint32_t usual = p->observe != 0 ? p->observe : p->patch != 0 ? p->patch :
	    p->select.rule == TOKENS_TSP ? p->select.tsp.window : EVICT_WINDOW;

	if (p->evict.scorer.method == NULL || p->adapter != NULL)
		return 0;
	if (p->queries != 0 && usual > p->queries)
		usual = p->queries;
	return scorer_queries(&p->evict.scorer, usual);
}

uint32_t
prefill_window(const struct prefill *p)
{
	const uint32_t scored = prefill_scored_queries(p);

	return scored > p->observe ? scored : p->observe;
}

int
prefill_counts_rows(const struct prefill *p)
{
	return p->schedule == PREFILL_LAYERS || p->select.rule != TOKENS_ALL;
}

uint64_t
prefill_total(const struct prefill *p, const struct model *m, size_t n)
{
	return prefill_counts_rows(p) ? token_select_rows(&p->select, m, n) : n;
}

size_t
prefill_spare(const struct prefill *p, size_t n)
{
	if (p->schedule == PREFILL_LAYERS)
		return 0;               /* a layer gets the memory of the one before */
	return p->schedule == PREFILL_CHUNKS && p->chunk < n ? p->chunk : n;
}

uint32_t
prefill_least_rows(const struct prefill *p)
{
	return p->adapter != NULL && p->schedule == PREFILL_LAYERS ? p->adapter->n : 1;
}

void
prefill_demand(const struct prefill *p, const struct model *m, size_t n, struct memory_demand *d)
{
	const uint64_t heads = m->id.kv_heads;
	const int evicts = p->schedule == PREFILL_LAYERS;
	uint64_t full;

	if (prefill_counts_rows(p)) {
		full = token_select_full_layers(&p->select, evicts);
		if (evicts && full == 1 && m->id.layers > 1)
			full += prefill_behind(m);
		d->rows = (n + (p->adapter != NULL ? p->adapter->n : 0)) * heads * full;
		d->stream = n;
	} else {
		d->rows = cache_most_rows_of(m, (uint32_t)prefill_spare(p, n));
		d->stream = p->schedule == PREFILL_CHUNKS ? prefill_spare(p, n) : 0;
	}
}

int
prefill_fit(const struct prefill *p, const struct model *m, size_t n, uint32_t have,
    struct engine_error *e)
{
	const uint32_t window = prefill_scored_queries(p), tail = token_select_tail(&p->select, n);
	int rc = ENGINE_OK;

	if (p->schedule != PREFILL_PLAIN)
		rc = evict_cache_fit(&p->evict, m->id.layers, e);
	if (rc == ENGINE_OK && window > n + have)
		rc = engine_fail(e, ENGINE_EOPTION, "--score: a window of %u queries is longer "
		    "than the prompt, %zu tokens: leave out window= for the longest",
		    window, n);
	if (rc == ENGINE_OK && window > tail)
		rc = engine_fail(e, ENGINE_EOPTION, "--score: a window of %u queries: only the "
		    "last %u tokens are sure to reach the last layer", window, tail);
	return rc;
}

void
prefill_since(struct prefill_run *r, uint32_t position)
{
	if (r->p->once) {
		r->p->evict.scorer.since = position;
		r->p->evict.evictor.options.since = position;
	}
}

int
prefill_log_eviction(struct prefill_run *r, uint32_t l0, uint32_t l1)
{
	if (cache_log(r->s->cache, KV_EVENT_EVICT, 0, l0, l1) != 0)
		return engine_fail(r->e, ENGINE_ERUN, "no memory for the event log");
	return ENGINE_OK;
}

/* ---- tokens through all layers ---- */

/* Progress of a run */
struct tokens {
	struct prefill_run *r;
	size_t before;                  /* tokens that ran earlier */
	uint64_t logged;                /* tokens of this run that are in the log */
	int rc;                         /* result of logging and of the logits */
};

void
prefill_show(const struct prefill_run *r, uint64_t done)
{
	if (r->p->step.call != NULL)
		r->p->step.call(r->p->step.with, done);
}

int
prefill_logits(struct prefill_run *r, const float *x, uint32_t N, uint32_t position)
{
	return r->logits != NULL ? each_logits_put(r->logits, x, N, position, r->e) : ENGINE_OK;
}

/* Logs the tile as an event, and gives its logits to the sink; its rows are in the workspace until
 * the next one runs. */
static void
end_tile(void *with, uint64_t done)
{
	struct tokens *t = with;
	struct cache *c = t->r->s->cache;
	const uint32_t N = (uint32_t)(done - t->logged);

	if (cache_log(c, KV_EVENT_PREFILL, N, 0, c->model->id.layers) != 0)
		t->rc = engine_fail(t->r->e, ENGINE_ERUN, "no memory for the event log");
	if (t->rc == ENGINE_OK)
		t->rc = prefill_logits(t->r, workspace_x(t->r->ws), N, c->next_position - N);
	t->logged = done;
	prefill_show(t->r, t->before + done);
}

int
prefill_tokens(struct prefill_run *r, const uint32_t *ids, size_t n, size_t before)
{
	struct tokens t = { .r = r, .before = before };
	const struct step_hook step = { end_tile, &t };
	const uint32_t L = r->s->cache->model->id.layers;
	int rc = engine_ran(r->e, run_tokens(r->s->cache->model, r->s, r->ws, ids, n, r->obs, &step,
	    r->e->text, sizeof r->e->text));

	if (rc == ENGINE_OK && (rc = t.rc) == ENGINE_OK &&
	    cache_slide_all(r->s->cache, r->s->cache->next_position, 0, L) != 0)
		rc = engine_fail(r->e, ENGINE_ERUN, "no memory to drop rows");
	return rc;
}

static int
run_schedule(struct prefill_run *r, const uint32_t *ids, size_t n)
{
	if (r->p->schedule == PREFILL_CHUNKS)
		return prefill_by_chunks(r, ids, n);
	if (prefill_counts_rows(r->p))
		return prefill_by_layers(r, ids, n);
	return prefill_tokens(r, ids, n, 0);
}

int
prefill_run(struct prefill *p, struct sequence *s, struct workspace *ws, const uint32_t *ids,
    size_t n, struct observation *obs, struct engine_error *e)
{
	const struct cache *c = s->cache;
	struct prefill_run r = { .p = p, .s = s, .ws = ws, .obs = obs, .e = e };
	struct each_logits logits;
	int rc = ENGINE_OK;

	if ((p->patch != 0 || (p->adapter != NULL && p->schedule == PREFILL_CHUNKS)) &&
	    c->mass != NULL)
		return engine_fail(e, ENGINE_EOPTION,
		    "%s does not go with --mass: its tokens are not stored",
		    p->patch != 0 ? "--patch" : "--score lookahead with --chunk");
	if (p->logits.take != NULL) {
		rc = each_logits_begin(&logits, &p->logits, c->model, ws, e);
		r.logits = &logits;
	}
	if (rc == ENGINE_OK)
		rc = run_schedule(&r, ids, n);
	if (r.logits != NULL)
		each_logits_end(&logits);
	if (rc == ENGINE_OK && obs != NULL && p->observe < obs->window) {
		obs->window = p->observe;
		observation_expect(obs, c->model, c->next_position, 0);
	}
	return rc;
}

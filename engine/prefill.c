/* prefill.c - a prompt whose rows are scored and evicted while it runs
 *
 * Two schedules of the same three steps. Chunk by chunk (prefill_chunks.c), all layers run a part
 * of the prompt and are evicted before the next part comes: later tokens see what earlier ones
 * have left, and memory is bounded by budget and chunk (KeyDiff, Park et al. 2025; PruLong,
 * Bhaskar et al. 2025). Layer by layer (prefill_layers.c), each layer sees the whole prompt, is
 * evicted, and gives its memory back before the next one fills, or, on a GPU, the one after that:
 * the result is that of eviction after prefill, and one full layer is there at a time, or two. */
#include "engine/prefill_internal.h"

uint32_t
prefill_scored_queries(const struct prefill *p)
{
	if (p->evict.scorer.method == NULL)
		return 0;
	return scorer_queries(&p->evict.scorer, p->observe != 0 ? p->observe :
	    p->patch != 0 ? p->patch : EVICT_WINDOW);
}

uint32_t
prefill_window(const struct prefill *p)
{
	const uint32_t scored = prefill_scored_queries(p);

	return scored > p->observe ? scored : p->observe;
}

uint32_t
prefill_full_layers(const struct model *m)
{
	return m->id.layers > 1 ? 1 + prefill_behind(m) : 1;
}

int
prefill_fit(const struct prefill *p, const struct model *m, size_t n, uint32_t have,
    struct engine_error *e)
{
	const uint32_t window = prefill_scored_queries(p);
	int rc = evict_cache_fit(&p->evict, m->id.layers, e);

	if (rc == ENGINE_OK && window > n + have)
		rc = engine_fail(e, ENGINE_EOPTION, "--score: a window of %u queries is longer than "
		    "the prompt, %zu tokens", window, n);
	if (rc == ENGINE_OK && p->patch > n)
		rc = engine_fail(e, ENGINE_EOPTION, "--patch %u: the prompt has %zu tokens",
		    p->patch, n);
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
	if (cache_log(r->c, KV_EVENT_EVICT, 0, l0, l1) != 0)
		return engine_fail(r->e, ENGINE_ERUN, "no memory for the event log");
	return ENGINE_OK;
}

int
prefill_ran(struct prefill_run *r, int model_code)
{
	if (model_code == 0)
		return ENGINE_OK;
	return r->e->code = ENGINE_ERUN;
}

int
prefill_run(struct prefill *p, struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs, struct engine_error *e)
{
	struct prefill_run r = { .p = p, .c = c, .ws = ws, .obs = obs, .e = e };
	int rc;

	if (p->patch != 0 && c->mass != NULL)
		return engine_fail(e, ENGINE_EOPTION, "--patch: what tokens pay that are not stored "
		    "must not be in --mass");
	rc = (p->chunk != 0 ? prefill_by_chunks : prefill_by_layers)(&r, ids, n);
	if (rc == ENGINE_OK && obs != NULL && p->observe < obs->window) {
		obs->window = p->observe;
		observation_expect(obs, c->model, c->next_position, 0);
	}
	return rc;
}

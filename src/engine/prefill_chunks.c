/* prefill_chunks.c - chunk by chunk: all layers run a chunk of the prompt and are evicted before
 * the next chunk */
#include "engine/prefill_internal.h"
#include "model/adapter.h"

/* A chunk that runs layer by layer. */
struct chunk {
	const struct prefill_run *r;
	size_t before;                  /* tokens of earlier chunks */
};

static void
show_rows(void *with, uint64_t done)
{
	const struct chunk *k = with;

	prefill_show(k->r, k->before + done / k->r->s->cache->model->id.layers);
}

static int
evict_layers(struct prefill_run *r, const struct observation *obs)
{
	int rc = evict_cache_all(&r->p->evict, r->s->cache, obs, r->e);

	return rc == ENGINE_OK ? prefill_log_eviction(r, 0, r->s->cache->model->id.layers) : rc;
}

/* Runs the patch (NULL: the learned tokens) unstored, and evicts by its attention. */
static int
evict_by_unstored(struct prefill_run *r, const uint32_t *patch)
{
	const struct model *m = r->s->cache->model;
	const struct adapter *a = r->p->adapter;
	const uint32_t n = patch != NULL ? r->p->patch : a->n;
	struct observation obs;
	int rc;

	if (observation_init(&obs, m, n) != 0)
		return engine_fail(r->e, ENGINE_ERUN, "no memory for %u observation queries", n);
	rc = engine_ran(r->e,
	    patch != NULL ?
		run_unstored(m, r->s, r->ws, patch, n, &obs, NULL, r->e->text, sizeof r->e->text) :
		run_unstored_embeddings(m, r->s, r->ws, a->embedding, n, a, &obs, NULL, r->e->text,
		    sizeof r->e->text));
	if (rc == ENGINE_OK && cache_log(r->s->cache, KV_EVENT_RUN, n, 0, m->id.layers) != 0)
		rc = engine_fail(r->e, ENGINE_ERUN, "no memory for the event log");
	if (rc == ENGINE_OK)
		rc = evict_layers(r, &obs);
	observation_free(&obs, m);
	return rc;
}

/* Runs a chunk layer by layer, each scored while the device runs the next. The kept rows are the
 * same, since those of a layer do not depend on later layers. Logs it as other devices do: all
 * layers run the chunk, a tile at a time, and are then evicted. */
static int
run_ahead(struct prefill_run *r, const uint32_t *ids, uint32_t N, size_t before, int last)
{
	struct cache *c = r->s->cache;
	struct chunk k = { r, before };
	const struct step_hook step = { show_rows, &k };
	const uint32_t tile = workspace_rows(r->ws), first = c->next_position;
	const int logging = c->logged;
	int rc;

	c->logged = 0;
	rc = prefill_pass_layers(r, ids, N, &step, last);
	c->logged = logging;
	if (rc == ENGINE_OK && cache_log_tiles_before(c, N, first, tile) != 0)
		rc = engine_fail(r->e, ENGINE_ERUN, "no memory for the event log");
	return rc == ENGINE_OK ? prefill_log_eviction(r, 0, c->model->id.layers) : rc;
}

/* Runs a chunk through all layers, and evicts them. patch NULL: by the chunk's own queries */
static int
run_chunk(struct prefill_run *r, const uint32_t *ids, uint32_t N, size_t before,
    const uint32_t *patch)
{
	int rc = prefill_tokens(r, ids, N, before);

	if (rc != ENGINE_OK)
		return rc;
	return patch != NULL || r->p->adapter != NULL ? evict_by_unstored(r, patch) :
	    evict_layers(r, r->obs);
}

int
prefill_by_chunks(struct prefill_run *r, const uint32_t *ids, size_t n)
{
	const struct prefill *p = r->p;
	const uint32_t *patch;
	uint32_t N;
	size_t at;
	int rc = ENGINE_OK, last;

	for (at = 0; rc == ENGINE_OK && at < n; at += N) {
		N = n - at < p->chunk ? (uint32_t)(n - at) : p->chunk;
		last = at + N == n;
		patch = p->patch != 0 && !last ? ids + n - p->patch : NULL;
		prefill_since(r, r->s->cache->next_position);
		if (prefill_behind(r->s->cache->model) && patch == NULL && p->adapter == NULL &&
		    r->s->cache->model->id.window == 0)
			rc = run_ahead(r, ids + at, N, at, last);
		else
			rc = run_chunk(r, ids + at, N, at, patch);
	}
	return rc;
}

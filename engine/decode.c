/* decode.c - token after token behind a cache, which is evicted after each */
#include "engine/decode.h"
#include "engine/grow_clusters.h"
#include "model/forward.h"

/* Without greedy choices the logits come to the host after every token; where the device can repeat
 * steps, they are made so nevertheless. */
int
decode_init(struct decode *d, struct engine_error *e)
{
	d->generator = NULL;
	if (!d->greedy && d->cache->model->ops->graph_begin == NULL)
		return ENGINE_OK;
	if ((d->generator = generator_new(d->cache, d->ws)) == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory to run the model");
	return ENGINE_OK;
}

void
decode_free(struct decode *d)
{
	generator_free(d->generator);
	d->generator = NULL;
}

/* Rows that no later query sees are neither scored nor saved. */
static int
decode_slide(struct decode *d, struct engine_error *e)
{
	struct cache *c = d->cache;

	if (cache_slide_all(c, c->next_position, 0, c->model->id.layers) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory to drop rows");
	return ENGINE_OK;
}

int
decode_evict(struct decode *d, struct engine_error *e)
{
	int rc = decode_slide(d, e);

	if (rc == ENGINE_OK)
		rc = evict_cache_all(d->evict, d->cache, d->obs, e);
	if (rc == ENGINE_OK && cache_log(d->cache, KV_EVENT_EVICT, 0, 0,
	    d->cache->model->id.layers) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for the event log");
	return rc;
}

int
decode_ask(struct decode *d, const uint32_t *ids, size_t n, struct engine_error *e)
{
	return engine_ran(e, run_tokens(d->cache->model, d->cache, d->ws, ids, n, NULL, NULL, e->text,
	    sizeof e->text));
}

int
decode_logits(struct decode *d, struct engine_error *e)
{
	if (d->generator != NULL && generator_logits(d->generator) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for %u logits",
		    d->cache->model->id.vocabulary);
	return ENGINE_OK;
}

int
decode_finish(struct decode *d, struct engine_error *e)
{
	int rc = decode_logits(d, e);

	return rc == ENGINE_OK ? decode_slide(d, e) : rc;
}

/* The first half of a step: the cache has its row, and what is done to it comes behind. */
static int
begin_token(struct decode *d, uint32_t id, struct engine_error *e)
{
	struct cache *c = d->cache;
	int rc;

	if (d->generator != NULL)
		rc = generator_begin(d->generator, id, d->obs, e->text, sizeof e->text);
	else
		rc = run_tokens(c->model, c, d->ws, &id, 1, d->obs, NULL, e->text, sizeof e->text);
	if ((rc = engine_ran(e, rc)) != ENGINE_OK)
		return rc;
	if (!d->greedy && (rc = decode_logits(d, e)) != ENGINE_OK)
		return rc;
	if (cache_log(c, KV_EVENT_DECODE, 1, 0, c->model->id.layers) != 0)
		return engine_fail(e, ENGINE_ERUN, "position %u: no memory for the event log",
		    c->next_position);
	return ENGINE_OK;
}

int
decode_step(struct decode *d, uint32_t id, uint32_t *next, struct engine_error *e)
{
	int rc = begin_token(d, id, e);

	*next = 0;
	if (rc == ENGINE_OK && d->evict != NULL)
		rc = decode_evict(d, e);
	if (rc == ENGINE_OK && d->generator != NULL)
		rc = engine_ran(e, generator_end(d->generator, next, e->text, sizeof e->text));
	return rc == ENGINE_OK ? grow_clusters(d->cache, e) : rc;
}

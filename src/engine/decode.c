/* decode.c - runs tokens one by one on a cache, which is evicted after each */
#include <stdlib.h>

#include "engine/decode.h"
#include "engine/grow_clusters.h"
#include "engine/speculate.h"
#include "forward/forward.h"

/* Without greedy choices the host gets the logits after every token. A generator is used
 * nevertheless if the device can launch captured steps. */
int
decode_init(struct decode *d, struct engine_error *e)
{
	d->generator = NULL;
	if (d->speculation != NULL)
		return speculation_start(d->speculation, e);
	if (!d->greedy && d->sequence->cache->model->ops->graph_begin == NULL)
		return ENGINE_OK;
	if ((d->generator = generator_new(d->sequence, d->ws)) == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory to run the model");
	return ENGINE_OK;
}

void
decode_free(struct decode *d)
{
	generator_free(d->generator);
	d->generator = NULL;
}

/* Drops rows that no later query sees: they are neither scored nor saved. */
static int
decode_slide(struct decode *d, struct engine_error *e)
{
	struct cache *c = d->sequence->cache;

	if (cache_slide_all(c, c->next_position, 0, c->model->id.layers) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory to drop rows");
	return ENGINE_OK;
}

int
decode_evict(struct decode *d, struct engine_error *e)
{
	int rc = decode_slide(d, e);

	if (rc == ENGINE_OK)
		rc = evict_cache_all(d->evict, d->sequence->cache, d->obs, e);
	if (rc == ENGINE_OK && cache_log(d->sequence->cache, KV_EVENT_EVICT, 0, 0,
	    d->sequence->cache->model->id.layers) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for the event log");
	d->evicted_at = d->sequence->cache->next_position;
	return rc;
}

/* Evicts, if enough tokens have run since the last time. */
static int
evict_in_turn(struct decode *d, struct engine_error *e)
{
	if (d->evict == NULL ||
	    d->sequence->cache->next_position - d->evicted_at < d->evict->every)
		return ENGINE_OK;
	return decode_evict(d, e);
}

/* Fails if the file of offloaded rows has changed, or could not be read. */
static int
check_store(const struct sequence *s, struct engine_error *e)
{
	if (s->offload != NULL && offload_store_check(s->offload->store) != KV_OK)
		return engine_fail(e, ENGINE_ERUN, "%s", s->offload->store->error);
	return ENGINE_OK;
}

/* Returns rc, or the failure of that file: rows that could not be read may be the reason of rc. */
static int
ran(const struct sequence *s, int rc, struct engine_error *e)
{
	return check_store(s, e) != ENGINE_OK ? e->code : rc;
}

int
decode_ask(struct decode *d, const uint32_t *ids, size_t n, struct engine_error *e)
{
	return ran(d->sequence, engine_ran(e, run_tokens(d->sequence->cache->model, d->sequence,
	    d->ws, ids, n, NULL, NULL, e->text, sizeof e->text)), e);
}

int
decode_logits(struct decode *d, struct engine_error *e)
{
	if ((d->generator != NULL && generator_logits(d->generator) != 0) ||
	    (d->speculation != NULL && speculation_logits(d->speculation,
		d->sequence->cache) != 0) ||
	    (d->batch != NULL && batch_logits(d->batch, d->row, d->sequence->cache) != 0))
		return engine_fail(e, ENGINE_ERUN, "no memory for %u logits",
		    d->sequence->cache->model->id.vocabulary);
	return ENGINE_OK;
}

int
decode_finish(struct decode *d, struct engine_error *e)
{
	int rc = decode_logits(d, e);

	return rc == ENGINE_OK ? decode_slide(d, e) : rc;
}

/* Ends a token: fails if the file of offloaded rows has changed, and logs the token. */
static int
end_token(struct sequence *s, struct engine_error *e)
{
	struct cache *c = s->cache;

	if (check_store(s, e) != ENGINE_OK)
		return e->code;
	if (cache_log(c, KV_EVENT_DECODE, 1, 0, c->model->id.layers) != 0)
		return engine_fail(e, ENGINE_ERUN, "position %u: no memory for the event log",
		    c->next_position);
	return ENGINE_OK;
}

/* First half of a step: appends the row. Later work on the cache is ordered after it. *next <- the
 * likeliest token, if that is known already. */
static int
begin_token(struct decode *d, uint32_t id, uint32_t *next, struct engine_error *e)
{
	struct sequence *s = d->sequence;
	int rc = offload_grow(s, d->offload, e);

	if (rc != ENGINE_OK)
		return rc;
	if (d->speculation != NULL)
		rc = speculation_step(d, id, next, e);
	else if (d->generator != NULL)
		rc = engine_ran(e, generator_begin(d->generator, id, d->obs, e->text,
		    sizeof e->text));
	else
		rc = engine_ran(e, run_tokens(s->cache->model, s, d->ws, &id, 1, d->obs, NULL,
		    e->text, sizeof e->text));
	if (rc != ENGINE_OK)
		return ran(s, rc, e);
	if (!d->greedy && (rc = decode_logits(d, e)) != ENGINE_OK)
		return rc;
	return end_token(s, e);
}

int
decode_step(struct decode *d, uint32_t id, uint32_t *next, struct engine_error *e)
{
	int rc;

	*next = 0;
	rc = begin_token(d, id, next, e);
	if (rc == ENGINE_OK)
		rc = evict_in_turn(d, e);
	if (rc == ENGINE_OK && d->generator != NULL)
		rc = engine_ran(e, generator_end(d->generator, next, e->text, sizeof e->text));
	return rc == ENGINE_OK ? grow_clusters(d->sequence, e) : rc;
}

/* ---- the end of a text ---- */

/* Runs a token without generator and batch, which have run tokens that were dropped. */
static int
run_singly(struct decode *d, const uint32_t *ids, size_t n, struct engine_error *e)
{
	const struct model *m = d->sequence->cache->model;
	struct decode one = *d;
	uint32_t next;
	size_t i;
	int rc = ENGINE_OK;

	one.generator = NULL;
	one.speculation = NULL;
	one.greedy = 0;
	if (n > 0 && d->ws == NULL && (one.ws = workspace_new(m, 1)) == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory to run the model");
	for (i = 0; rc == ENGINE_OK && i < n; i++)
		rc = decode_step(&one, ids[i], &next, e);
	if (one.ws != d->ws)
		workspace_free(one.ws, m);
	return rc;
}

int
decode_cut(struct decode *d, struct sequence_point *point, const uint32_t *ids, size_t n,
    struct engine_error *e)
{
	struct observation *obs = d->obs;

	d->batch = NULL;                        /* it has the logits after a later token */
	d->sequence->cache->cut_from = UINT32_MAX;
	while (obs != NULL && obs->have > 0 && obs->pos[obs->have - 1] >= point->cache.position)
		obs->have--;
	if (sequence_cut(d->sequence, point) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for the end of a text");
	if (d->evicted_at > point->cache.position)
		d->evicted_at = point->cache.position;
	return run_singly(d, ids, n, e);
}

/* ---- several at once ---- */

/* Reserves a row in each sequence, and leaves out those without memory or positions. Returns how
 * many are left: row i of the batch is turn order[i]. */
static uint32_t
expect_all(struct decode_turn *t, uint32_t n, uint32_t *order, struct batch_row *row)
{
	uint32_t i, rows = 0;

	for (i = 0; i < n; i++) {
		struct decode *d = t[i].d;

		t[i].e = (struct engine_error){ .code = ENGINE_OK };
		if (offload_grow(d->sequence, d->offload, &t[i].e) != ENGINE_OK)
			continue;
		if (engine_ran(&t[i].e, batch_expect(d->sequence, t[i].id, t[i].e.text,
		    sizeof t[i].e.text)) != ENGINE_OK)
			continue;
		order[rows] = i;
		row[rows++] = (struct batch_row){ .sequence = d->sequence, .obs = d->obs,
		    .id = t[i].id };
	}
	return rows;
}

/* Second half of a step for one sequence. If the host chooses tokens, gets the logits; else drops
 * the old ones. */
static int
end_turn(struct decode *d, struct engine_error *e)
{
	struct cache *c = d->sequence->cache;
	int rc = ENGINE_OK;

	if (!d->greedy) {
		rc = engine_ran(e, batch_check(d->batch, d->row, c, e->text, sizeof e->text));
		if (rc == ENGINE_OK)
			rc = decode_logits(d, e);
	} else {
		free(c->logits);
		c->logits = NULL;
	}
	if (rc == ENGINE_OK)
		rc = end_token(d->sequence, e);
	if (rc == ENGINE_OK)
		rc = evict_in_turn(d, e);
	return rc == ENGINE_OK ? grow_clusters(d->sequence, e) : rc;
}

int
decode_together(struct batch *b, struct decode_turn *t, uint32_t n, struct engine_error *e)
{
	struct batch_row row[BATCH_MOST];
	uint32_t order[BATCH_MOST], i;
	const uint32_t rows = expect_all(t, n, order, row);
	int rc;

	e->text[0] = '\0';
	if (rows == 0)
		return ENGINE_OK;
	if ((rc = engine_ran(e, batch_run(b, row, rows, e->text, sizeof e->text))) != ENGINE_OK)
		return rc;
	for (i = 0; i < rows; i++) {
		struct decode_turn *one = &t[order[i]];

		one->d->batch = b;
		one->d->row = i;
		one->next = row[i].next;
		end_turn(one->d, &one->e);
	}
	return ENGINE_OK;
}

/* learned_tokens.c - runs the learned tokens of an adapter in each layer of a prompt, before the
 * layer is evicted */
#include <stdlib.h>

#include "engine/learned_tokens.h"

static int
no_memory(const struct adapter *a, struct engine_error *e)
{
	return engine_fail(e, ENGINE_ERUN, "no memory for %u learned tokens", a->n);
}

int
learned_begin(struct learned *r, const struct adapter *a, const struct cache *c,
    struct engine_error *e)
{
	const struct model *m = c->model;
	const size_t D = m->id.hidden, row = (size_t)m->id.query_heads * m->id.head_width;
	uint32_t i;

	*r = (struct learned){ .adapter = a };
	if (c->next_position > UINT32_MAX - a->n)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "position %u + %u learned tokens: "
		    "positions end at 2^32", c->next_position, a->n);
	r->x = m->ops->alloc(m->dev, a->n * D * sizeof *r->x);
	r->q = m->ops->alloc(m->dev, a->n * row * sizeof *r->q);
	r->obs = (struct observation){ .window = a->n, .have = a->n, .n_own = a->n, .on_device = 1,
	    .first = c->next_position };
	r->obs.q = calloc(m->id.layers, sizeof *r->obs.q);
	r->obs.pos = calloc(a->n, sizeof *r->obs.pos);
	if (r->x == NULL || r->q == NULL || r->obs.q == NULL || r->obs.pos == NULL)
		return no_memory(a, e);
	for (i = 0; i < a->n; i++)
		r->obs.pos[i] = c->next_position + i;
	m->ops->put(m->dev, r->x, a->embedding, a->n * D * sizeof *r->x);
	return ENGINE_OK;
}

int
learned_reserve(const struct learned *r, struct cache *c, uint32_t l, uint32_t N,
    struct engine_error *e)
{
	if (N > UINT32_MAX - r->adapter->n ||
	    cache_reserve_layers(c, N + r->adapter->n, l, l + 1) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for %u rows and %u learned tokens", N,
		    r->adapter->n);
	return ENGINE_OK;
}

int
learned_layer(struct learned *r, struct sequence *s, struct workspace *ws, uint32_t l,
    struct engine_error *e)
{
	const uint32_t n = r->adapter->n, tile = workspace_rows(ws);

	if (n > tile)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%u learned tokens run at once, and "
		    "there is room for %u rows", n, tile);
	r->obs.q[l] = r->q;
	return engine_ran(e, run_unstored_layer(s->cache->model, s, ws, r->x, r->obs.pos, n, l,
	    r->adapter, &r->obs, e->text, sizeof e->text));
}

void
learned_free(struct learned *r, const struct model *m)
{
	m->ops->free(m->dev, r->x);
	m->ops->free(m->dev, r->q);
	free(r->obs.q);
	free(r->obs.pos);
	*r = (struct learned){ .x = NULL };
}

/* offload_plan.c - offloads more layers as a text grows */
#include <inttypes.h>

#include "engine/offload_plan.h"

struct offload_plan
offload_plan_of(const struct model *m, const struct retrieval_head *head, uint64_t limit,
    uint32_t requests, uint32_t budget, enum kv_dtype dtype,
    const uint32_t *row_bytes)
{
	return (struct offload_plan){ .limit = limit,
	    .weights = m->matrix_bytes + m->constant_bytes,
	    .head_weights = head != NULL ? head->bytes : 0, .layers = m->id.layers,
	    .kv_heads = m->id.kv_heads, .width = m->id.head_width,
	    .group = m->id.query_heads / m->id.kv_heads, .requests = requests, .budget = budget,
	    .element = (uint32_t)kv_dtype_size(dtype), .row_bytes = row_bytes };
}

int
offload_first_layer(const struct offload_plan *p, uint32_t least, uint64_t tokens, uint32_t *from,
    struct engine_error *e)
{
	const uint32_t layers = offload_layers(p, tokens);
	uint64_t most;

	if (layers != OFFLOAD_NONE && p->layers - layers >= least) {
		*from = p->layers - layers;
		return ENGINE_OK;
	}
	offload_threshold(p, p->layers - least, &most);
	return engine_fail(e, ENGINE_ENOROOM,
	    "--device-memory: %" PRIu64 " bytes hold %" PRIu64
	    " tokens with %u of %u layers offloaded; the text has %" PRIu64, p->limit, most,
	    p->layers - least, p->layers, tokens + 1);
}

int
offload_grow(struct sequence *s, const struct offload_plan *p, struct engine_error *e)
{
	const struct cache *c = s->cache;
	uint32_t from;

	if (p == NULL)
		return ENGINE_OK;
	if (offload_first_layer(p, retrieval_options(s->retrieval)->dense, c->n_tokens, &from,
	    e) != ENGINE_OK)
		return e->code;
	while (s->offload_from > from) {
		s->offload_from--;
		if (c->model->layer[s->offload_from].window == 0 &&
		    sequence_offload_layer(s, s->offload_from) != 0)
			return engine_fail(e, ENGINE_ERUN, "no memory for the rows of a step");
	}
	return ENGINE_OK;
}

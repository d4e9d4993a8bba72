/* retrieval_check.c - does a layer have the index that retrieval needs? */
#include "engine/retrieval_check.h"

int
low_rank_fit(const struct kv_model *m, struct engine_error *e)
{
	if (m->rope_skip == 0 && m->rope_width == 0)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EUNSUPPORTED, "keys of low rank (ShadowKV) are not supported "
	    "for this model: rotary embedding turns %s", m->rope_width != 0 ?
	    "only some of the channels" : "only some of the layers");
}

int
retrieval_check(const struct retrieval_options *o, const char *name,
    const struct kv_model *m, uint32_t l, const struct layer_index *x, struct engine_error *e)
{
	const enum kv_kind kind = retrieve_needs(o->method);

	if (kind == KV_LOWR && low_rank_fit(m, e) != ENGINE_OK)
		return e->code;
	if (l < o->dense || index_has(x, kind))
		return ENGINE_OK;
	return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no %s (%s), "
	    "which --retrieve %s needs: add them with %s", name, l, index_words(kind),
	    kv_kind_type(kind), retrieve_name(o->method), index_command(kind));
}

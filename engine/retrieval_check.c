/* retrieval_check.c - does a layer have the index that retrieval needs? */
#include "engine/retrieval_check.h"

int
retrieval_check(const struct retrieval_options *o, const char *name, uint32_t l,
    const struct layer_index *x, struct engine_error *e)
{
	const enum kv_kind kind = retrieve_needs(o->method);

	if (l < o->dense || index_has(x, kind))
		return ENGINE_OK;
	return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no %s (%s), "
	    "which --retrieve %s needs: add them with %s", name, l, index_words(kind),
	    kv_kind_type(kind), retrieve_name(o->method), index_command(kind));
}

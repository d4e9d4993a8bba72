/* grouped_check.c - what does not go with rows of KIVI's types */
#include "engine/grouped_check.h"

/* Returns what cannot be done, and how to go on; NULL: all can. */
static const char *
obstacle(const struct model *m, const struct sequence_options *o)
{
	if (!m->ops->takes_recent)
		return "this device does not compute on them: use --device cpu";
	if (o->evict != NULL)
		return "no single row can be dropped: evict before kv-quantize";
	if (o->retrieve != NULL)
		return "no single row can be read: retrieve from q4_0, q5_0 or q8_0 rows";
	if (o->mass)
		return "no attention mass is added up over them: use q4_0, q5_0 or q8_0 rows";
	return NULL;
}

int
grouped_check(const struct model *m, const struct kv_head *stored,
    const struct sequence_options *o, const char *name, struct engine_error *e)
{
	const char *dtype = kv_dtype_name(stored->dtype), *why;
	uint32_t l;

	if (!kv_head_is_grouped(stored))
		return ENGINE_OK;
	if ((why = obstacle(m, o)) != NULL)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s has rows of KIVI's types, which are "
		    "not stored each by itself: %s; or dequantise it: kv-quantize --keys %s "
		    "--values %s", name, why, dtype, dtype);
	for (l = 0; l < m->id.layers; l++)
		if (m->layer[l].window != 0 &&
		    (kv_row_type_kivi(kv_head_row_type(stored, KV_KEYS, l)) ||
		    kv_row_type_kivi(kv_head_row_type(stored, KV_VALS, l))))
			return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: layer %u has a sliding "
			    "window, whose rows are dropped one by one, and rows of KIVI's types: "
			    "dequantise it: kv-quantize --keys %s --values %s", name, l, dtype,
			    dtype);
	return ENGINE_OK;
}

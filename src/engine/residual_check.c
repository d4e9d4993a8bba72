/* residual_check.c - what does not go with full rows behind quantised ones */
#include "engine/residual_check.h"

/* Returns what cannot be done, and how to go on; NULL: all can. */
static const char *
obstacle(const struct model *m, const struct sequence_options *o)
{
	if (!m->ops->takes_recent)
		return "this device does not compute on them: use --device cpu";
	if (o->evict != NULL)
		return "no single row can be dropped: evict before kv-quantize";
	if (o->retrieve != NULL)
		return "no single row can be read: retrieve from q4_0, q5_0 or q8_0 rows without "
		    "residual";
	if (o->stream)
		return "they cannot stay in the file: decode without --stream";
	if (o->mass)
		return "no attention mass is added up over them: use q4_0, q5_0 or q8_0 rows "
		    "without residual";
	return NULL;
}

int
residual_refused(const struct kv_head *stored, const char *name, const char *why,
    struct engine_error *e)
{
	const char *dtype = kv_dtype_name(stored->dtype);

	return engine_fail(e, ENGINE_EUNSUPPORTED, "%s has full rows behind quantised ones "
	    "(residual %u): %s; or dequantise it: kv-quantize --keys %s --values %s", name,
	    stored->residual, why, dtype, dtype);
}

int
residual_check(const struct model *m, const struct kv_head *stored,
    const struct sequence_options *o, const char *name, struct engine_error *e)
{
	const char *dtype = kv_dtype_name(stored->dtype), *why;
	uint32_t l;

	if (stored->residual == 0)
		return ENGINE_OK;
	if ((why = obstacle(m, o)) != NULL)
		return residual_refused(stored, name, why, e);
	for (l = 0; l < m->id.layers; l++)
		if (m->layer[l].window != 0 &&
		    (kv_row_type_quantised(kv_head_row_type(stored, KV_KEYS, l)) ||
		    kv_row_type_quantised(kv_head_row_type(stored, KV_VALS, l))))
			return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: layer %u has a sliding "
			    "window, whose rows are dropped one by one, and full rows behind "
			    "quantised ones (residual %u): dequantise it: kv-quantize --keys %s "
			    "--values %s", name, l, stored->residual, dtype, dtype);
	return ENGINE_OK;
}

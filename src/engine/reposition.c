/* reposition.c - new positions for kept rows */
#include <stdlib.h>
#include <string.h>

#include "engine/reposition.h"
#include "model/model.h"

int
reposition_init(struct reposition *p, const struct kv_model *m, uint32_t longest,
    struct engine_error *e)
{
	if (m->window != 0)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "compact positions are not supported "
		    "for this model: its sliding windows are measured in positions");
	p->next = longest > 0 ? longest : 1;
	p->model = *m;
	if ((p->freq = engine_alloc(m->head_width, sizeof *p->freq, e)) == NULL)
		return e->code;
	model_rope_frequencies(m, p->freq);
	return ENGINE_OK;
}

void
reposition_free(struct reposition *p)
{
	free(p->freq);
	p->freq = NULL;
}

/* to[count][E] <- the rows keep[count] of one KV head, at their new positions. */
static int
reposition_head(const struct reposition *p, uint32_t layer, char *to, const char *keys,
    enum kv_row_type type, const uint32_t *pos, const uint32_t *keep, uint32_t count,
    struct engine_error *e)
{
	const uint32_t E = p->model.head_width, dims = kv_rope_dims(&p->model, layer);
	const size_t row = kv_row_bytes(type, E);
	uint32_t *old = engine_alloc((size_t)count * 2, sizeof *old, e), *new, i;
	int rc;

	if (old == NULL)
		return e->code;
	new = old + count;
	for (i = 0; i < count; i++) {
		memcpy(to + i * row, keys + keep[i] * row, row);
		old[i] = pos[keep[i]];
		new[i] = reposition_row(p, count, i);
	}
	rc = rotate_keys(to, old, new, p->freq, kv_rope_first(&p->model), dims,
	    count, E, type);
	free(old);
	if (rc == ROTATE_ERANGE)
		return engine_fail(e, ENGINE_ERUN, "layer %u: %s cannot store a key at its new "
		    "position: kv-quantize --keys int8", layer, kv_row_type_name(type));
	return rc == 0 ? ENGINE_OK : engine_fail(e, ENGINE_ERUN, "out of memory");
}

int
reposition_keys(const struct reposition *p, uint32_t layer, void *to, const void *keys,
    enum kv_row_type type, const struct kv_rows *rows, const struct kept *kept,
    struct engine_error *e)
{
	const size_t row = kv_row_bytes(type, p->model.head_width);
	const char *from = keys;
	char *out = to;
	uint32_t g;

	for (g = 0; g < kept->heads; g++) {
		if (rows->count[g] == 0)
			continue;       /* the pointer to the keys of no rows may be NULL */
		if (reposition_head(p, layer, out, from, type, rows->pos[g], kept->keep[g],
		    kept->count[g], e) != ENGINE_OK)
			return e->code;
		from += rows->count[g] * row;
		out += kept->count[g] * row;
	}
	return ENGINE_OK;
}

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

int
rotated(struct engine_error *e, int rotate_code, const char *name, uint32_t layer,
    enum kv_row_type type)
{
	if (rotate_code == ROTATE_ERANGE)
		return engine_fail(e, ENGINE_ERUN, "%s: layer %u: %s cannot store a key at its new "
		    "position: kv-quantize --keys int8", name, layer, kv_row_type_name(type));
	return rotate_code == 0 ? ENGINE_OK : engine_fail(e, ENGINE_ERUN, "out of memory");
}

/* to[count][E] <- the rows keep[count] of one KV head, at their new positions. Returns 0, or
 * ROTATE_E*. */
static int
reposition_head(const struct reposition *p, uint32_t layer, char *to, const char *keys,
    enum kv_row_type type, const uint32_t *pos, const uint32_t *keep, uint32_t count)
{
	const uint32_t E = p->model.head_width, dims = kv_rope_dims(&p->model, layer);
	const size_t row = kv_row_bytes(type, E);
	uint32_t *old = calloc((size_t)count * 2 + 1, sizeof *old), *new, i;
	int rc;

	if (old == NULL)
		return ROTATE_ENOMEM;
	new = old + count;
	for (i = 0; i < count; i++) {
		memcpy(to + i * row, keys + keep[i] * row, row);
		old[i] = pos[keep[i]];
		new[i] = reposition_row(p, count, i);
	}
	rc = rotate_keys(to, old, new, p->freq, kv_rope_first(&p->model), dims,
	    count, E, type);
	free(old);
	return rc;
}

int
reposition_keys(const struct reposition *p, uint32_t layer, void *to, const void *keys,
    enum kv_row_type type, const struct kv_rows *rows, const struct kept *kept,
    const char *name, struct engine_error *e)
{
	const size_t row = kv_row_bytes(type, p->model.head_width);
	const char *from = keys;
	char *out = to;
	uint32_t g;
	int rc;

	for (g = 0; g < kept->heads; g++) {
		if (rows->count[g] == 0)
			continue;       /* the pointer to the keys of no rows may be NULL */
		rc = reposition_head(p, layer, out, from, type, rows->pos[g], kept->keep[g],
		    kept->count[g]);
		if (rc != 0)
			return rotated(e, rc, name, layer, type);
		from += rows->count[g] * row;
		out += kept->count[g] * row;
	}
	return ENGINE_OK;
}

/* layer_rows.c - lists of rows of the KV heads of a layer */
#include <stdlib.h>

#include "ops/layer_rows.h"

int
layer_rows_init(struct layer_rows *r, uint32_t heads, uint32_t width, enum kv_dtype dtype)
{
	*r = (struct layer_rows){ .heads = heads, .width = width, .dtype = dtype };
	r->start = calloc(heads, sizeof *r->start);
	r->len = calloc(heads, sizeof *r->len);
	r->capacity = calloc(heads, sizeof *r->capacity);
	return r->start != NULL && r->len != NULL && r->capacity != NULL ? KV_OK : KV_ENOMEM;
}

int
layer_rows_init_as(struct layer_rows *r, const struct layer_rows *other)
{
	const int rc = layer_rows_init(r, other->heads, other->width, other->dtype);

	r->k_type = other->k_type;
	r->v_type = other->v_type;
	r->v_in_k = other->v_in_k;
	return rc;
}

void
layer_rows_free(struct layer_rows *r, const struct ops *o, struct dev *d)
{
	o->free(d, r->k);
	o->free(d, r->v_in_k ? NULL : r->v);
	o->free(d, r->pos);
	free(r->start);
	free(r->len);
	free(r->capacity);
	*r = (struct layer_rows){ .k = NULL };
}

int
layer_rows_resize(struct layer_rows *r, const struct ops *o, struct dev *d, uint32_t capacity,
    int keys_only)
{
	const size_t k_row = rows_k_bytes(r), v_row = rows_v_bytes(r);
	const size_t all = (size_t)r->heads * capacity;
	const int no_values = keys_only || r->v_in_k;
	char *k = o->alloc(d, all * k_row), *v = no_values ? NULL : o->alloc(d, all * v_row);
	uint32_t *pos = o->alloc(d, all * sizeof *pos), g;

	if (k == NULL || (v == NULL && !no_values) || pos == NULL) {
		o->free(d, k);
		o->free(d, v);
		o->free(d, pos);
		return KV_ENOMEM;
	}
	for (g = 0; g < r->heads; g++) {
		const uint64_t to = (uint64_t)g * capacity, from = r->start[g];
		const size_t n = r->k != NULL ? r->len[g] : 0;

		r->start[g] = to;
		r->capacity[g] = capacity;
		if (n == 0)
			continue;
		o->copy(d, k + to * k_row, (char *)r->k + from * k_row, n * k_row);
		if (!no_values)
			o->copy(d, v + to * v_row, (char *)r->v + from * v_row, n * v_row);
		o->copy(d, pos + to, r->pos + from, n * sizeof *pos);
	}
	o->free(d, r->k);
	o->free(d, r->v_in_k ? NULL : r->v);
	o->free(d, r->pos);
	r->k = k;
	r->v = r->v_in_k && !keys_only ? k : v;
	r->pos = pos;
	return KV_OK;
}

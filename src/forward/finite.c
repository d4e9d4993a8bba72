/* finite.c - checks that what the model computes is finite */
#include <math.h>
#include <stdio.h>

#include "forward/finite.h"
#include "model/safetensors.h"
#include "model/tensor_shape.h"

static int
all_finite(const float *x, size_t n)
{
	size_t i;

	for (i = 0; i < n && isfinite(x[i]); i++)
		;
	return i == n;
}

/* Is the last row of each KV head finite? data: keys or values, of this type */
static int
rows_finite(const struct model *m, const struct layer_rows *rows, const void *data,
    enum kv_row_type type)
{
	const size_t E = rows->width, size = kv_row_bytes(type, E);
	/* E is 1024 at most, kv-snapshot(5) */
	union { float f32; uint8_t bytes[KV_ROW_WIDTH_MOST * sizeof(float)]; } row;
	float x[KV_ROW_WIDTH_MOST];
	uint32_t g;

	/* full rows are elsewhere, and are checked when they are coded */
	for (g = 0; g < rows->heads && rows->recent == NULL; g++) {
		if (rows->len[g] == 0)
			continue;
		m->ops->get(m->dev, row.bytes, (const char *)data +
		    (rows->start[g] + rows->len[g] - 1) * size, size);
		kv_rows_to_f32(x, row.bytes, type, E, 1);
		if (!all_finite(x, E))
			return 0;
	}
	return 1;
}

/* Is the tensor read in layers below l, or outside of layers? */
static int
is_read_before(const struct tensor *t, uint32_t l)
{
	unsigned layer;

	return sscanf(t->name, "model.layers.%u.", &layer) != 1 || layer < l;
}

/* Returns the first weight below layer l1 that is not finite, or NULL. */
static const struct tensor *
bad_weight(const struct model *m, uint32_t l1, size_t *at)
{
	const struct tensor *t;
	size_t i;

	for (i = 0; (t = safetensors_at(m->files, i)) != NULL; i++)
		if (m->needed[i] && t->dtype != 0 && is_read_before(t, l1) &&
		    tensor_not_finite(t, at))
			return t;
	return NULL;
}

/* Is one of n numbers on the device infinite? */
static int
holds_infinite(const struct model *m, const char *data, size_t n, enum kv_dtype dtype)
{
	const size_t size = kv_dtype_size(dtype);
	char raw[4096];
	float x[1024];
	size_t at, i, some;

	for (at = 0; at < n; at += some) {
		some = n - at < 1024 ? n - at : 1024;
		m->ops->get(m->dev, raw, data + at * size, some * size);
		kv_to_f32(x, raw, dtype, some);
		for (i = 0; i < some; i++)
			if (isinf(x[i]))
				return 1;
	}
	return 0;
}

/* Do keys, or values, of a layer have an infinity? Only rows in f16 are looked at. */
static int
layer_infinite(const struct model *m, const struct layer_rows *rows, const char *data,
    enum kv_row_type type)
{
	const size_t size = kv_row_bytes(type, rows->width);
	uint32_t g;

	for (g = 0; type == KV_ROW_F16 && g < rows->heads; g++)
		if (holds_infinite(m, data + rows->start[g] * size,
		    (size_t)rows->len[g] * rows->width, KV_F16))
			return 1;
	return 0;
}

/* Do rows in f16 have an infinity, from a number beyond its range? Skips offloaded layers. */
static int
beyond_f16(const struct cache *c, uint32_t l1)
{
	const struct layer_rows *rows;
	uint32_t l;

	for (l = 0; l < l1; l++) {
		rows = &c->layer[l];
		if (!c->positions_only[l] &&
		    (layer_infinite(c->model, rows, rows->k, rows_k_type(rows)) ||
		    layer_infinite(c->model, rows, rows->v, rows_v_type(rows))))
			return 1;
	}
	return 0;
}

const char *
finite_cause(const struct model *m, const struct cache *c, uint32_t l1, char *text, size_t size)
{
	const struct tensor *t;
	size_t at;

	if ((t = bad_weight(m, l1, &at)) != NULL)
		snprintf(text, size, "value %zu of %s is not", at, t->name);
	else if (c != NULL && beyond_f16(c, l1))
		snprintf(text, size, "f16 ends at 65504, and they go beyond: make the snapshot "
		    "with --dtype bf16 or f32");
	else
		snprintf(text, size, "the weights are; an earlier row is not, or f32 ends before "
		    "them");
	return text;
}

int
check_row(const struct cache *c, struct workspace *ws, const float *x, uint32_t position,
    uint32_t l0, uint32_t l1, char *err, size_t errlen)
{
	const struct model *m = c->model;
	const struct layer_rows *rows;
	char cause[256];
	uint32_t l;

	m->ops->get(m->dev, ws->host_x, x, m->id.hidden * sizeof *ws->host_x);
	if (all_finite(ws->host_x, m->id.hidden))
		return 0;
	for (l = l0; l < l1; l++) {
		rows = &c->layer[l];
		if (!c->positions_only[l] &&
		    (!rows_finite(m, rows, rows->k, rows_k_type(rows)) ||
		    !rows_finite(m, rows, rows->v, rows_v_type(rows))))
			break;
	}
	snprintf(err, errlen, "layer %u: %s at position %u are not finite (NaN or infinite): %s",
	    l < l1 ? l : l1 - 1, l < l1 ? "keys or values" : "hidden states behind it", position,
	    finite_cause(m, c, l < l1 ? l + 1 : l1, cause, sizeof cause));
	return MODEL_EIO;
}

/* finite.c - is what the model computes a number? */
#include <math.h>
#include <stdio.h>

#include "model/finite.h"

static int
all_finite(const float *x, size_t n)
{
	size_t i;

	for (i = 0; i < n && isfinite(x[i]); i++)
		;
	return i == n;
}

/* The last row of each KV head, of keys or values. */
static int
rows_finite(const struct model *m, const struct layer_rows *rows, const void *data)
{
	const size_t E = rows->width, size = E * kv_dtype_size(rows->dtype);
	union { float f32; uint8_t bytes[1024 * sizeof(float)]; } row;
	float x[1024];                 /* E is 1024 at most, kv-snapshot(5) */
	uint32_t g;

	for (g = 0; g < rows->heads; g++) {
		if (rows->len[g] == 0)
			continue;
		m->ops->get(m->dev, row.bytes, (const char *)data +
		    (rows->start[g] + rows->len[g] - 1) * size, size);
		kv_to_f32(x, row.bytes, rows->dtype, E);
		if (!all_finite(x, E))
			return 0;
	}
	return 1;
}

int
check_row(const struct cache *c, struct workspace *ws, const float *x, uint32_t position,
    uint32_t l0, uint32_t l1, char *err, size_t errlen)
{
	const struct model *m = c->model;
	const struct layer_rows *rows;
	uint32_t l;

	m->ops->get(m->dev, ws->host_x, x, m->id.hidden * sizeof *ws->host_x);
	if (all_finite(ws->host_x, m->id.hidden))
		return 0;
	for (l = l0; l < l1; l++) {
		rows = &c->layer[l];
		if (!rows_finite(m, rows, rows->k) || !rows_finite(m, rows, rows->v))
			break;
	}
	snprintf(err, errlen, "layer %u: %s at position %u are not finite (NaN or infinite): weights up "
	    "to there are not, or rows before", l < l1 ? l : l1 - 1,
	    l < l1 ? "keys or values" : "hidden states behind it", position);
	return MODEL_EIO;
}

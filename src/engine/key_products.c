/* key_products.c - dot products of vectors and keys: the matrix product of a device */
#include <stdlib.h>

#include "engine/key_products.h"

void
key_products_release(struct key_products *p)
{
	area_release(&p->d, &p->x);
	area_release(&p->d, &p->y);
	area_release(&p->d, &p->keys);
	free(p->wide);
	p->wide = NULL;
	p->wide_floats = 0;
}

/* Has w be the keys as elements: as they are, or, of a quantised type, those of this call in
 * f32. */
static int
as_elements(struct key_products *p, struct mat *w, const void *keys, uint32_t rows,
    struct engine_error *e)
{
	const size_t n = (size_t)rows * p->width;

	*w = (struct mat){ keys, (enum weight_type)p->type, rows, p->width };
	if (!kv_row_type_quantised(p->type))
		return ENGINE_OK;
	if (n > p->wide_floats) {
		free(p->wide);
		p->wide_floats = 0;
		if ((p->wide = engine_alloc(n, sizeof *p->wide, e)) == NULL)
			return e->code;
		p->wide_floats = n;
	}
	kv_rows_to_f32(p->wide, keys, p->type, p->width, rows);
	w->data = p->wide;
	w->type = WEIGHT_F32;
	return ENGINE_OK;
}

static int
make(struct key_products *p, float *y, const float *x, uint32_t n, const void *keys,
    uint32_t rows, struct engine_error *e)
{
	const struct ops *ops = p->d.ops;
	const size_t y_size = (size_t)n * rows * sizeof *y;
	struct mat w;
	void *dx, *dy;

	if (as_elements(p, &w, keys, rows, e) != ENGINE_OK)
		return e->code;
	if (device_shares_memory(&p->d)) {
		ops->matmul(p->d.dev, y, x, &w, NULL, n, 0);
		return device_synced(&p->d, e);
	}
	if ((dx = area_upload(&p->d, &p->x, x, (size_t)n * p->width * sizeof *x, e)) == NULL ||
	    (w.data = area_upload(&p->d, &p->keys, w.data,
	    rows * weight_row_bytes(w.type, p->width), e)) == NULL ||
	    (dy = area_room(&p->d, &p->y, y_size, e)) == NULL)
		return e->code;
	ops->matmul(p->d.dev, dy, dx, &w, NULL, n, 0);
	ops->get(p->d.dev, y, dy, y_size);
	return device_synced(&p->d, e);
}

int
key_products_make(void *with, float *y, const float *x, uint32_t n, const void *keys, uint32_t rows)
{
	struct key_products *p = with;

	return make(p, y, x, n, keys, rows, &p->error) == ENGINE_OK ? 0 : -1;
}

/* key_products.c - dot products of vectors and keys: the matrix product of a device */
#include "engine/key_products.h"

void
key_products_release(struct key_products *p)
{
	area_release(&p->d, &p->x);
	area_release(&p->d, &p->y);
	area_release(&p->d, &p->keys);
}

static int
make(struct key_products *p, float *y, const float *x, uint32_t n, const void *keys,
    uint32_t rows, struct engine_error *e)
{
	const struct ops *ops = p->d.ops;
	const size_t y_size = (size_t)n * rows * sizeof *y;
	struct mat w = { keys, p->dtype, rows, p->width };
	void *dx, *dy;

	if (device_shares_memory(&p->d)) {
		ops->matmul(p->d.dev, y, x, &w, NULL, n, 0);
		return device_synced(&p->d, e);
	}
	if ((dx = area_upload(&p->d, &p->x, x, (size_t)n * p->width * sizeof *x, e)) == NULL ||
	    (w.data = area_upload(&p->d, &p->keys, keys,
	    (size_t)rows * p->width * kv_dtype_size(p->dtype), e)) == NULL ||
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

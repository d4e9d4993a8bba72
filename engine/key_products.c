/* key_products.c - products of vectors and keys: the matrix product of a device */
#include "engine/key_products.h"

void
products_open(struct products *p, uint32_t threads, uint32_t width, enum kv_dtype dtype)
{
	*p = (struct products){ .d = device_another(threads), .width = width, .dtype = dtype };
}

void
products_release(struct products *p)
{
	device_release(&p->d, &p->x);
	device_release(&p->d, &p->y);
	device_release(&p->d, &p->keys);
}

void
products_close(struct products *p)
{
	products_release(p);
	device_close(&p->d);
}

int
products_make(void *with, float *y, const float *x, uint32_t n, const void *keys, uint32_t rows)
{
	struct products *p = with;
	const struct ops *ops = p->d.ops;
	const size_t y_size = (size_t)n * rows * sizeof *y;
	struct mat w = { keys, p->dtype, rows, p->width };
	void *dx, *dy;

	if (device_shares_memory(&p->d)) {
		ops->matmul(p->d.dev, y, x, &w, NULL, n, 0);
		device_check(&p->d);
		return 0;
	}
	dx = device_upload(&p->d, &p->x, x, (size_t)n * p->width * sizeof *x);
	w.data = device_upload(&p->d, &p->keys, keys,
	    (size_t)rows * p->width * kv_dtype_size(p->dtype));
	dy = device_room(&p->d, &p->y, y_size);
	ops->matmul(p->d.dev, dy, dx, &w, NULL, n, 0);
	ops->get(p->d.dev, y, dy, y_size);
	device_check(&p->d);
	return 0;
}

/* far_fetch.c - rows that a step reads, from the file to the slots on the device
 *
 * A device with memory of its own gets the rows of all KV heads of a layer at once: a copy for each row
 * would take some microseconds for 256 bytes. */
#include <stdlib.h>

#include "model/far_fetch.h"

static int
alloc_staged(const struct far_rows *f, struct staged *s)
{
	const size_t rows = (size_t)f->G * f->slots;

	free(s->row);
	free(s->at);
	s->row = malloc(rows * f->E * kv_dtype_size(f->dtype));
	s->at = malloc(rows * sizeof *s->at);
	return s->row != NULL && s->at != NULL ? KV_OK : KV_ENOMEM;
}

int
far_fetch_reserve(struct far_rows *f)
{
	if (f->ops->shares_memory || f->values.at != NULL)
		return KV_OK;
	return alloc_staged(f, &f->keys) == KV_OK ? alloc_staged(f, &f->values) : KV_ENOMEM;
}

void
far_fetch_free(struct far_rows *f)
{
	free(f->keys.row);
	free(f->keys.at);
	free(f->values.row);
	free(f->values.at);
}

/* Room for n more rows, which go to start + slot[] */
static char *
stage(const struct far_rows *f, struct staged *s, uint64_t start, const uint32_t *slot, uint32_t n)
{
	char *row = s->row + s->n * f->E * kv_dtype_size(f->dtype);
	uint32_t i;

	for (i = 0; i < n; i++)
		s->at[s->n++] = start + slot[i];
	return row;
}

int
far_fetch(struct far_rows *f, uint32_t l, uint32_t g, const uint32_t *row, const uint32_t *slot, uint32_t n,
    int keys, int values)
{
	const struct layer_rows *r = &f->layer[l].near;
	const size_t size = r->width * kv_dtype_size(r->dtype);
	char *k = (char *)r->k + r->start[g] * size, *v = (char *)r->v + r->start[g] * size;

	if (!f->ops->shares_memory) {
		k = keys ? stage(f, &f->keys, r->start[g], slot, n) : NULL;
		v = values ? stage(f, &f->values, r->start[g], slot, n) : NULL;
		slot = f->order;
	}
	return row_store_read(f->store, l, g, row, slot, n, keys ? k : NULL, values ? v : NULL);
}

void
far_fetch_end(struct far_rows *f, uint32_t l)
{
	const struct layer_rows *r = &f->layer[l].near;
	const size_t size = r->width * kv_dtype_size(r->dtype);

	if (f->ops->shares_memory)
		return;
	if (f->store->error[0] == '\0') {
		f->ops->put_scattered(f->dev, r->k, f->keys.at, f->keys.n, f->keys.row, size);
		f->ops->put_scattered(f->dev, r->v, f->values.at, f->values.n, f->values.row, size);
	}
	f->keys.n = f->values.n = 0;
}

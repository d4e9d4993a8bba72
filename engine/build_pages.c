/* build_pages.c - the bounds of a layer's pages, by the device: the content of pAGE */
#include <stdlib.h>

#include "libkvfile/bytes.h"
#include "engine/indexing.h"
#include "cli/tool.h"

/* Entries, and rows that lie as in KEYS, of as many as there are. Returns the entries. */
static uint64_t
lay_out(struct entries *e, struct layer_rows *rows, const struct indexing_layer *l)
{
	uint64_t first = 0, entries = 0;
	uint32_t g;

	e->start = must_alloc(e->heads, sizeof *e->start);
	e->len = must_alloc(e->heads, sizeof *e->len);
	e->capacity = must_alloc(e->heads, sizeof *e->capacity);
	rows->start = must_alloc(e->heads, sizeof *rows->start);
	rows->len = must_alloc(e->heads, sizeof *rows->len);
	for (g = 0; g < e->heads; g++) {
		rows->start[g] = first;
		rows->len[g] = l->rows->count[g];
		first += rows->len[g];
		e->start[g] = entries;
		e->capacity[g] = rows->len[g] / e->rows;
		entries += e->capacity[g];
	}
	return entries;
}

struct content
pages_content(const struct device *d, const struct indexing_layer *l, uint32_t page)
{
	const uint32_t G = l->rows->heads, E = l->head->model.head_width;
	const enum kv_dtype dtype = l->head->dtype;
	const size_t row = E * kv_dtype_size(dtype);
	struct entries e = { .bytes = 2 * row, .heads = G, .width = E, .rows = page };
	struct layer_rows rows = { .heads = G, .width = E, .dtype = dtype };
	struct area keys = { 0 }, data = { 0 };
	struct content c;

	c.size = KV_INDEX_HEAD + lay_out(&e, &rows, l) * e.bytes;
	c.data = must_alloc(c.size, 1);
	put32(c.data, page);
	e.data = device_room(d, &data, c.size - KV_INDEX_HEAD);
	if (device_shares_memory(d))
		rows.k = (void *)(uintptr_t)l->keys;    /* read only, whatever the type says */
	else
		rows.k = device_upload(d, &keys, l->keys, kv_rows_total(l->rows) * row);
	d->ops->pack_pages(d->dev, &e, &rows);
	d->ops->get(d->dev, c.data + KV_INDEX_HEAD, e.data, c.size - KV_INDEX_HEAD);
	device_check(d);
	device_release(d, &data);
	device_release(d, &keys);
	free(e.start);
	free(e.len);
	free(e.capacity);
	free(rows.start);
	free(rows.len);
	return c;
}

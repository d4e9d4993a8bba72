/* build_pages.c - makes the bounds of a layer's pages, by the device: pAGE */
#include <stdlib.h>

#include "engine/build_index.h"

/* Entries, and rows in the layout of KEYS, for the device */
struct page_lists {
	struct entries entries;
	struct layer_rows rows;
	uint64_t n;                     /* entries */
};

static int
lists_init(struct page_lists *p, const struct index_source *l, struct engine_error *e)
{
	const uint32_t G = p->entries.heads;
	uint64_t first = 0;
	uint32_t g;

	p->entries.start = engine_alloc(G, sizeof *p->entries.start, e);
	p->entries.len = engine_alloc(G, sizeof *p->entries.len, e);
	p->entries.capacity = engine_alloc(G, sizeof *p->entries.capacity, e);
	p->rows.start = engine_alloc(G, sizeof *p->rows.start, e);
	p->rows.len = engine_alloc(G, sizeof *p->rows.len, e);
	if (p->entries.start == NULL || p->entries.len == NULL || p->entries.capacity == NULL ||
	    p->rows.start == NULL || p->rows.len == NULL)
		return e->code;
	for (g = 0; g < G; g++) {
		p->rows.start[g] = first;
		p->rows.len[g] = l->rows->count[g];
		first += p->rows.len[g];
		p->entries.start[g] = p->n;
		p->entries.capacity[g] = p->rows.len[g] / p->entries.rows;
		p->n += p->entries.capacity[g];
	}
	return ENGINE_OK;
}

static void
lists_free(struct page_lists *p)
{
	free(p->entries.start);
	free(p->entries.len);
	free(p->entries.capacity);
	free(p->rows.start);
	free(p->rows.len);
}

/* data <- the entries. keys, entries: memory of the device */
static int
pack(struct page_lists *p, void *data, const struct device *d, const struct index_source *l,
    struct area *keys, struct area *entries, struct engine_error *e)
{
	const size_t row = rows_k_bytes(&p->rows);

	if ((p->entries.data = area_room(d, entries, p->n * p->entries.bytes, e)) == NULL)
		return e->code;
	if (area_share(d, keys, &p->rows.k, l->keys, kv_rows_total(l->rows) * row, e) != ENGINE_OK)
		return e->code;
	d->ops->pack_pages(d->dev, &p->entries, &p->rows);
	d->ops->get(d->dev, data, p->entries.data, p->n * p->entries.bytes);
	return device_synced(d, e);
}

int
build_pages(struct built_index *out, const struct device *d, const struct index_source *l,
    uint32_t page, struct engine_error *e)
{
	const uint32_t G = l->rows->heads, E = l->head->model.head_width;
	const enum kv_dtype dtype = l->head->dtype;
	struct page_lists p = { .entries = { .bytes = kv_entry_size(KV_PAGE, page, E, dtype),
	    .heads = G, .width = E, .rows = page },
	    .rows = { .heads = G, .width = E, .dtype = dtype,
	        .k_type = kv_head_row_type(l->head, KV_KEYS, l->layer) } };
	struct area keys = { 0 }, entries = { 0 };
	void *data;
	int rc;

	*out = (struct built_index){ .index.kind = KV_PAGE };
	rc = lists_init(&p, l, e);
	if (rc == ENGINE_OK) {
		data = out->memory[0] = engine_alloc(p.n, p.entries.bytes, e);
		rc = data != NULL ? pack(&p, data, d, l, &keys, &entries, e) : e->code;
		out->index.entries = (struct kv_entries){ page, p.n, data };
	}
	area_release(d, &entries);
	area_release(d, &keys);
	lists_free(&p);
	return rc;
}

/* offload.c - layers whose rows are elsewhere: their memory, and the rows that are on the device whatever a
 * step reads
 *
 * The list that attention goes through is in the order of the rows, not of the slots: sums are those
 * that it makes where all rows are on the device, bit by bit. */
#include <stdlib.h>
#include <string.h>

#include "offload/offload_device.h"
#include "offload/offload_host.h"
#include "ops/layer_rows.h"

struct far_rows *
far_rows_new(const struct ops *ops, struct dev *dev, struct row_store *store, uint32_t layers,
    uint32_t heads, uint32_t width, enum kv_dtype dtype, int ahead)
{
	struct far_rows *f = calloc(1, sizeof *f);

	if (f == NULL)
		return NULL;
	*f = (struct far_rows){ .ops = ops, .dev = dev, .store = store, .L = layers, .G = heads,
	    .E = width, .dtype = dtype, .chosen.rows = 1 };
	f->layer = calloc(layers, sizeof *f->layer);
	f->chosen.n = calloc(heads, sizeof *f->chosen.n);
	if (f->layer == NULL || f->chosen.n == NULL) {
		far_rows_free(f);
		return NULL;
	}
	if (ahead && ops->shares_memory)
		f->reader = far_reader_new(f);
	return f;
}

static void
free_layer(struct far_rows *f, struct far_layer *y)
{
	far_device_free(f, y);
	far_host_free(f, y);
	layer_rows_free(&y->near, f->ops, f->dev);
	free(y->last.start);
	free(y->last.len);
	free(y->last.capacity);
	free(y->stored);
	*y = (struct far_layer){ .stored = NULL };
}

void
far_rows_free(struct far_rows *f)
{
	uint32_t l;

	if (f == NULL)
		return;
	far_reader_free(f->reader);
	for (l = 0; f->layer != NULL && l < f->L; l++)
		free_layer(f, &f->layer[l]);
	f->ops->free(f->dev, f->chosen.at);
	free(f->chosen.n);
	free(f->layer);
	free(f->free);
	free(f->order);
	far_fetch_free(f);
	free(f);
}

int
far_rows_has(const struct far_rows *f, uint32_t l)
{
	return f != NULL && f->layer[l].stored != NULL;
}

/* ---- memory ---- */

int
far_rows_add(struct far_rows *f, uint32_t l)
{
	f->layer[l].stored = calloc(f->G, sizeof *f->layer[l].stored);
	return f->layer[l].stored != NULL ? KV_OK : KV_ENOMEM;
}

int
far_rows_slots(struct far_rows *f, uint64_t slots)
{
	const size_t heads = (size_t)f->L * f->G;
	uint32_t most = 1, i;
	size_t h;

	for (h = 0; h < heads; h++)
		most = f->store->count[h] > most ? f->store->count[h] : most;
	f->slots = slots < most ? (uint32_t)slots : most;
	f->free = calloc(f->slots, sizeof *f->free);
	f->order = calloc(f->slots, sizeof *f->order);
	if (f->free == NULL || f->order == NULL)
		return KV_ENOMEM;
	for (i = 0; i < f->slots; i++)
		f->order[i] = i;
	return KV_OK;
}

static int
reserve_lists(struct far_rows *f, struct far_layer *y)
{
	return y->slots.k != NULL ? far_device_lists(f, y) : far_host_lists(f, y);
}

/* Gives a layer that was added its memory, for so many rows of each KV head behind the slots. */
static int
open_layer(struct far_rows *f, uint32_t l, const uint32_t *stored, uint64_t behind)
{
	const int device = row_store_has(f->store, l);
	struct far_layer *y = &f->layer[l];
	uint32_t g;

	memcpy(y->stored, stored, f->G * sizeof *stored);
	y->last.start = calloc(f->G, sizeof *y->last.start);
	y->last.len = calloc(f->G, sizeof *y->last.len);
	y->last.capacity = calloc(f->G, sizeof *y->last.capacity);
	if (layer_rows_init(&y->near, f->G, f->E, f->dtype) != KV_OK || y->last.start == NULL ||
	    y->last.len == NULL || y->last.capacity == NULL || behind > UINT32_MAX - f->slots ||
	    layer_rows_resize(&y->near, f->ops, f->dev, f->slots + (uint32_t)behind, 0) != KV_OK ||
	    (device ? far_device_open(f, l) : far_host_open(f, y)) != KV_OK || reserve_lists(f, y) != KV_OK) {
		free_layer(f, y);
		return KV_ENOMEM;
	}
	for (g = 0; g < f->G; g++)
		y->near.len[g] = f->slots;
	return KV_OK;
}

/* The most that a KV head has from first[g] on, of n[g]. */
static uint32_t
most_from(const struct far_rows *f, const uint32_t *first, const uint32_t *n)
{
	uint32_t g, most = 0;

	for (g = 0; g < f->G; g++)
		most = n[g] - first[g] > most ? n[g] - first[g] : most;
	return most;
}

int
far_rows_take(struct far_rows *f, uint32_t l, const uint32_t *first, const struct layer_rows *from,
    uint32_t more)
{
	const size_t row = f->E * kv_dtype_size(f->dtype);
	const uint64_t behind = (uint64_t)most_from(f, first, from->len) + more;
	struct layer_rows *to = &f->layer[l].near;
	uint32_t g, n;
	uint64_t dst, src;

	if (far_rows_add(f, l) != KV_OK || row_store_take(f->store, l, from) != KV_OK ||
	    open_layer(f, l, first, behind) != KV_OK)
		return KV_ENOMEM;
	for (g = 0; g < f->G; g++) {
		if ((n = from->len[g] - first[g]) == 0)
			continue;
		dst = to->start[g] + to->len[g];
		src = from->start[g] + first[g];
		f->ops->copy(f->dev, (char *)to->k + dst * row, (char *)from->k + src * row, n * row);
		f->ops->copy(f->dev, (char *)to->v + dst * row, (char *)from->v + src * row, n * row);
		f->ops->copy(f->dev, to->pos + dst, from->pos + src, n * sizeof *to->pos);
		to->len[g] += n;
	}
	return KV_OK;
}

int
far_rows_reserve(struct far_rows *f, uint32_t more)
{
	uint32_t l, g;
	uint64_t most, need;

	for (l = 0; l < f->L; l++) {
		struct layer_rows *r = &f->layer[l].near;

		for (g = 0, most = 0; r->len != NULL && g < f->G; g++)
			most = r->len[g] > most ? r->len[g] : most;
		need = most + more;
		if (most == 0 || need <= r->capacity[0])
			continue;
		need += most / 2;
		if (need > UINT32_MAX ||
		    layer_rows_resize(r, f->ops, f->dev, (uint32_t)need, 0) != KV_OK ||
		    reserve_lists(f, &f->layer[l]) != KV_OK)
			return KV_ENOMEM;
	}
	return KV_OK;
}

const struct layer_rows *
far_rows_last(struct far_rows *f, uint32_t l, const struct layer_rows *rows)
{
	struct far_layer *y = &f->layer[l];
	struct layer_rows all = y->near;
	uint32_t g, room;

	all.start = y->last.start;
	all.len = y->last.len;
	all.capacity = y->last.capacity;
	for (g = 0; g < f->G; g++) {
		all.start[g] = y->near.start[g] + f->slots - y->stored[g];
		all.len[g] = y->near.len[g] - f->slots + y->stored[g];
		room = y->near.capacity[g] - f->slots + y->stored[g];
		all.capacity[g] = room < rows->capacity[g] ? room : rows->capacity[g];
	}
	y->last = all;
	return &y->last;
}

void
far_rows_count(struct far_rows *f, uint32_t l, const uint32_t *len)
{
	uint32_t g;

	for (g = 0; far_rows_has(f, l) && g < f->G; g++)
		f->layer[l].near.len[g] = f->slots + len[g] - f->layer[l].stored[g];
}

/* ---- rows that are there whatever a step reads ---- */

/* The rows of a KV head from `first` on, n of them, become the first ones behind the slots: from host
 * memory, */
static void
put_head(struct far_rows *f, uint32_t l, uint32_t g, uint32_t first, uint32_t n)
{
	const struct layer_rows *near = &f->layer[l].near;
	const size_t row = f->E * kv_dtype_size(f->dtype);
	const size_t to = (near->start[g] + f->slots) * row;
	const size_t from = (f->store->first[(size_t)l * f->G + g] + first) * row;

	f->ops->put(f->dev, (char *)near->k + to, (char *)f->store->kept_keys[l] + from, n * row);
	f->ops->put(f->dev, (char *)near->v + to, (char *)f->store->kept_values[l] + from, n * row);
}

/* or from wherever they are. */
static int
bring_head(struct far_rows *f, uint32_t l, uint32_t g, uint32_t first, uint32_t n)
{
	const struct far_layer *y = &f->layer[l];
	uint32_t *row = y->row + (size_t)g * f->slots, *slot = y->slot + (size_t)g * f->slots;
	uint32_t at, part, i;
	int rc = KV_OK;

	for (at = 0; rc == KV_OK && at < n; at += part) {
		part = n - at < f->slots ? n - at : f->slots;
		for (i = 0; i < part; i++) {
			row[i] = first + at + i;
			slot[i] = f->slots + at + i;
		}
		rc = far_fetch(f, l, g, row, slot, part, 1, 1);
		far_fetch_end(f, l);
	}
	return rc;
}

int
far_rows_bring(struct far_rows *f, uint32_t l, const uint32_t *first, const struct layer_rows *rows,
    uint32_t more)
{
	const uint32_t *count = f->store->count + (size_t)l * f->G;
	struct layer_rows *near = &f->layer[l].near;
	uint32_t g, n;
	int rc = open_layer(f, l, first, (uint64_t)most_from(f, first, count) + more);

	for (g = 0; rc == KV_OK && g < f->G; g++) {
		if ((n = count[g] - first[g]) == 0)
			continue;
		if (far_rows_on_device(f, l))
			put_head(f, l, g, first[g], n);
		else
			rc = bring_head(f, l, g, first[g], n);
		f->ops->copy(f->dev, near->pos + near->start[g] + f->slots,
		    rows->pos + rows->start[g] + first[g], n * sizeof *near->pos);
		near->len[g] += n;
	}
	return rc;
}

int
far_rows_get(struct far_rows *f, uint32_t l, uint32_t g, enum kv_kind kind, void *to)
{
	const struct far_layer *y = &f->layer[l];
	const size_t row = f->E * kv_dtype_size(f->dtype);
	const char *from = kind == KV_KEYS ? y->near.k : y->near.v;
	const int rc = row_store_read_first(f->store, l, g, kind, y->stored[g], to);

	if (rc == KV_OK && y->near.len[g] > f->slots)
		f->ops->get(f->dev, (char *)to + y->stored[g] * row,
		    from + (y->near.start[g] + f->slots) * row, (y->near.len[g] - f->slots) * row);
	return rc;
}

/* ---- a step ---- */

const struct chosen *
far_rows_end(struct far_rows *f, uint32_t l)
{
	const struct chosen *there = far_rows_on_device(f, l) ? far_device_end(f, l) : far_host_end(f, l);

	f->layer[l].begun = 0;
	return there;
}

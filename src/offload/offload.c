/* offload.c - offloaded layers: their memory, and the tail, which is always on the device
 *
 * The list that attention reads is in the order of the rows, not of the slots: its sums are equal,
 * to the bit, to those of a layer whose rows are all on the device. */
#include <stdlib.h>
#include <string.h>

#include "offload/offload_device.h"
#include "offload/offload_host.h"
#include "offload/offload_whole.h"
#include "ops/layer_rows.h"

struct offload *
offload_new(const struct ops *ops, struct dev *dev, struct offload_store *store, uint32_t layers,
    uint32_t heads, int ahead)
{
	struct offload *f = calloc(1, sizeof *f);

	if (f == NULL)
		return NULL;
	*f = (struct offload){ .ops = ops, .dev = dev, .store = store, .L = layers, .G = heads,
	    .chosen.rows = 1 };
	f->layer = calloc(layers, sizeof *f->layer);
	f->chosen.n = calloc(heads, sizeof *f->chosen.n);
	f->step_n = calloc(heads, sizeof *f->step_n);
	if (f->layer == NULL || f->chosen.n == NULL || f->step_n == NULL) {
		offload_free(f);
		return NULL;
	}
	if (ahead && ops->shares_memory)
		f->thread = offload_thread_new(f);
	return f;
}

static void
free_layer(struct offload *f, struct offload_layer *y)
{
	offload_device_free(f, y);
	offload_host_free(f, y);
	layer_rows_free(&y->device_rows, f->ops, f->dev);
	free(y->tail.start);
	free(y->tail.len);
	free(y->tail.capacity);
	free(y->host_count);
	*y = (struct offload_layer){ .host_count = NULL };
}

void
offload_free(struct offload *f)
{
	uint32_t l;

	if (f == NULL)
		return;
	offload_thread_free(f->thread);
	for (l = 0; f->layer != NULL && l < f->L; l++)
		free_layer(f, &f->layer[l]);
	f->ops->free(f->dev, f->chosen.at);
	free(f->chosen.n);
	free(f->step_row);
	free(f->step_n);
	free(f->layer);
	free(f->free);
	free(f->order);
	offload_read_free(f);
	offload_whole_free(f);
	free(f);
}

int
offload_has(const struct offload *f, uint32_t l)
{
	return f != NULL && f->layer[l].host_count != NULL;
}

/* ---- memory ---- */

int
offload_mark(struct offload *f, uint32_t l)
{
	f->layer[l].host_count = calloc(f->G, sizeof *f->layer[l].host_count);
	return f->layer[l].host_count != NULL ? KV_OK : KV_ENOMEM;
}

int
offload_set_slots(struct offload *f, uint64_t slots)
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
reserve_lists(struct offload *f, struct offload_layer *y)
{
	return y->slots.k != NULL ? offload_device_lists(f, y) : offload_host_lists(f, y);
}

/* Allocates the memory of a marked layer, with a tail of `tail` rows of each KV head; its rows have
 * the types of `rows`. */
static int
allocate_layer(struct offload *f, uint32_t l, const uint32_t *host_count,
    const struct layer_rows *rows, uint64_t tail)
{
	const int device = offload_store_in_host_memory(f->store, l);
	struct offload_layer *y = &f->layer[l];
	uint32_t g;

	memcpy(y->host_count, host_count, f->G * sizeof *host_count);
	y->tail.start = calloc(f->G, sizeof *y->tail.start);
	y->tail.len = calloc(f->G, sizeof *y->tail.len);
	y->tail.capacity = calloc(f->G, sizeof *y->tail.capacity);
	if (layer_rows_init_as(&y->device_rows, rows) != KV_OK ||
	    y->tail.start == NULL || y->tail.len == NULL || y->tail.capacity == NULL ||
	    tail > UINT32_MAX - f->slots ||
	    layer_rows_resize(&y->device_rows, f->ops, f->dev, f->slots + (uint32_t)tail,
	    0) != KV_OK ||
	    (device ? offload_device_open(f, l) : offload_host_open(f, y)) != KV_OK ||
	    reserve_lists(f, y) != KV_OK) {
		free_layer(f, y);
		return KV_ENOMEM;
	}
	for (g = 0; g < f->G; g++)
		y->device_rows.len[g] = f->slots;
	return KV_OK;
}

/* Returns the greatest n[g] - first[g] of the KV heads. */
static uint32_t
most_from(const struct offload *f, const uint32_t *first, const uint32_t *n)
{
	uint32_t g, most = 0;

	for (g = 0; g < f->G; g++)
		most = n[g] - first[g] > most ? n[g] - first[g] : most;
	return most;
}

int
offload_move_layer(struct offload *f, uint32_t l, const uint32_t *first,
    const struct layer_rows *from, uint32_t more)
{
	const size_t k_row = rows_k_bytes(from), v_row = rows_v_bytes(from);
	const uint64_t tail = (uint64_t)most_from(f, first, from->len) + more;
	struct layer_rows *to = &f->layer[l].device_rows;
	uint32_t g, n;
	uint64_t dst, src;

	if (offload_mark(f, l) != KV_OK || offload_store_copy_layer(f->store, l, from) != KV_OK ||
	    allocate_layer(f, l, first, from, tail) != KV_OK)
		return KV_ENOMEM;
	for (g = 0; g < f->G; g++) {
		if ((n = from->len[g] - first[g]) == 0)
			continue;
		dst = to->start[g] + to->len[g];
		src = from->start[g] + first[g];
		f->ops->copy(f->dev, (char *)to->k + dst * k_row, (char *)from->k + src * k_row,
		    n * k_row);
		if (!from->v_in_k)
			f->ops->copy(f->dev, (char *)to->v + dst * v_row,
			    (char *)from->v + src * v_row, n * v_row);
		f->ops->copy(f->dev, to->pos + dst, from->pos + src, n * sizeof *to->pos);
		to->len[g] += n;
	}
	return KV_OK;
}

int
offload_reserve(struct offload *f, uint32_t more)
{
	uint32_t l, g;
	uint64_t most, need;

	for (l = 0; l < f->L; l++) {
		struct layer_rows *r = &f->layer[l].device_rows;

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
offload_tail(struct offload *f, uint32_t l, const struct layer_rows *rows)
{
	struct offload_layer *y = &f->layer[l];
	struct layer_rows all = y->device_rows;
	uint32_t g, room;

	all.start = y->tail.start;
	all.len = y->tail.len;
	all.capacity = y->tail.capacity;
	for (g = 0; g < f->G; g++) {
		all.start[g] = y->device_rows.start[g] + f->slots - y->host_count[g];
		all.len[g] = y->device_rows.len[g] - f->slots + y->host_count[g];
		room = y->device_rows.capacity[g] - f->slots + y->host_count[g];
		all.capacity[g] = room < rows->capacity[g] ? room : rows->capacity[g];
	}
	y->tail = all;
	return &y->tail;
}

void
offload_set_len(struct offload *f, uint32_t l, const uint32_t *len)
{
	uint32_t g;

	for (g = 0; offload_has(f, l) && g < f->G; g++)
		f->layer[l].device_rows.len[g] = f->slots + len[g] - f->layer[l].host_count[g];
}

/* ---- the tail ---- */

/* Copies n rows of a KV head, from `first` on, from host memory to the beginning of the tail. */
static void
put_tail(struct offload *f, uint32_t l, uint32_t g, uint32_t first, uint32_t n)
{
	const struct layer_rows *to = &f->layer[l].device_rows;
	const size_t k_row = rows_k_bytes(to), v_row = rows_v_bytes(to);
	const uint64_t at = to->start[g] + f->slots;
	const uint64_t from = f->store->first[(size_t)l * f->G + g] + first;

	f->ops->put(f->dev, (char *)to->k + at * k_row,
	    (char *)f->store->host_keys[l] + from * k_row, n * k_row);
	if (!to->v_in_k)
		f->ops->put(f->dev, (char *)to->v + at * v_row,
		    (char *)f->store->host_values[l] + from * v_row, n * v_row);
}

/* As put_tail(), but reads the rows from the store, which may have them in its file. */
static int
read_tail(struct offload *f, uint32_t l, uint32_t g, uint32_t first, uint32_t n)
{
	const struct offload_layer *y = &f->layer[l];
	uint32_t *row = y->row + (size_t)g * f->slots, *slot = y->slot + (size_t)g * f->slots;
	uint32_t at, part, i;
	int rc = KV_OK;

	for (at = 0; rc == KV_OK && at < n; at += part) {
		part = n - at < f->slots ? n - at : f->slots;
		for (i = 0; i < part; i++) {
			row[i] = first + at + i;
			slot[i] = f->slots + at + i;
		}
		rc = offload_read(f, l, g, row, slot, part, 1, 1);
		offload_read_end(f, l);
	}
	return rc;
}

int
offload_open_layer(struct offload *f, uint32_t l, const uint32_t *first,
    const struct layer_rows *rows, uint32_t more)
{
	const uint32_t *count = f->store->count + (size_t)l * f->G;
	struct layer_rows *to = &f->layer[l].device_rows;
	uint32_t g, n;
	int rc = allocate_layer(f, l, first, rows, (uint64_t)most_from(f, first, count) + more);

	for (g = 0; rc == KV_OK && g < f->G; g++) {
		if ((n = count[g] - first[g]) == 0)
			continue;
		if (offload_device_reads(f, l))
			put_tail(f, l, g, first[g], n);
		else
			rc = read_tail(f, l, g, first[g], n);
		f->ops->copy(f->dev, to->pos + to->start[g] + f->slots,
		    rows->pos + rows->start[g] + first[g], n * sizeof *to->pos);
		to->len[g] += n;
	}
	return rc;
}

int
offload_get(struct offload *f, uint32_t l, uint32_t g, enum kv_kind kind, void *to)
{
	const struct offload_layer *y = &f->layer[l];
	const size_t row = kind == KV_KEYS ? rows_k_bytes(&y->device_rows) :
	    rows_v_bytes(&y->device_rows);
	const char *from = kind == KV_KEYS ? y->device_rows.k : y->device_rows.v;
	int rc;

	if (kind == KV_VALS && y->device_rows.v_in_k)
		return KV_OK;
	rc = offload_store_read_first(f->store, l, g, kind, y->host_count[g], to);
	if (rc == KV_OK && y->device_rows.len[g] > f->slots)
		f->ops->get(f->dev, (char *)to + y->host_count[g] * row,
		    from + (y->device_rows.start[g] + f->slots) * row,
		    (y->device_rows.len[g] - f->slots) * row);
	return rc;
}

/* ---- a step ---- */

int
offload_start(struct offload *f, uint32_t l, const struct offload_step *step)
{
	f->listed &= step->same;
	if (offload_device_reads(f, l))
		offload_device_start(f, l, step);
	else if (!offload_host_start(f, l, step))
		return 0;
	f->layer[l].begun = 1;
	return 1;
}

const struct chosen *
offload_wait(struct offload *f, uint32_t l)
{
	const struct chosen *there = offload_device_reads(f, l) ?
	    offload_device_wait(f, l) : offload_host_wait(f, l);

	f->layer[l].begun = 0;
	return there;
}

void
offload_fetched_bytes(struct offload *f, uint32_t l, uint64_t *bytes)
{
	if (!offload_device_reads(f, l))
		memcpy(bytes, f->layer[l].fetched, f->G * sizeof *bytes);
	else
		offload_device_fetched(f, l, bytes);
}

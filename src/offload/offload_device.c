/* offload_device.c - slots that the device fills from host memory
 *
 * Neither a choice nor a row passes through the host while a token runs. What is ahead is fetched on a
 * stream of its own while other layers run. */
#include <stdlib.h>

#include "offload/offload_device.h"

static void *
cleared(const struct far_rows *f, size_t bytes)
{
	void *p = f->ops->alloc(f->dev, bytes);

	if (p != NULL)
		f->ops->clear(f->dev, p, bytes);
	return p;
}

int
far_device_open(struct far_rows *f, uint32_t l)
{
	const size_t slots = (size_t)f->G * f->slots * sizeof(uint32_t);
	struct far_layer *y = &f->layer[l];
	struct far_slots *s = &y->slots;
	uint32_t g, most = 1;

	for (g = 0; g < f->G; g++)
		most = y->stored[g] > most ? y->stored[g] : most;
	*s = (struct far_slots){ .k = f->store->kept_keys[l], .v = f->store->kept_values[l],
	    .start = f->store->first + (size_t)l * f->G, .stored = y->stored, .slots = f->slots,
	    .to = &y->near, .row = cleared(f, slots), .slot = cleared(f, f->G * (size_t)most * sizeof *s->slot),
	    .stride = most, .n_new = cleared(f, f->G * sizeof *s->n_new), .new_row = cleared(f, slots),
	    .new_slot = cleared(f, slots), .brought = cleared(f, f->G * sizeof *s->brought) };
	y->list = (struct chosen){ .rows = 1, .n = calloc(f->G, sizeof *y->list.n) };
	if (s->row == NULL || s->slot == NULL || s->n_new == NULL || s->new_row == NULL ||
	    s->new_slot == NULL || s->brought == NULL || y->list.n == NULL)
		return KV_ENOMEM;
	return KV_OK;
}

int
far_device_lists(struct far_rows *f, struct far_layer *y)
{
	f->ops->free(f->dev, y->list.at);
	y->list.stride = y->near.capacity[0];
	y->list.at = f->ops->alloc(f->dev, f->G * y->list.stride * sizeof *y->list.at);
	return y->list.at != NULL ? KV_OK : KV_ENOMEM;
}

void
far_device_wait(struct far_rows *f, const struct far_layer *y)
{
	if (y->begun && y->ahead)
		f->ops->fetch_wait(f->dev, y->fetch);
}

const struct chosen *
far_device_end(struct far_rows *f, uint32_t l)
{
	far_device_wait(f, &f->layer[l]);
	return &f->layer[l].list;
}

void
far_device_free(struct far_rows *f, struct far_layer *y)
{
	struct far_slots *s = &y->slots;
	void *const all[] = { s->row, s->slot, s->n_new, s->new_row, s->new_slot, s->brought, y->list.at };
	size_t i;

	far_device_wait(f, y);
	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		f->ops->free(f->dev, all[i]);
	free(y->list.n);
}

int
far_rows_on_device(const struct far_rows *f, uint32_t l)
{
	return f->layer[l].slots.k != NULL;
}

void
far_rows_fetch(struct far_rows *f, uint32_t l, const struct chosen *chosen, const struct layer_rows *rows,
    const struct low_rank *low, int ahead)
{
	struct far_layer *y = &f->layer[l];

	y->fetch = f->ops->fetch_chosen(f->dev, &y->list, chosen, rows, low, &y->slots, ahead);
	y->ahead = ahead;
	y->begun = 1;
}

void
far_rows_fetched_all(struct far_rows *f)
{
	uint32_t l;

	for (l = 0; l < f->L; l++)
		far_device_wait(f, &f->layer[l]);
}

void
far_rows_brought(struct far_rows *f, uint32_t l, uint64_t *bytes)
{
	const uint64_t row = f->E * kv_dtype_size(f->dtype);
	uint32_t g;

	f->ops->get(f->dev, bytes, f->layer[l].slots.brought, f->G * sizeof *bytes);
	for (g = 0; g < f->G; g++)
		bytes[g] *= row;
}

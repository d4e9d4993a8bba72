/* offload_device.c - slots that the device fills from host memory
 *
 * Neither a selection nor a row passes through the host while a token runs. Fetches ahead are on a
 * stream of their own, at the same time as other layers run. */
#include <stdlib.h>

#include "offload/offload_device.h"

static void *
cleared(const struct offload *f, size_t bytes)
{
	void *p = f->ops->alloc(f->dev, bytes);

	if (p != NULL)
		f->ops->clear(f->dev, p, bytes);
	return p;
}

int
offload_device_open(struct offload *f, uint32_t l)
{
	const size_t slots = (size_t)f->G * f->slots * sizeof(uint32_t);
	struct offload_layer *y = &f->layer[l];
	struct offload_slots *s = &y->slots;
	uint32_t g, most = 1;

	for (g = 0; g < f->G; g++)
		most = y->host_count[g] > most ? y->host_count[g] : most;
	*s = (struct offload_slots){ .k = f->store->host_keys[l], .v = f->store->host_values[l],
	    .start = f->store->first + (size_t)l * f->G, .host_count = y->host_count,
	    .slots = f->slots, .to = &y->device_rows, .row = cleared(f, slots),
	    .slot = cleared(f, f->G * (size_t)most * sizeof *s->slot), .stride = most,
	    .n_new = cleared(f, f->G * sizeof *s->n_new), .new_row = cleared(f, slots),
	    .new_slot = cleared(f, slots), .fetched = cleared(f, f->G * sizeof *s->fetched) };
	y->list = (struct chosen){ .rows = 1, .n = calloc(f->G, sizeof *y->list.n) };
	if (s->row == NULL || s->slot == NULL || s->n_new == NULL || s->new_row == NULL ||
	    s->new_slot == NULL || s->fetched == NULL || y->list.n == NULL)
		return KV_ENOMEM;
	return KV_OK;
}

int
offload_device_lists(struct offload *f, struct offload_layer *y)
{
	f->ops->free(f->dev, y->list.at);
	y->list.stride = y->device_rows.capacity[0];
	y->list.at = f->ops->alloc(f->dev, f->G * y->list.stride * sizeof *y->list.at);
	return y->list.at != NULL ? KV_OK : KV_ENOMEM;
}

void
offload_device_order(struct offload *f, const struct offload_layer *y)
{
	if (y->begun && y->ahead)
		f->ops->fetch_wait(f->dev, y->fetch);
}

const struct chosen *
offload_device_wait(struct offload *f, uint32_t l)
{
	offload_device_order(f, &f->layer[l]);
	return &f->layer[l].list;
}

void
offload_device_free(struct offload *f, struct offload_layer *y)
{
	struct offload_slots *s = &y->slots;
	void *const all[] = { s->row, s->slot, s->n_new, s->new_row, s->new_slot, s->fetched,
		y->list.at };
	size_t i;

	offload_device_order(f, y);
	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		f->ops->free(f->dev, all[i]);
	free(y->list.n);
}

int
offload_device_reads(const struct offload *f, uint32_t l)
{
	return f->layer[l].slots.k != NULL;
}

void
offload_device_start(struct offload *f, uint32_t l, const struct offload_step *step)
{
	const struct low_rank *low = step->chosen != NULL ? step->low : NULL;
	struct offload_layer *y = &f->layer[l];

	y->fetch = f->ops->fetch_chosen(f->dev, &y->list, step->chosen, step->rows, low, &y->slots,
	    step->ahead);
	y->ahead = step->ahead;
}

void
offload_wait_all(struct offload *f)
{
	uint32_t l;

	for (l = 0; l < f->L; l++)
		offload_device_order(f, &f->layer[l]);
}

void
offload_device_fetched(struct offload *f, uint32_t l, uint64_t *fetched)
{
	f->ops->get(f->dev, fetched, f->layer[l].slots.fetched, f->G * sizeof *fetched);
}

/* offload_read.c - rows of a step, from the store to the slots on the device
 *
 * A device with memory of its own gets the rows of all KV heads of a layer at once: a copy for each
 * row would take some microseconds for 256 bytes. */
#include <stdlib.h>

#include "offload/offload_read.h"

static int
alloc_staged(const struct offload *f, struct staged *s)
{
	const size_t rows = (size_t)f->G * f->slots;

	free(s->row);
	free(s->at);
	s->row = malloc(rows * offload_store_widest(f->store));
	s->at = malloc(rows * sizeof *s->at);
	return s->row != NULL && s->at != NULL ? KV_OK : KV_ENOMEM;
}

int
offload_read_reserve(struct offload *f)
{
	if (f->ops->shares_memory || f->values.at != NULL)
		return KV_OK;
	return alloc_staged(f, &f->keys) == KV_OK ? alloc_staged(f, &f->values) : KV_ENOMEM;
}

void
offload_read_free(struct offload *f)
{
	free(f->keys.row);
	free(f->keys.at);
	free(f->values.row);
	free(f->values.at);
}

/* Returns room for n more rows of `size` bytes, to be copied to rows start + slot[]. */
static char *
stage(struct staged *s, size_t size, uint64_t start, const uint32_t *slot, uint32_t n)
{
	char *row = s->row + s->n * size;
	uint32_t i;

	for (i = 0; i < n; i++)
		s->at[s->n++] = start + slot[i];
	return row;
}

int
offload_read(struct offload *f, uint32_t l, uint32_t g, const uint32_t *row, const uint32_t *slot,
    uint32_t n, int keys, int values)
{
	const struct layer_rows *r = &f->layer[l].device_rows;
	const size_t k_row = rows_k_bytes(r), v_row = rows_v_bytes(r);
	char *k = (char *)r->k + r->start[g] * k_row, *v = (char *)r->v + r->start[g] * v_row;

	keys |= r->v_in_k;              /* a row is both, and is read once */
	values &= !r->v_in_k;
	if (!f->ops->shares_memory) {
		k = keys ? stage(&f->keys, k_row, r->start[g], slot, n) : NULL;
		v = values ? stage(&f->values, v_row, r->start[g], slot, n) : NULL;
		slot = f->order;
	}
	return offload_store_read(f->store, l, g, row, slot, n, keys ? k : NULL, values ? v : NULL);
}

void
offload_read_end(struct offload *f, uint32_t l)
{
	const struct layer_rows *r = &f->layer[l].device_rows;

	if (f->ops->shares_memory)
		return;
	if (f->store->error[0] == '\0') {
		f->ops->put_scattered(f->dev, r->k, f->keys.at, f->keys.n, f->keys.row,
		    rows_k_bytes(r));
		f->ops->put_scattered(f->dev, r->v, f->values.at, f->values.n, f->values.row,
		    rows_v_bytes(r));
	}
	f->keys.n = f->values.n = 0;
}

/* Reads new rows of a KV head into their slots. */
static int
read_rows(struct offload *f, uint32_t l, uint32_t g)
{
	enum { AT_ONCE = 256 };
	const struct offload_layer *y = &f->layer[l];
	const uint32_t *row = y->row + (size_t)g * f->slots, *slot = y->slot + (size_t)g * f->slots;
	uint32_t key_row[AT_ONCE], key_slot[AT_ONCE], i, n;
	int rc;

	if (y->new_keys[g] == y->new[g])
		return offload_read(f, l, g, row, slot, y->new[g], 1, 1);
	rc = offload_read(f, l, g, row, slot, y->new[g], 0, 1);
	for (i = 0; rc == KV_OK && y->new_keys[g] > 0 && i < y->new[g]; ) {
		for (n = 0; n < AT_ONCE && i < y->new[g]; i++)
			if (offload_has_key(&y->keys, g, row[i])) {
				key_row[n] = row[i];
				key_slot[n++] = slot[i];
			}
		rc = offload_read(f, l, g, key_row, key_slot, n, 1, 0);
	}
	return rc;
}

void
offload_read_layer(struct offload *f, uint32_t l)
{
	uint32_t g;

	for (g = 0; g < f->G; g++)
		if (f->layer[l].new[g] > 0 && read_rows(f, l, g) != KV_OK)
			break;                          /* store->error */
	offload_read_end(f, l);
}

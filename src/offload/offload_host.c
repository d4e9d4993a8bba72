/* offload_host.c - slots that the host fills: what moves in and out of them */
#include <stdlib.h>
#include <string.h>

#include "offload/offload_host.h"

/* ---- memory ---- */

int
far_host_open(struct far_rows *f, struct far_layer *y)
{
	const size_t all = (size_t)f->G * f->slots;
	uint32_t g, i;
	int ok;

	y->in = calloc(f->G, sizeof *y->in);
	y->new = calloc(f->G, sizeof *y->new);
	y->new_keys = calloc(f->G, sizeof *y->new_keys);
	y->n = calloc(f->G, sizeof *y->n);
	y->row = malloc(all * sizeof *y->row);
	y->slot = malloc(all * sizeof *y->slot);
	ok = far_fetch_reserve(f) == KV_OK && y->in != NULL && y->new != NULL &&
	    y->new_keys != NULL && y->n != NULL && y->row != NULL && y->slot != NULL;
	for (g = 0; ok && g < f->G; g++) {
		y->in[g].row = malloc(f->slots * sizeof *y->in[g].row);
		y->in[g].slot = malloc(f->slots * sizeof *y->in[g].slot);
		ok = y->in[g].row != NULL && y->in[g].slot != NULL;
		for (i = 0; ok && i < f->slots; i++)
			y->in[g].slot[i] = i;
	}
	return ok ? KV_OK : KV_ENOMEM;
}

int
far_host_lists(struct far_rows *f, struct far_layer *y)
{
	const size_t stride = y->near.capacity[0], all = f->G * stride;

	free(y->place);
	y->place = calloc(all, sizeof *y->place);
	if (stride > f->chosen.stride) {
		f->ops->free(f->dev, f->chosen.at);
		f->chosen.at = f->ops->alloc(f->dev, all * sizeof *f->chosen.at);
		f->chosen.stride = f->chosen.at != NULL ? stride : 0;
	}
	return y->place != NULL && f->chosen.at != NULL ? KV_OK : KV_ENOMEM;
}

void
far_host_free(struct far_rows *f, struct far_layer *y)
{
	uint32_t g;

	for (g = 0; y->in != NULL && g < f->G; g++) {
		free(y->in[g].row);
		free(y->in[g].slot);
	}
	free(y->in);
	free(y->new);
	free(y->new_keys);
	free(y->row);
	free(y->slot);
	free(y->n);
	free(y->place);
}

/* ---- a step ---- */

/* Merges the rows of a KV head that a step reads with those of the step before, both ascending: y->new[g]
 * of them are to be read. y->place has where each is. */
static void
place_rows(struct far_rows *f, struct far_layer *y, uint32_t g, const uint32_t *row, uint32_t n)
{
	const size_t at = (size_t)g * f->slots;
	uint32_t *list = y->place + g * (size_t)y->near.capacity[0];
	uint32_t *new_row = y->row + at, *new_slot = y->slot + at;
	struct residents *in = &y->in[g];
	uint32_t i, j, left = 0, new = 0, stored;

	for (stored = 0; stored < n && row[stored] < y->stored[g]; stored++)
		;
	for (i = j = 0; i < stored || j < in->n; ) {
		if (j == in->n || (i < stored && row[i] < in->row[j])) {
			new_row[new++] = row[i];
			list[i++] = UINT32_MAX;         /* its slot is not known yet */
		} else if (i == stored || row[i] > in->row[j]) {
			f->free[left++] = in->slot[j++];
		} else {
			list[i++] = in->slot[j++];
		}
	}
	while (j < f->slots)                            /* those that were free already */
		f->free[left++] = in->slot[j++];
	for (i = j = 0; i < stored; i++)
		if (list[i] == UINT32_MAX) {
			list[i] = new_slot[j] = f->free[j];
			j++;
		}
	memcpy(in->row, row, stored * sizeof *row);
	memcpy(in->slot, list, stored * sizeof *list);
	memcpy(in->slot + stored, f->free + new, (left - new) * sizeof *f->free);
	in->n = stored;
	for (i = stored; i < n; i++)
		list[i] = f->slots + (row[i] - y->stored[g]);
	y->new[g] = new;
	y->n[g] = n;
	for (i = y->new_keys[g] = 0; i < new; i++)
		y->new_keys[g] += far_has_key(&y->keys, g, new_row[i]);
}

void
far_rows_begin(struct far_rows *f, uint32_t l, const uint32_t *row, size_t stride, const uint32_t *n,
    const struct far_keys *keys)
{
	struct far_layer *y = &f->layer[l];
	uint32_t g;

	y->keys = keys != NULL ? *keys : (struct far_keys){ .exact = NULL };
	for (g = 0; g < f->G; g++)
		place_rows(f, y, g, row + g * stride, n[g]);
	y->begun = 1;
	if (f->reader != NULL)
		far_reader_begin(f->reader, l);
}

void
far_rows_place(struct far_rows *f, uint32_t l, const struct layer_rows *rows)
{
	const struct far_layer *y = &f->layer[l];
	const struct layer_rows *near = &y->near;
	uint32_t g, i;

	for (g = 0; g < f->G; g++)
		for (i = 0; i < y->new[g]; i++) {
			const size_t at = (size_t)g * f->slots + i;

			f->ops->copy(f->dev, near->pos + near->start[g] + y->slot[at],
			    rows->pos + rows->start[g] + y->row[at], sizeof *near->pos);
		}
}

const struct chosen *
far_host_end(struct far_rows *f, uint32_t l)
{
	struct far_layer *y = &f->layer[l];
	uint32_t g;

	if (f->reader != NULL)
		far_reader_wait(f->reader, l);
	else
		far_fetch_layer(f, l);
	if (f->store->error[0] != '\0')
		return NULL;
	memcpy(f->chosen.n, y->n, f->G * sizeof *y->n);
	for (g = 0; g < f->G; g++)
		f->ops->put(f->dev, f->chosen.at + g * f->chosen.stride,
		    y->place + g * (size_t)y->near.capacity[0], y->n[g] * sizeof *y->place);
	return &f->chosen;
}

uint64_t
far_rows_fetched(const struct far_rows *f, uint32_t l, uint32_t g)
{
	const struct far_layer *y = &f->layer[l];

	return ((uint64_t)y->new[g] + y->new_keys[g]) * f->E * kv_dtype_size(f->dtype);
}

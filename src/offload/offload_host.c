/* offload_host.c - slots that the host fills: which rows enter and leave them */
#include <stdlib.h>
#include <string.h>

#include "offload/offload_host.h"

/* ---- memory ---- */

int
offload_host_open(struct offload *f, struct offload_layer *y)
{
	const size_t all = (size_t)f->G * f->slots;
	uint32_t g, i;
	int ok;

	y->slot_table = calloc(f->G, sizeof *y->slot_table);
	y->new = calloc(f->G, sizeof *y->new);
	y->new_keys = calloc(f->G, sizeof *y->new_keys);
	y->n = calloc(f->G, sizeof *y->n);
	y->fetched = calloc(f->G, sizeof *y->fetched);
	y->row = malloc(all * sizeof *y->row);
	y->slot = malloc(all * sizeof *y->slot);
	ok = offload_read_reserve(f) == KV_OK && y->slot_table != NULL && y->new != NULL &&
	    y->new_keys != NULL && y->n != NULL && y->fetched != NULL && y->row != NULL &&
	    y->slot != NULL;
	for (g = 0; ok && g < f->G; g++) {
		y->slot_table[g].row = malloc(f->slots * sizeof *y->slot_table[g].row);
		y->slot_table[g].slot = malloc(f->slots * sizeof *y->slot_table[g].slot);
		ok = y->slot_table[g].row != NULL && y->slot_table[g].slot != NULL;
		for (i = 0; ok && i < f->slots; i++)
			y->slot_table[g].slot[i] = i;
	}
	return ok ? KV_OK : KV_ENOMEM;
}

int
offload_host_lists(struct offload *f, struct offload_layer *y)
{
	const size_t stride = y->device_rows.capacity[0], all = f->G * stride;

	free(y->read_at);
	y->read_at = calloc(all, sizeof *y->read_at);
	if (stride > f->chosen.stride) {
		f->ops->free(f->dev, f->chosen.at);
		free(f->step_row);
		f->chosen.at = f->ops->alloc(f->dev, all * sizeof *f->chosen.at);
		f->step_row = malloc(all * sizeof *f->step_row);
		f->chosen.stride = f->chosen.at != NULL && f->step_row != NULL ? stride : 0;
	}
	return y->read_at != NULL && f->chosen.stride > 0 ? KV_OK : KV_ENOMEM;
}

void
offload_host_free(struct offload *f, struct offload_layer *y)
{
	uint32_t g;

	for (g = 0; y->slot_table != NULL && g < f->G; g++) {
		free(y->slot_table[g].row);
		free(y->slot_table[g].slot);
	}
	free(y->slot_table);
	free(y->new);
	free(y->new_keys);
	free(y->row);
	free(y->slot);
	free(y->n);
	free(y->fetched);
	free(y->read_at);
}

/* ---- a step ---- */

/* Merges the rows of a KV head that a step reads with those of the step before, both ascending.
 * y->new[g] <- how many are in no slot; y->read_at <- where each will be. */
static void
assign_slots(struct offload *f, struct offload_layer *y, uint32_t g, const uint32_t *row,
    uint32_t n)
{
	const size_t at = (size_t)g * f->slots;
	uint32_t *list = y->read_at + g * (size_t)y->device_rows.capacity[0];
	uint32_t *new_row = y->row + at, *new_slot = y->slot + at;
	struct slot_table *table = &y->slot_table[g];
	uint32_t i, j, left = 0, new = 0, offloaded;

	for (offloaded = 0; offloaded < n && row[offloaded] < y->host_count[g]; offloaded++)
		;
	for (i = j = 0; i < offloaded || j < table->n; ) {
		if (j == table->n || (i < offloaded && row[i] < table->row[j])) {
			new_row[new++] = row[i];
			list[i++] = UINT32_MAX;         /* gets a slot below */
		} else if (i == offloaded || row[i] > table->row[j]) {
			f->free[left++] = table->slot[j++];
		} else {
			list[i++] = table->slot[j++];
		}
	}
	while (j < f->slots)                            /* slots that were free before */
		f->free[left++] = table->slot[j++];
	for (i = j = 0; i < offloaded; i++)
		if (list[i] == UINT32_MAX) {
			list[i] = new_slot[j] = f->free[j];
			j++;
		}
	memcpy(table->row, row, offloaded * sizeof *row);
	memcpy(table->slot, list, offloaded * sizeof *list);
	memcpy(table->slot + offloaded, f->free + new, (left - new) * sizeof *f->free);
	table->n = offloaded;
	for (i = offloaded; i < n; i++)
		list[i] = f->slots + (row[i] - y->host_count[g]);
	y->new[g] = new;
	y->n[g] = n;
	for (i = y->new_keys[g] = 0; i < new; i++)
		y->new_keys[g] += offload_has_key(&y->keys, g, new_row[i]);
}

/* Replaces the n entries of u rows at the beginning of list[] by their rows below `rows`. Begins
 * with the last entry, so that no entry is overwritten before it is read. Returns the number of
 * rows. */
static uint32_t
expand(uint32_t *list, uint32_t n, uint32_t u, uint32_t rows)
{
	const uint64_t end = n > 0 ? ((uint64_t)list[n - 1] + 1) * u : 0;
	const uint32_t last = end > rows ? u - (uint32_t)(end - rows) : u;
	const uint32_t all = n > 0 ? (n - 1) * u + last : 0;
	uint32_t to = all, i = n, j, entry;

	while (i > 0) {
		j = i == n ? last : u;
		for (entry = list[--i]; j > 0; j--)
			list[--to] = entry * u + j - 1;
	}
	return all;
}

/* f->step_row, f->step_n <- the rows of the step. Returns 0 if the device has failed. */
static int
list_rows(struct offload *f, const struct offload_step *step)
{
	const struct chosen *chosen = step->chosen;
	const struct layer_rows *rows = step->rows;
	uint32_t g, i;

	for (g = 0; g < f->G; g++) {
		uint32_t *list = f->step_row + g * f->chosen.stride;

		f->step_n[g] = rows->len[g];
		for (i = 0; chosen == NULL && i < rows->len[g]; i++)
			list[i] = i;
		if (chosen == NULL)
			continue;
		f->ops->get(f->dev, list, chosen->at + g * chosen->stride,
		    chosen->n[g] * sizeof *list);
		if (f->ops->sync(f->dev) != NULL)
			return 0;
		/* rows: the choice may include the row that this layer appends next */
		f->step_n[g] = chosen->rows == 1 ? chosen->n[g] :
		    expand(list, chosen->n[g], chosen->rows, rows->len[g]);
	}
	return 1;
}

/* Copies the positions of the rows that the step fetches to their slots. */
static void
copy_positions(struct offload *f, uint32_t l, const struct layer_rows *rows)
{
	const struct offload_layer *y = &f->layer[l];
	const struct layer_rows *to = &y->device_rows;
	uint32_t g, i;

	for (g = 0; g < f->G; g++)
		for (i = 0; i < y->new[g]; i++) {
			const size_t at = (size_t)g * f->slots + i;

			f->ops->copy(f->dev, to->pos + to->start[g] + y->slot[at],
			    rows->pos + rows->start[g] + y->row[at], sizeof *to->pos);
		}
}

int
offload_host_start(struct offload *f, uint32_t l, const struct offload_step *step)
{
	struct offload_layer *y = &f->layer[l];
	uint32_t g;

	if (!f->listed && !list_rows(f, step))
		return 0;
	f->listed = 1;
	y->keys = step->chosen != NULL && step->low != NULL ? (struct offload_keys){ step->exact,
		step->low->chunk, step->low->n / step->low->chunk } :
	    (struct offload_keys){ .exact = NULL };
	for (g = 0; g < f->G; g++) {
		assign_slots(f, y, g, f->step_row + g * f->chosen.stride, f->step_n[g]);
		y->fetched[g] += y->new_keys[g] * (uint64_t)rows_k_bytes(&y->device_rows);
		if (!y->device_rows.v_in_k)
			y->fetched[g] += y->new[g] * (uint64_t)rows_v_bytes(&y->device_rows);
	}
	if (f->thread != NULL)
		offload_thread_begin(f->thread, l);
	if (step->low != NULL)                    /* rebuilt keys are rotated to them */
		copy_positions(f, l, step->rows);
	return 1;
}

const struct chosen *
offload_host_wait(struct offload *f, uint32_t l)
{
	struct offload_layer *y = &f->layer[l];
	uint32_t g;

	if (f->thread != NULL)
		offload_thread_wait(f->thread, l);
	else
		offload_read_layer(f, l);
	if (f->store->error[0] != '\0')
		return NULL;
	memcpy(f->chosen.n, y->n, f->G * sizeof *y->n);
	for (g = 0; g < f->G; g++)
		f->ops->put(f->dev, f->chosen.at + g * f->chosen.stride,
		    y->read_at + g * (size_t)y->device_rows.capacity[0],
		    y->n[g] * sizeof *y->read_at);
	return &f->chosen;
}

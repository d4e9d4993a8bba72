/* retrieval_offloaded.c - steps of offloaded layers (offload.h)
 *
 * The selection is that of a layer with all rows on the device: indexes are on the device, and the
 * keys of rows that no index covers are in the tail (offload_tail()). The selected rows are
 * fetched, and attention reads them in their slots. */
#include <stdlib.h>

#include "retrieval/retrieval_internal.h"

int
retrieval_use_offload(struct retrieval *t, struct offload *offload)
{
	t->offload = offload;
	t->offload_n = calloc(t->G, sizeof *t->offload_n);
	t->offload_bytes = calloc(t->G, sizeof *t->offload_bytes);
	return t->offload_n != NULL && t->offload_bytes != NULL ? KV_OK : KV_ENOMEM;
}

/* Rows that an index does not cover, and appended ones, need no slot. */
uint64_t
retrieval_slots(const struct retrieval_options *o, const struct layer_index *x)
{
	const struct retrieval_method *method = retrieval_method(o->method);
	const uint64_t least = method->slots != NULL ? method->slots(o, x) : 0;

	return o->budget > least ? o->budget : least;
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

int
retrieve_list_offloaded(struct retrieval *t, const struct layer_rows *rows)
{
	uint32_t g, i;

	for (g = 0; g < t->G; g++) {
		uint32_t *list = t->offload_list + g * t->stride;

		t->offload_n[g] = rows->len[g];
		for (i = 0; t->whole && i < rows->len[g]; i++)
			list[i] = i;
		if (t->whole)
			continue;
		t->ops->get(t->dev, list, t->chosen.at + g * t->chosen.stride,
		    t->chosen.n[g] * sizeof *list);
		if (t->ops->sync(t->dev) != NULL)
			return 0;
		/* rows: the choice may include the row that this layer appends next */
		t->offload_n[g] = t->chosen.rows == 1 ? t->chosen.n[g] :
		    expand(list, t->chosen.n[g], t->chosen.rows, rows->len[g]);
	}
	return 1;
}

/* Starts fetching the selected rows; for ShadowKV without the keys that rebuild() makes. Returns 0
 * if the device has failed. */
static int
begin(struct retrieval *t, uint32_t l, const struct layer_rows *rows, const struct layer_index *x)
{
	const int rebuilds = t->method->attend != NULL;
	struct offload_keys keys = { .exact = NULL };

	if (offload_device_reads(t->offload, l)) {
		t->view = *rows;
		t->view.len = t->whole ? rows->len : t->seen;
		offload_start_on_device(t->offload, l, t->whole ? NULL : &t->chosen, &t->view,
		    rebuilds && !t->whole ? &x->low : NULL, 0);
		return 1;
	}
	if (!retrieve_list_offloaded(t, rows))
		return 0;
	if (rebuilds && !t->whole)
		keys = (struct offload_keys){ x->host_exact, x->low.chunk,
			x->low.n / x->low.chunk };
	offload_start_on_host(t->offload, l, t->offload_list, t->stride, t->offload_n, &keys);
	if (rebuilds)                             /* rebuilt keys are rotated to them */
		offload_copy_positions(t->offload, l, rows);
	return 1;
}

void
retrieve_count_step_bytes(struct retrieval *t, uint32_t l)
{
	uint32_t g;

	for (g = 0; !offload_device_reads(t->offload, l) && g < t->G; g++)
		t->stats[(size_t)l * t->G + g].fetched_bytes += offload_step_bytes(t->offload, l,
		    g);
}

void
retrieve_count_fetched_bytes(const struct retrieval *t)
{
	uint32_t l, g;

	for (l = 0; t->offload != NULL && l < t->L; l++) {
		if (!offload_device_reads(t->offload, l))
			continue;
		offload_fetched_bytes(t->offload, l, t->offload_bytes);
		for (g = 0; g < t->G; g++)
			t->stats[(size_t)l * t->G + g].fetched_bytes = t->offload_bytes[g];
	}
}

struct attention
retrieve_offloaded(struct retrieval *t, uint32_t l, float *o, const struct query *query,
    const struct layer_rows *rows, const struct layer_index *x)
{
	struct attention a = { .o = o, .query = *query, .rows = &t->offload->layer[l].device_rows };

	if (!t->whole)
		retrieve_choose(t, query, t->opt.method == RETRIEVE_SPECONTEXT ? rows :
		    offload_tail(t->offload, l, rows), x);
	if (!t->offload->layer[l].begun && !begin(t, l, rows, x))
		return (struct attention){ .rows = NULL };
	if ((a.chosen = offload_wait(t->offload, l)) == NULL) {
		t->ops->clear(t->dev, o, (size_t)t->H * t->E * sizeof *o);
		return (struct attention){ .rows = NULL };
	}
	if (t->method->attend != NULL && !t->whole)
		return t->method->attend(t, o, query, a.rows, a.chosen, x);
	return a;
}

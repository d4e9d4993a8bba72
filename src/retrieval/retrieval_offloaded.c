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
	t->offload_bytes = calloc(t->G, sizeof *t->offload_bytes);
	return t->offload_bytes != NULL ? KV_OK : KV_ENOMEM;
}

/* Rows that an index does not cover, and appended ones, need no slot. */
uint64_t
retrieval_slots(const struct retrieval_options *o, const struct layer_index *x,
    uint32_t query_heads)
{
	const struct retrieval_method *method = retrieval_method(o->method);
	const uint64_t least = method->slots != NULL ? method->slots(o, x) : 0;
	const uint64_t most = (uint64_t)o->budget * (o->per == PER_QUERY_HEAD ? query_heads : 1);

	return most > least ? most : least;
}

/* Starts fetching the selected rows; for ShadowKV without the keys that rebuild() makes. Returns 0
 * if the device has failed. */
static int
start(struct retrieval *t, uint32_t l, const struct layer_rows *rows, const struct layer_index *x)
{
	struct offload_step step = { .chosen = t->whole ? NULL : retrieve_read(t),
		.rows = &t->view };

	t->view = *rows;
	t->view.len = t->whole ? rows->len : t->seen;
	if (t->method->attend != NULL) {
		step.low = &x->low;
		step.exact = x->host_exact;
	}
	t->specontext.started = 0;
	return offload_start(t->offload, l, &step);
}

void
retrieve_count_fetched(const struct retrieval *t)
{
	uint32_t l, g;

	for (l = 0; l < t->L; l++) {
		if (!offload_has(t->offload, l))
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
		retrieve_choose(t, query, t->opt.method == RETRIEVE_SPECONTEXT ?
		    retrieve_each(t, rows) : offload_tail(t->offload, l, rows), x);
	if (!t->offload->layer[l].begun && !start(t, l, rows, x))
		return (struct attention){ .rows = NULL };
	if ((a.chosen = offload_wait(t->offload, l)) == NULL) {
		t->ops->clear(t->dev, o, (size_t)t->H * t->E * sizeof *o);
		return (struct attention){ .rows = NULL };
	}
	if (t->whole)
		return a;
	if (t->method->attend != NULL)
		return t->method->attend(t, o, query, a.rows, a.chosen, x);
	a.chosen = retrieve_placed(t, a.chosen);
	a.rows = retrieve_each(t, a.rows);
	return a;
}

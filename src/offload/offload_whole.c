/* offload_whole.c - offloaded layers that each step reads whole */
#include <stdlib.h>

#include "offload/offload_whole.h"
#include "ops/layer_rows.h"

void
offload_whole_free(struct offload *f)
{
	f->ops->free(f->dev, f->whole.keys);
	f->ops->free(f->dev, f->whole.values);
	free(f->whole.staged);
	f->whole = (struct whole_layer){ .keys = NULL };
}

/* ---- memory ---- */

static int
grow(struct offload *f, void **to, size_t *have, size_t want)
{
	if (want <= *have)
		return KV_OK;
	f->ops->free(f->dev, *to);
	*to = f->ops->alloc(f->dev, want);
	*have = *to != NULL ? want : 0;
	return *to != NULL ? KV_OK : KV_ENOMEM;
}

/* Makes room for the layer. If the device cannot be written to directly, also for one KV head on
 * the host. */
static int
reserve(struct offload *f, const struct layer_rows *rows, uint32_t most)
{
	const uint64_t all = rows->start[rows->heads - 1] + rows->capacity[rows->heads - 1];
	const size_t k_row = rows_k_bytes(rows), v_row = rows_v_bytes(rows);
	const size_t staged = most * (k_row > v_row ? k_row : v_row);
	struct whole_layer *w = &f->whole;

	if (grow(f, &w->keys, &w->key_bytes, all * k_row) != KV_OK ||
	    (!rows->v_in_k && grow(f, &w->values, &w->value_bytes, all * v_row) != KV_OK))
		return KV_ENOMEM;
	if (f->ops->shares_memory || staged <= w->staged_bytes)
		return KV_OK;
	free(w->staged);
	w->staged = malloc(staged);
	w->staged_bytes = w->staged != NULL ? staged : 0;
	return w->staged != NULL ? KV_OK : KV_ENOMEM;
}

static uint32_t
most_of(const uint32_t *n, uint32_t heads)
{
	uint32_t most = 0, g;

	for (g = 0; g < heads; g++)
		most = n[g] > most ? n[g] : most;
	return most;
}

/* ---- rows ---- */

/* to (device) <- the n offloaded rows of a KV head, of `size` bytes each */
static int
take_offloaded(struct offload *f, uint32_t l, uint32_t g, enum kv_kind kind, uint32_t n,
    size_t size, void *to)
{
	const void *from = offload_store_host_rows(f->store, l, g, kind);
	int rc = KV_OK;

	if (n == 0)
		return KV_OK;
	if (from == NULL && f->ops->shares_memory)
		return offload_store_read_first(f->store, l, g, kind, n, to);
	if (from == NULL) {
		from = f->whole.staged;
		rc = offload_store_read_first(f->store, l, g, kind, n, f->whole.staged);
	}
	if (rc == KV_OK)
		f->ops->put(f->dev, to, from, n * size);
	return rc;
}

/* Appends the tail of a KV head to its offloaded rows. */
static void
take_tail(struct offload *f, uint32_t l, uint32_t g, const struct layer_rows *whole)
{
	const struct layer_rows *from = &f->layer[l].device_rows;
	const size_t k_row = rows_k_bytes(whole), v_row = rows_v_bytes(whole);
	const uint32_t host = f->layer[l].host_count[g], n = whole->len[g] - host;
	const uint64_t at = from->start[g] + f->slots, to = whole->start[g] + host;

	if (n == 0)
		return;
	f->ops->copy(f->dev, (char *)whole->k + to * k_row, (char *)from->k + at * k_row,
	    n * k_row);
	if (!whole->v_in_k)
		f->ops->copy(f->dev, (char *)whole->v + to * v_row, (char *)from->v + at * v_row,
		    n * v_row);
	f->ops->copy(f->dev, whole->pos + to, from->pos + at, n * sizeof *whole->pos);
}

/* Returns the next offloaded layer, which the system may read meanwhile; l: there is no other. */
static uint32_t
next_layer(const struct offload *f, uint32_t l)
{
	uint32_t i;

	for (i = (l + 1) % f->L; i != l && !offload_has(f, i); i = (i + 1) % f->L)
		;
	return i;
}

const struct layer_rows *
offload_whole(struct offload *f, uint32_t l, const struct layer_rows *rows)
{
	const uint32_t *n = f->layer[l].host_count;
	const size_t k_row = rows_k_bytes(rows), v_row = rows_v_bytes(rows);
	struct layer_rows *whole = &f->whole.rows;
	uint32_t g;
	int rc = reserve(f, rows, most_of(n, f->G));

	if (rc != KV_OK) {
		offload_store_fail(f->store, "no memory for the rows of a layer");
		return NULL;
	}
	*whole = *rows;
	whole->k = f->whole.keys;
	whole->v = rows->v_in_k ? whole->k : f->whole.values;
	offload_store_expect(f->store, next_layer(f, l));
	for (g = 0; rc == KV_OK && g < f->G; g++) {
		rc = take_offloaded(f, l, g, KV_KEYS, n[g], k_row,
		    (char *)whole->k + whole->start[g] * k_row);
		if (rc == KV_OK && !rows->v_in_k)
			rc = take_offloaded(f, l, g, KV_VALS, n[g], v_row,
			    (char *)whole->v + whole->start[g] * v_row);
		take_tail(f, l, g, whole);
	}
	return rc == KV_OK ? whole : NULL;
}

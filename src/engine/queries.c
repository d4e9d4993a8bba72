/* queries.c - the observation queries of a layer, for scoring */
#include <stdlib.h>
#include <string.h>

#include "engine/queries.h"

void
queries_forget(struct queries *w)
{
	free(w->pos);
	free(w->q);
	free(w->sinks);
	free(w->own_pos);
	free(w->own);
	memset(w, 0, sizeof *w);
}

/* Returns a copy of n * size bytes. */
static void *
copy_of(const void *from, size_t n, size_t size, struct engine_error *e)
{
	void *to = engine_alloc(n, size, e);

	if (to != NULL && n > 0)
		memcpy(to, from, n * size);
	return to;
}

static int
take_own_keys(struct queries *w, const struct kv_queries *stored, const struct kv_head *head,
    struct engine_error *e)
{
	size_t row = head->model.head_width * kv_dtype_size(head->dtype);

	if (stored->n_own == 0)
		return ENGINE_OK;
	w->own = copy_of(stored->own, (size_t)head->model.kv_heads * stored->n_own, row, e);
	if (w->own == NULL)
		return e->code;
	w->own_pos = copy_of(stored->pos + stored->n - stored->n_own, stored->n_own,
	    sizeof *w->own_pos, e);
	if (w->own_pos == NULL)
		return e->code;
	w->n_own = stored->n_own;
	return ENGINE_OK;
}

int
queries_take_sinks(struct queries *w, const float *sinks, const struct kv_head *head,
    struct engine_error *e)
{
	queries_forget(w);
	w->sinks = copy_of(sinks, head->model.query_heads, sizeof *sinks, e);
	return w->sinks != NULL ? ENGINE_OK : e->code;
}

int
queries_take(struct queries *w, const struct kv_queries *stored, const struct kv_head *head,
    uint32_t n, struct engine_error *e)
{
	const size_t E = head->model.head_width, H = head->model.query_heads;
	const size_t row = E * kv_dtype_size(head->dtype);
	const uint32_t first = stored->n - n;
	float *const sinks = w->sinks;
	const char *q = stored->q;
	size_t h, i;

	w->sinks = NULL;
	queries_forget(w);
	w->sinks = sinks;
	w->pos = copy_of(stored->pos + first, n, sizeof *w->pos, e);
	w->q = w->pos != NULL ? engine_alloc(n * H, E * sizeof *w->q, e) : NULL;
	if (w->q == NULL || take_own_keys(w, stored, head, e) != ENGINE_OK) {
		queries_forget(w);
		return e->code;
	}
	for (h = 0; h < H; h++)
		for (i = 0; i < n; i++)
			kv_to_f32(w->q + (i * H + h) * E, q + (h * stored->n + first + i) * row,
			    head->dtype, E);
	w->n = n;
	return ENGINE_OK;
}

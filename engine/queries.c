/* queries.c - the observation queries of a layer */
#include <stdlib.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "engine/queries.h"
#include "cli/tool.h"

void
queries_forget(struct queries *w)
{
	free(w->pos);
	free(w->q);
	free(w->own_pos);
	free(w->own);
	memset(w, 0, sizeof *w);
}

uint32_t
queries_stored(const void *content)
{
	return get32((const uint8_t *)content + 4);
}

/* q: the queries in the section, all `stored` of them; behind them stand the own keys. */
static void
take_own_keys(struct queries *w, const uint8_t *content, const uint8_t *q, uint32_t stored,
    const struct kv_head *head)
{
	size_t row = head->model.head_width * kv_dtype_size(head->dtype), size;
	uint32_t i;

	while (w->n_own < stored &&
	    get32(content + 8 + 4 * (size_t)(stored - 1 - w->n_own)) >= head->next_position)
		w->n_own++;
	if (w->n_own == 0)
		return;
	size = row * head->model.kv_heads * w->n_own;
	w->own = must_alloc(size, 1);
	memcpy(w->own, q + row * head->model.query_heads * stored, size);
	w->own_pos = must_alloc(w->n_own, sizeof *w->own_pos);
	for (i = 0; i < w->n_own; i++)
		w->own_pos[i] = get32(content + 8 + 4 * (size_t)(stored - w->n_own + i));
}

void
queries_take(struct queries *w, const void *section, const struct kv_head *head, uint32_t n)
{
	const uint8_t *content = section, *q;
	size_t E = head->model.head_width, H = head->model.query_heads, h;
	size_t row = E * kv_dtype_size(head->dtype);
	uint32_t stored = queries_stored(content), first = stored - n, i;

	queries_forget(w);
	w->n = n;
	w->pos = must_alloc(n, sizeof *w->pos);
	w->q = must_alloc(n * H, E * sizeof *w->q);
	q = content + round64(8 + 4 * (uint64_t)stored);
	for (i = 0; i < n; i++)
		w->pos[i] = get32(content + 8 + 4 * (size_t)(first + i));
	for (h = 0; h < H; h++)
		for (i = 0; i < n; i++)
			kv_to_f32(w->q + (i * H + h) * E, q + (h * stored + first + i) * row,
			    head->dtype, E);
	take_own_keys(w, content, q, stored, head);
}

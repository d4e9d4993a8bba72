/* kept_rows.c - selects the kept rows from positions, values and contents of a layer in a
 * snapshot */
#include <stdlib.h>

#include "engine/kept_rows.h"
#include "engine/reposition.h"

static size_t
kept_total(const struct kept *kept)
{
	size_t total = 0;
	uint32_t g;

	for (g = 0; g < kept->heads; g++)
		total += kept->count[g];
	return total;
}

int
kept_positions(struct kv_rows *out, const struct kv_rows *rows, const struct kept *kept,
    const struct reposition *moved, struct engine_error *e)
{
	/* one allocation: the pointers of the heads, then the lists */
	const size_t lists = kept->heads * sizeof(uint32_t *);
	char *all = engine_alloc(1, lists + kept_total(kept) * sizeof(uint32_t), e);
	const uint32_t **pos = (void *)all;
	uint32_t *at, g, i;

	if (all == NULL)
		return e->code;
	at = (void *)(all + lists);
	for (g = 0; g < kept->heads; g++) {
		pos[g] = at;
		for (i = 0; i < kept->count[g]; i++)
			*at++ = moved != NULL ? reposition_row(moved, kept->count[g], i) :
			    rows->pos[g][kept->keep[g][i]];
	}
	*out = (struct kv_rows){ kept->heads, kept->count, pos };
	return ENGINE_OK;
}

void
kept_positions_free(struct kv_rows *rows)
{
	free((void *)(uintptr_t)rows->pos);
	rows->pos = NULL;
}

size_t
host_values(float *value, const struct kv_rows *rows, const struct kept *kept, uint32_t n)
{
	const float *from = value;
	float *to = value;
	uint32_t g, r, i;

	for (g = 0; g < rows->heads; g++)
		for (r = 0; r < n; r++, from += rows->count[g])
			for (i = 0; i < kept->count[g]; i++)
				*to++ = from[kept->keep[g][i]];
	return (size_t)(to - value);
}

int
kept_spans(struct kv_span **spans, size_t *n, const void *content, size_t size,
    const struct kv_rows *rows, const struct kept *kept, struct engine_error *e)
{
	struct kv_span *run = engine_alloc(kept_total(kept), sizeof *run, e);
	const char *head = content, *row;
	uint32_t g, i;

	*n = 0;
	if ((*spans = run) == NULL)
		return e->code;
	if (size == 0)                  /* values that are channels of keys */
		return ENGINE_OK;
	for (g = 0; g < kept->heads; head += rows->count[g++] * size)
		for (i = 0; i < kept->count[g]; i++) {
			row = head + kept->keep[g][i] * size;
			if (*n > 0 && (const char *)run[*n - 1].data + run[*n - 1].size == row)
				run[*n - 1].size += size;
			else
				run[(*n)++] = (struct kv_span){ row, size };
		}
	return ENGINE_OK;
}

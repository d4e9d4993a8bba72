/* reposition.c - new positions for the rows that are left */
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "engine/reposition.h"
#include "cli/tool.h"

void
renumber_start(struct renumber *n, const struct kv_model *m, uint32_t longest)
{
	n->next = longest > 0 ? longest : 1;
	n->freq = must_alloc(m->head_width, sizeof *n->freq);
	model_rope_frequencies(m, n->freq);
}

void
renumber_end(struct renumber *n)
{
	free(n->freq);
	n->freq = NULL;
}

static void
renumber_head(const struct renumber *n, char *to, const char *keys, enum kv_dtype dtype,
    uint32_t E, const uint32_t *pos, const uint32_t *keep, uint32_t count)
{
	size_t row = E * kv_dtype_size(dtype);
	uint32_t *old = must_alloc(count, sizeof *old), *new = must_alloc(count, sizeof *new), i;

	for (i = 0; i < count; i++) {
		memcpy(to + i * row, keys + keep[i] * row, row);
		old[i] = pos[keep[i]];
		new[i] = renumber_row(n, count, i);
	}
	if (rotate_keys(to, old, new, n->freq, count, E, dtype) != 0)
		die(EXIT_RUN, "out of memory");
	free(old);
	free(new);
}

void
renumber_keys(const struct renumber *n, void *to, const void *keys, enum kv_dtype dtype,
    uint32_t E, const struct kv_rows *rows, const struct kept *kept)
{
	size_t row = E * kv_dtype_size(dtype);
	const char *from = keys;
	char *out = to;
	uint32_t g;

	for (g = 0; g < kept->heads; g++) {
		renumber_head(n, out, from, dtype, E, rows->pos[g], kept->keep[g],
		    kept->count[g]);
		from += rows->count[g] * row;
		out += kept->count[g] * row;
	}
}

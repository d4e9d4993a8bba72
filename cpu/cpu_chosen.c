/* cpu_chosen.c - only the rows that were chosen: gather, rebuild, and what attend_chosen() in
 * cpu_attend.c needs to know of a choice */
#include <math.h>

#include "cpu/cpu_internal.h"

/* Only the last entry of a list can be cut: entries ascend. */
size_t
cpu_chosen_rows(const struct chosen *c, const struct layer_rows *rows, size_t g)
{
	const uint32_t *at = c->at + g * c->stride;
	const size_t len = rows->len[g];
	size_t n = c->n[g], last;

	while (n > 0 && (size_t)at[n - 1] * c->rows >= len)
		n--;
	if (n == 0)
		return 0;
	last = len - (size_t)at[n - 1] * c->rows;
	return (n - 1) * c->rows + (last < c->rows ? last : c->rows);
}

/* The row of the KV head that is number i of those chosen */
static size_t
chosen_row(const struct chosen *c, size_t g, size_t i)
{
	return (size_t)c->at[g * c->stride + i / c->rows] * c->rows + i % c->rows;
}

int
cpu_can_be_chosen(struct dev *d, const struct layer_rows *rows, const struct chosen *c)
{
	uint32_t g;

	if (c->rows == 0)
		cpu_fail(d, "chosen entries of 0 rows");
	for (g = 0; g < rows->heads; g++)
		if (c->n[g] > c->stride)
			cpu_fail(d, "%u entries chosen of KV head %u, in a list of %zu", c->n[g], g,
			    c->stride);
	return d->error[0] == '\0';
}

void
cpu_gather(struct dev *d, struct layer_rows *to, const struct layer_rows *from,
    const struct chosen *c)
{
	const size_t bytes = from->width * kv_dtype_size(from->dtype);
	size_t g, i, n, row, dst;

	if (d->error[0] != '\0' || !cpu_can_be_chosen(d, from, c))
		return;
	for (g = 0; g < from->heads; g++) {
		n = cpu_chosen_rows(c, from, g);
		for (i = 0; i < n; i++) {
			row = from->start[g] + chosen_row(c, g, i);
			dst = to->start[g] + i;
			memcpy((char *)to->k + dst * bytes, (const char *)from->k + row * bytes,
			    bytes);
			if (to->v != NULL && from->v != NULL)
				memcpy((char *)to->v + dst * bytes,
				    (const char *)from->v + row * bytes, bytes);
			to->pos[dst] = from->pos[row];
		}
		to->len[g] = (uint32_t)n;
	}
}

/* One key: the product, turned and rounded. x is scratch of rank + 3 E floats. */
static void
rebuild_row(struct dev *d, void *key, const struct low_rank *low, size_t E, size_t g, size_t row,
    uint32_t pos, const double *freq, float *x)
{
	const size_t size = kv_dtype_size(low->dtype), rank = low->rank;
	const char *right = (const char *)low->right + g * E * rank * size;
	float *y = x + rank, *c = y + E, *s = c + E;
	size_t i;

	d->simd->widen(x, (const char *)low->left + row * rank * size, low->dtype, rank);
	d->simd->dots(y, E, x, 1, right, low->dtype, E, rank, NULL, 0);
	for (i = 0; i < E / 2; i++) {
		c[i] = (float)cos(pos * freq[i]);
		s[i] = (float)sin(pos * freq[i]);
	}
	d->simd->rotate(y, c, s, 1, E);
	kv_from_f32(key, y, low->dtype, E);
}

void
cpu_rebuild(struct dev *d, struct layer_rows *to, const struct chosen *c,
    const struct low_rank *low, const double *freq)
{
	const size_t E = to->width, bytes = E * kv_dtype_size(to->dtype);
	const size_t chunks = low->chunk == 0 ? 0 : low->n / low->chunk;
	size_t g, i, row, dst;
	float *x;

	if (d->error[0] != '\0' || !cpu_can_be_chosen(d, to, c))
		return;
	if (low->chunk == 0 || low->dtype != to->dtype) {
		cpu_fail(d, "rebuild: chunks of %u rows, %s factors of %s keys", low->chunk,
		    kv_dtype_name(low->dtype), kv_dtype_name(to->dtype));
		return;
	}
	if ((x = cpu_scratch(d, (low->rank + 3 * E) * sizeof *x)) == NULL)
		return;
	for (g = 0; g < to->heads; g++)
		for (i = 0; i < to->len[g]; i++) {
			row = chosen_row(c, g, i);
			dst = to->start[g] + i;
			if (row < low->n && !low->exact[g * chunks + row / low->chunk])
				rebuild_row(d, (char *)to->k + dst * bytes, low, E, g, row,
				    to->pos[dst], freq, x);
		}
}

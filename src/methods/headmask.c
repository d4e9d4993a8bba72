/* headmask.c - masks of streaming heads: KV heads that keep only the ends of the text
 *
 * DuoAttention (Xiao et al. 2024) and PruLong (Bhaskar et al. 2025) learn for each KV head how
 * much it needs the whole text. The heads that need it least keep only the first and the last
 * positions ("streaming"). The masks are published as tables of numbers, a line for each layer.
 *
 * DuoAttention cuts at a quantile of the numbers and adds noise against ties; kvpress streams
 * the round(n * sparsity) smallest in the order of its sort. Here it is that number, and ties
 * have a fixed order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/headtable.h"

static int
read_number(void *item, const char *word)
{
	double *full = item;
	char *end;

	*full = strtod(word, &end);
	if (end == word || *end != '\0' || !isfinite(*full))
		return 0;
	*full = fmin(fmax(*full, 0), 1);
	return 1;
}

int
head_mask_parse(struct head_mask *out, const char *text, size_t len, char *why, size_t size)
{
	struct head_table table = { .size = sizeof *out->full, .read = read_number,
		.wanted = "not a number" };
	const int code = head_table_parse(&table, text, len, why, size);

	*out = (struct head_mask){ table.layers, table.heads, table.item };
	return code;
}

void
head_mask_free(struct head_mask *mask)
{
	free(mask->full);
	memset(mask, 0, sizeof *mask);
}

struct ranked_head {
	double full;
	size_t at;              /* layer * heads + head */
};

static int
by_need(const void *a, const void *b)
{
	const struct ranked_head *x = a, *y = b;

	if (x->full != y->full)
		return x->full < y->full ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

int
head_mask_cut(const struct head_mask *mask, double sparsity, uint8_t *streaming)
{
	size_t n = (size_t)mask->layers * mask->heads, streams, i;
	struct ranked_head *order;

	if (sparsity < 0) {
		for (i = 0; i < n; i++)
			streaming[i] = mask->full[i] < 0.5;
		return 0;
	}
	if ((order = malloc(n * sizeof *order)) == NULL)
		return -1;
	for (i = 0; i < n; i++)
		order[i] = (struct ranked_head){ mask->full[i], i };
	qsort(order, n, sizeof *order, by_need);
	streams = (size_t)rint((double)n * sparsity);
	for (i = 0; i < n; i++)
		streaming[order[i].at] = i < streams;
	free(order);
	return 0;
}

/* composite.c - KVCompose: all layers share one budget, the KV heads of a layer keep equally many
 *
 * "KVCompose: Efficient Structured KV Cache Compression with Composite Tokens" (arXiv 2509.05165),
 * by kvpress's KVComposePress(structured=True). A layer whose KV heads keep equally many rows can
 * be stored, and read, as any other, although each head keeps rows of its own. So not rows compete,
 * as in global.c, but composite tokens: the best row of each KV head of a layer, the second best of
 * each, and so on, each with the mean of its rows' scores. Of all layers' composite tokens the
 * greatest stay, and their number in a layer is that of rows in each of its heads.
 *
 * The first layer gets the greatest number, whatever its scores: its j-th composite token has the
 * greatest score that a layer has in j-th place. A layer has at least one row, beside the budget.
 *
 * Ours differs in this: always-kept rows (sinks, recent rows, +inf) come before all others, in each
 * head by itself, and make the composite tokens that have one of them always kept. The first layer
 * is the first that is not skipped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "methods/budgets.h"

static int
falling(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x < y) - (x > y);
}

int
composite_ranks(struct ranked *r, char *why, size_t size)
{
	const uint32_t n = r->n[0];
	uint32_t g, j, always;
	double sum;

	for (g = 1; g < r->heads; g++)
		if (r->n[g] != n) {
			snprintf(why, size, "KV heads 0 and %u have %u and %u rows: with policy "
			    "composite they keep equally many", g, n, r->n[g]);
			return EVICT_EINPUT;
		}
	for (g = 0; g < r->heads; g++)
		qsort(r->rank + (size_t)g * n, n, sizeof *r->rank, falling);
	for (j = 0; j < n; j++) {
		for (sum = 0, always = 0, g = 0; g < r->heads; g++) {
			always |= r->rank[(size_t)g * n + j] == INFINITY;
			sum += r->rank[(size_t)g * n + j];
		}
		r->rank[j] = always ? INFINITY : (float)(sum / r->heads);
	}
	return EVICT_OK;
}

void
composite_first(float *rank, const uint32_t *n, size_t layers)
{
	const float *other;
	size_t l, first;
	uint32_t j;

	for (first = 0; first < layers && n[first] == 0; first++)
		;
	if (first == layers)
		return;
	for (other = rank + n[first], l = first + 1; l < layers; other += n[l++])
		for (j = 0; j < n[first] && j < n[l]; j++)
			if (other[j] > rank[j])
				rank[j] = other[j];
}

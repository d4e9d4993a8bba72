/* retrieval_graph.c - retrieval in steps that are captured once and launched many times
 * (step_graph.h)
 *
 * The ops of a step keep the arguments of the capture, and use the lengths at each launch. The host
 * counts what a launched step reads without calling the ops. Only steps that read as many rows as
 * the captured one can be launched.
 *
 * Only steps of fier can be captured. The other methods copy from or to the host at each step: the
 * labels of new whole pages (quest), the rows of the last page and whether it was chosen
 * (quest-eval), the positions that are always read (specontext); cluster and shadow read the rows
 * after their index on top of the budget, so that each step reads one more. Audit and overlap copy
 * the choice to the host, and so does an offloaded layer, unless the device fills its slots. */
#include "retrieval/retrieval_internal.h"

int
retrieve_is_whole(const struct retrieval *t, uint32_t l, const uint32_t *len, uint32_t window)
{
	uint32_t g;

	for (g = 0; g < t->G && len[g] <= t->opt.budget; g++)
		;
	return l < t->opt.dense || g == t->G || window != 0;
}

int
retrieval_can_capture(const struct retrieval *t)
{
	uint32_t l;

	for (l = 0; t->offload != NULL && l < t->L; l++)
		if (offload_has(t->offload, l) && !offload_device_reads(t->offload, l))
			return 0;
	return t->method->launched != NULL && !t->opt.audit && !t->opt.overlap;
}

/* A layer that attends to all rows may grow between launches, unless it is offloaded. In other
 * layers a KV head with no more rows than the budget reads one more at each step. A step has one
 * row more than len and other say. */
int
retrieval_reads_as_many(const struct retrieval *t, uint32_t l, const uint32_t *len,
    const uint32_t *other, uint32_t window)
{
	const uint32_t budget = t->opt.budget;
	int whole = 1, same = 1;
	uint32_t g;

	for (g = 0; g < t->G; g++) {
		whole &= len[g] + 1 <= budget && other[g] + 1 <= budget;
		same &= len[g] == other[g] || (len[g] + 1 > budget && other[g] + 1 > budget);
	}
	if (offload_has(t->offload, l))
		return !whole && same;
	return l < t->opt.dense || window != 0 || whole || same;
}

const void *
retrieval_lists(const struct retrieval *t)
{
	return t->score;
}

void
retrieval_capture(struct retrieval *t, int on)
{
	t->capturing = on;
}

void
retrieve_launched(struct retrieval *t, uint32_t l, const struct layer_rows *rows,
    const struct layer_index *x, uint32_t window)
{
	t->whole = retrieve_is_whole(t, l, rows->len, window);
	if (t->whole)
		retrieve_count_whole(t, l, rows);
	else {
		t->method->launched(t, rows);
		retrieve_count(t, l, rows, x);
	}
}

/* retrieval_graph.c - retrieval in steps that are captured once and launched many times
 * (step_graph.h)
 *
 * The ops of a step have their arguments from the capture, and go by the rows that there
 * are at each launch. What the host knows of a step, how much is read and that it is
 * counted, it must find out without them, and only steps that read as many rows as the
 * captured one can be launched.
 *
 * That is for fier alone. The other methods copy something from or to the host at each
 * step: the labels of pages that are whole by now (quest), what the last page is made of
 * and whether it was chosen (quest-eval), which positions are always read (specontext);
 * cluster and shadow read the rows behind their index on top of the budget, so that each
 * step reads one more. Audit and overlap copy what was chosen to the host; so does an
 * offloaded layer, unless the device fills its slots. */
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

/* What is read whole grows on the device, unless it is brought there. Otherwise a KV head
 * that has no more rows than the budget is read with one row more at each step. The rows of
 * a step are one more than given. */
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

/* cpu_compact.c - compact: kept rows move up, in place, with positions and attention mass */
#include <string.h>

#include "cpu/cpu_internal.h"

struct compact_call {
	const struct layer_rows *rows;
	float *mass;
	size_t stride, R;
	const uint32_t *count;
	uint32_t *const *keep;
};

/* at[i] <- at[keep[i]], `bytes` each. Neighbours move as one piece. */
static void
move_up(void *at, size_t bytes, const uint32_t *keep, size_t n)
{
	size_t i, run;

	for (i = 0; i < n; i += run) {
		for (run = 1; i + run < n && keep[i + run] == keep[i] + run; run++)
			;
		if (keep[i] != i)
			memmove((char *)at + i * bytes, (const char *)at + keep[i] * bytes,
			    run * bytes);
	}
}

/* Item: a KV head's keys, its values, or its positions and attention mass */
static void
compact_list(void *arg, size_t item, int thread)
{
	const struct compact_call *k = arg;
	const struct layer_rows *c = k->rows;
	const size_t bytes = item % 3 == 0 ? rows_k_bytes(c) : rows_v_bytes(c);
	const size_t g = item / 3, n = k->count[g];
	const uint32_t *keep = k->keep[g];
	float *mass;
	size_t r;

	(void)thread;
	if (item % 3 < 2) {
		char *at = item % 3 == 0 ? c->k : c->v;

		if (at != NULL && !(item % 3 == 1 && c->v_in_k))
			move_up(at + c->start[g] * bytes, bytes, keep, n);
		return;
	}
	move_up(c->pos + c->start[g], sizeof *c->pos, keep, n);
	for (r = 0; k->mass != NULL && r < k->R; r++) {
		mass = k->mass + (g * k->R + r) * k->stride;
		move_up(mass, sizeof *mass, keep, n);
		memset(mass + n, 0, (c->len[g] - n) * sizeof *mass);
	}
}

void
cpu_compact(struct dev *d, struct layer_rows *c, float *mass, size_t stride, uint32_t H,
    const uint32_t *count, uint32_t *const *keep)
{
	struct compact_call k = { .rows = c, .mass = mass, .stride = stride, .count = count,
	    .keep = keep };
	size_t moved = 0;
	uint32_t g;

	if (d->error[0] != '\0' || cpu_refuse_recent(d, c, "keep"))
		return;
	if (c->heads == 0 || H % c->heads != 0) {
		cpu_fail(d, "keep: %u query heads over %u KV heads", H, c->heads);
		return;
	}
	k.R = H / c->heads;
	for (g = 0; g < c->heads; g++) {
		if (count[g] > c->len[g]) {
			cpu_fail(d, "keep: %u of %u rows of KV head %u", count[g], c->len[g], g);
			return;
		}
		moved += (size_t)2 * count[g] * c->width;
	}
	cpu_run(d, compact_list, &k, 3 * (size_t)c->heads, moved);
	for (g = 0; g < c->heads; g++)
		c->len[g] = count[g];
}

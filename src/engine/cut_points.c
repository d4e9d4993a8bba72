/* cut_points.c - places in a generated text at which it may have ended, which is known only
 * later */
#include <stdlib.h>
#include <string.h>

#include "engine/cut_points.h"

/* Has the cache keep the rows that the first point needs. */
static void
hold(const struct cut_points *p, struct decode *d)
{
	d->sequence->cache->cut_from = p->n > 0 ? p->at[0].point.cache.position : UINT32_MAX;
}

int
cut_points_add(struct cut_points *p, struct decode *d, uint32_t id, uint64_t text, int whole,
    struct engine_error *e)
{
	struct cut_point *at = realloc(p->at, (p->n + 1) * sizeof *at);
	int rc;

	if (at == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for the end of a text");
	p->at = at;
	if ((rc = decode_logits(d, e)) != ENGINE_OK)
		return rc;
	at += p->n++;
	*at = (struct cut_point){ .id = id, .text = text, .whole = whole };
	hold(p, d);
	if (sequence_point_take(d->sequence, &at->point) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for the end of a text");
	return ENGINE_OK;
}

/* Returns the last point not after this byte and not inside a character; else the first one */
static size_t
last_before(const struct cut_points *p, uint64_t text)
{
	size_t i, best = 0;

	for (i = 0; i < p->n; i++)
		if (p->at[i].whole && p->at[i].text <= text)
			best = i;
	return best;
}

void
cut_points_pass(struct cut_points *p, struct decode *d, uint64_t text)
{
	const size_t gone = p->n > 0 ? last_before(p, text) : 0;
	size_t i;

	for (i = 0; i < gone; i++)
		sequence_point_free(&p->at[i].point, d->sequence);
	if (gone > 0)
		memmove(p->at, p->at + gone, (p->n -= gone) * sizeof *p->at);
	hold(p, d);
}

struct cut_point *
cut_points_find(const struct cut_points *p, uint64_t text)
{
	return &p->at[last_before(p, text)];
}

void
cut_points_free(struct cut_points *p, struct decode *d)
{
	size_t i;

	for (i = 0; i < p->n; i++)
		sequence_point_free(&p->at[i].point, d->sequence);
	free(p->at);
	*p = (struct cut_points){ .n = 0 };
	hold(p, d);
}

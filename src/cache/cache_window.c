/* cache_window.c - dropping rows that no later query sees, in layers with a sliding window
 *
 * The ops compare positions, so such rows cost memory but change no result. While a text runs they
 * are dropped many at a time, because dropping moves the other rows. Before a method or a snapshot
 * reads the rows, all of them are dropped, so that the rows do not depend on when that happened. */
#include <stdlib.h>

#include "cache/cache.h"

static uint32_t
most_rows(const struct model *m, uint32_t l, uint32_t n)
{
	const uint32_t window = m->layer[l].window;
	const uint64_t most = window + (uint64_t)window / 8 + ops_tile(m->ops);

	return window == 0 || most > n ? n : (uint32_t)most;
}

uint32_t
cache_most_rows(const struct cache *c, uint32_t l, uint32_t n)
{
	return c->marked || c->keeps_unseen ? n : most_rows(c->model, l, n);
}

uint64_t
cache_most_rows_of(const struct model *m, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t l;

	for (l = 0; l < m->id.layers; l++)
		sum += (uint64_t)most_rows(m, l, n) * m->id.kv_heads;
	return sum;
}

/* Drops the first n[g] rows of each KV head. */
static int
drop_first(struct cache *c, uint32_t l, const uint32_t *n)
{
	const struct kv_rows rows = cache_rows(c, l);
	uint32_t *count = calloc(rows.heads, sizeof *count);
	uint32_t **keep = calloc(rows.heads, sizeof *keep);
	uint32_t g, i;
	int rc = count != NULL && keep != NULL ? 0 : MODEL_ENOMEM;

	for (g = 0; rc == 0 && g < rows.heads; g++) {
		count[g] = rows.count[g] - n[g];
		if ((keep[g] = malloc(count[g] * sizeof **keep + 1)) == NULL)
			rc = MODEL_ENOMEM;
		for (i = 0; rc == 0 && i < count[g]; i++)
			keep[g][i] = n[g] + i;
	}
	if (rc == 0)
		cache_keep(c, l, count, keep);
	for (g = 0; keep != NULL && g < rows.heads; g++)
		free(keep[g]);
	free(keep);
	free(count);
	return rc;
}

/* Drops the rows of layer l before position `first`, if some KV head has more than `spared` of
 * them. */
static int
drop_before(struct cache *c, uint32_t l, uint32_t first, uint32_t spared)
{
	const struct kv_rows rows = cache_rows(c, l);
	uint32_t n[KV_LAYERS_MOST], g, most = 0;

	for (g = 0; g < rows.heads; g++) {
		n[g] = kv_rows_before(rows.pos[g], rows.count[g], first);
		most = n[g] > most ? n[g] : most;
	}
	return most > spared ? drop_first(c, l, n) : 0;
}

static int
slide(struct cache *c, uint32_t position, uint32_t l0, uint32_t l1, uint32_t share)
{
	const struct kv_model *id = &c->model->id;
	uint32_t l, first;
	int rc = 0;

	if (id->window == 0 || c->marked || c->keeps_unseen)
		return 0;
	position = position < c->cut_from ? position : c->cut_from;
	for (l = l0; rc == 0 && l < l1; l++)
		if ((first = kv_first_seen(id, l, position)) > 0)
			rc = drop_before(c, l, first, share != 0 ? id->window / share : 0);
	return rc == 0 ? cache_log(c, KV_EVENT_EVICT, 0, l0, l1) : rc;
}

int
cache_slide(struct cache *c, uint32_t position, uint32_t l0, uint32_t l1)
{
	return slide(c, position, l0, l1, 8);
}

int
cache_slide_all(struct cache *c, uint32_t position, uint32_t l0, uint32_t l1)
{
	return slide(c, position, l0, l1, 0);
}

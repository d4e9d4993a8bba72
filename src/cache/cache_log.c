/* cache_log.c - the event log of a cache: how the number of rows of each KV head changed
 * (kv-snapshot(5), eVNt) */
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"

/* now: [L][G] the rows of all layers after the event */
static int
append_event(struct cache *c, struct kv_event e, const uint32_t *now)
{
	const uint32_t L = c->model->id.layers, G = c->model->id.kv_heads;
	int rc;

	e.before = c->logged_rows;
	e.after = now;
	rc = kv_log_append(&c->log, &e, G);
	memcpy(c->logged_rows, now, (size_t)L * G * sizeof *now);
	return rc == KV_OK ? 0 : rc == KV_ENOMEM ? MODEL_ENOMEM : MODEL_EINVALID;
}

int
cache_log(struct cache *c, enum kv_event_kind kind, uint32_t n, uint32_t l0, uint32_t l1)
{
	const uint32_t L = c->model->id.layers, G = c->model->id.kv_heads;
	const size_t bytes = (size_t)L * G * sizeof *c->logged_rows;
	const struct kv_event e = { kind, c->next_position, n, l0, l1, NULL, NULL };
	uint32_t *now, l;
	int rc;

	if (!c->logged || (kind != KV_EVENT_EVICT && n == 0))
		return 0;
	if ((now = malloc(bytes)) == NULL)
		return MODEL_ENOMEM;
	memcpy(now, c->logged_rows, bytes);
	for (l = l0; l < l1; l++)
		memcpy(now + (size_t)l * G, c->layer[l].len, G * sizeof *now);
	rc = append_event(c, e, now);
	free(now);
	return rc;
}

int
cache_log_before(struct cache *c, enum kv_event_kind kind, uint32_t n, uint32_t next_position)
{
	const uint32_t L = c->model->id.layers;
	const size_t heads = (size_t)L * c->model->id.kv_heads;
	const struct kv_event e = { kind, next_position, n, 0, L, NULL, NULL };
	uint32_t *now;
	size_t i;
	int rc;

	if (!c->logged || n == 0)
		return 0;
	if ((now = malloc(heads * sizeof *now)) == NULL)
		return MODEL_ENOMEM;
	for (i = 0; i < heads; i++)
		now[i] = c->logged_rows[i] + (kind == KV_EVENT_RUN ? 0 : n);
	rc = append_event(c, e, now);
	free(now);
	return rc;
}

int
cache_log_tiles_before(struct cache *c, uint32_t n, uint32_t first, uint32_t tile)
{
	uint32_t at, N;
	int rc = 0;

	for (at = 0; rc == 0 && at < n; at += N) {
		N = n - at < tile ? n - at : tile;
		rc = cache_log_before(c, KV_EVENT_PREFILL, N, first + at + N);
	}
	return rc;
}

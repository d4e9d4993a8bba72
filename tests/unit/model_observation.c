/* model_observation - queries that are kept on the device are those that are kept on the host; rows
 * that are given as embeddings run as their ids do
 *
 * model_observation DIR, or without DIR the demo model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/forward.h"
#include "tests/unit/methods_check.h"

enum { MOST = 200, TILE = 7 };

static char err[512];

static void
must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "observation: %s: %s\n", what, err);
		exit(1);
	}
}

/* Runs texts of so many tokens (0: no more); from number `there` on the queries are on the
 * device. */
static void
observe(struct observation *obs, const struct model *m, const uint32_t *n, int there)
{
	struct workspace *ws = workspace_new(m, TILE);
	struct cache *c = cache_new(m, KV_F16);
	struct sequence s = { .cache = c };
	uint32_t ids[MOST], i;

	for (i = 0; i < MOST; i++)
		ids[i] = (i * 37 + 5) % m->id.vocabulary;
	must(ws != NULL && c != NULL, "memory");
	for (i = 0; n[i] > 0; i++) {
		if ((int)i == there)
			must(observation_to_device(obs, m) == 0, "to the device");
		must(run_tokens(m, &s, ws, ids, n[i], obs, NULL, err, sizeof err) == 0, "run");
	}
	cache_free(c);
	workspace_free(ws, m);
}

static void
check_window(const struct model *m, uint32_t window, const uint32_t *n, int there)
{
	const size_t row = (size_t)m->id.query_heads * m->id.head_width;
	struct observation host, device;
	uint32_t l;

	must(observation_init(&host, m, window) == 0 && observation_init(&device, m, window) == 0,
	    "memory");
	observe(&host, m, n, -1);
	observe(&device, m, n, there);
	must(device.on_device && observation_to_host(&device, m) == 0 && !device.on_device, "to "
	    "the host");
	check(host.have == device.have && memcmp(host.pos, device.pos,
	    host.have * sizeof *host.pos) == 0, "window %u: other positions", window);
	for (l = 0; l < m->id.layers; l++)
		check(memcmp(host.q[l], device.q[l], host.have * row * sizeof **host.q) == 0,
		    "window %u: other queries in layer %u", window, l);
	observation_free(&host, m);
	must(observation_to_device(&device, m) == 0, "to the device again");
	observation_free(&device, m);
}

/* The queries and keys of n unstored rows after some tokens, run by their ids, or as x */
static void
observe_unstored(struct observation *obs, const struct model *m, const uint32_t *ids,
    const float *x, uint32_t n)
{
	struct workspace *ws = workspace_new(m, TILE);
	struct cache *c = cache_new(m, KV_BF16);
	struct sequence s = { .cache = c };

	must(ws != NULL && c != NULL && observation_init(obs, m, n) == 0, "memory");
	must(run_tokens(m, &s, ws, ids, 20, NULL, NULL, err, sizeof err) == 0, "run");
	must((x == NULL ? run_unstored(m, &s, ws, ids, n, obs, NULL, err, sizeof err) :
	    run_unstored_embeddings(m, &s, ws, x, n, NULL, obs, NULL, err, sizeof err)) == 0,
	    "unstored");
	check(c->n_tokens == 20 && c->next_position == 20 && c->layer[0].len[0] == 20,
	    "unstored rows are in the cache");
	cache_free(c);
	workspace_free(ws, m);
}

/* More rows than a chunk; then one of them is another row than that of its id. */
static void
check_embeddings(const struct model *m)
{
	enum { n = 17 };
	const size_t D = m->id.hidden, row = (size_t)m->id.query_heads * m->id.head_width;
	const size_t keys = (size_t)m->id.kv_heads * n * m->id.head_width * 2;
	float *x = malloc(n * D * sizeof *x), *device = m->ops->alloc(m->dev, n * D * sizeof *x);
	struct observation by_ids, by_rows;
	uint32_t ids[MOST], l, i;

	for (i = 0; i < MOST; i++)
		ids[i] = (i * 53 + 11) % m->id.vocabulary;
	m->ops->embed(m->dev, device, &m->embed, ids, n);
	m->ops->get(m->dev, x, device, n * D * sizeof *x);
	observe_unstored(&by_ids, m, ids, NULL, n);
	observe_unstored(&by_rows, m, ids, x, n);
	for (l = 0; l < m->id.layers; l++)
		check(memcmp(by_ids.q[l], by_rows.q[l], n * row * sizeof **by_ids.q) == 0 &&
		    memcmp(by_ids.own[l], by_rows.own[l], keys) == 0,
		    "embeddings run otherwise than their ids in layer %u", l);
	observation_free(&by_rows, m);
	for (i = 0; i < D; i++)
		x[9 * D + i] *= 2 - (float)(i % 3);
	observe_unstored(&by_rows, m, ids, x, n);
	check(memcmp(by_ids.q[0], by_rows.q[0], 9 * row * sizeof **by_ids.q) == 0 &&
	    memcmp(by_ids.q[0] + 9 * row, by_rows.q[0] + 9 * row, row * sizeof **by_ids.q) != 0,
	    "a row that is no token's embedding");
	observation_free(&by_ids, m);
	observation_free(&by_rows, m);
	m->ops->free(m->dev, device);
	free(x);
}

int
main(int argc, char **argv)
{
	static const uint32_t steps[] = { 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0 };
	static const uint32_t chunks[] = { 10, 3, 4, 5, 2, 30, 1, 6, 9, 1, 0 };
	static const uint32_t window[] = { 1, 2, 5, 8, 40 };
	struct dev *dev = cpu_ops.open(0, 0, err, sizeof err);
	struct model *m = NULL;
	size_t i;

	must(dev != NULL, "device");
	must(model_load(argc > 1 ? argv[1] : DEMO_MODEL, &cpu_ops, dev, &m, err, sizeof err) == 0,
	    "model");
	for (i = 0; i < sizeof window / sizeof *window; i++) {
		check_window(m, window[i], steps, (int)i % 2);
		check_window(m, window[i], chunks, (int)i % 3);
	}
	check_embeddings(m);
	model_free(m);
	cpu_ops.close(dev);
	return failures > 0;
}

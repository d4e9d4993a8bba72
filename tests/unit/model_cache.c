/* model_cache - rows of a cache are appended, dropped in place, and moved to smaller memory
 *
 * model_cache DIR, or without DIR the demo model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/forward.h"
#include "tests/unit/methods_check.h"

#define TOKENS 70
#define TILE 32

static char err[512];

static void
must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "cache: %s: %s\n", what, err);
		exit(1);
	}
}

/* Appends n tokens. */
static void
append_tokens(struct cache *c, struct workspace *ws, const uint32_t *ids, uint32_t n,
    const char *what)
{
	struct sequence s = { .cache = c };

	must(run_tokens(c->model, &s, ws, ids, n, NULL, NULL, err, sizeof err) == 0, what);
}

static struct cache *
run(const struct model *m, struct workspace *ws)
{
	struct cache *c = cache_new(m, KV_F16);
	uint32_t ids[TOKENS], i;

	for (i = 0; i < TOKENS; i++)
		ids[i] = (i * 37 + 5) % m->id.vocabulary;
	must(c != NULL && cache_want_mass(c) == 0, "memory");
	append_tokens(c, ws, ids, TOKENS, "run");
	return c;
}

/* KV head g keeps every (g + 2)-th row from row g on, and the last one. */
static uint32_t
chosen(uint32_t *keep, uint32_t g)
{
	uint32_t n = 0, i;

	for (i = g; i < TOKENS - 1; i += g + 2)
		keep[n++] = i;
	keep[n++] = TOKENS - 1;
	return n;
}

/* Device memory at `at`, as bytes on the host. */
static void *
host(const struct cache *c, const void *at, size_t size)
{
	void *copy = malloc(size + 1);

	must(copy != NULL, "memory");
	c->model->ops->get(c->model->dev, copy, at, size);
	return copy;
}

/* The host's copy of the positions is that of the device. */
static void
check_positions(const struct cache *c, const char *when)
{
	uint32_t l, g, *pos;

	for (l = 0; l < c->model->id.layers; l++) {
		const struct layer_rows *on_device = &c->layer[l];
		const struct kv_rows rows = cache_rows(c, l);

		for (g = 0; g < rows.heads; g++) {
			check(rows.count[g] == on_device->len[g], "%s: %u rows", when,
			    rows.count[g]);
			if (rows.count[g] == 0)
				continue;
			pos = host(c, on_device->pos + on_device->start[g],
			    rows.count[g] * sizeof *pos);
			check(memcmp(pos, rows.pos[g], rows.count[g] * sizeof *pos) == 0,
			    "%s: layer %u head %u: other positions", when, l, g);
			free(pos);
		}
	}
}

/* Rows keep[n] of the old list are the rows of the new one. */
static void
check_list(const struct cache *c, const void *old, const void *new, size_t bytes,
    const uint32_t *keep, uint32_t n, const char *what)
{
	char *a = host(c, old, TOKENS * bytes), *b = host(c, new, n * bytes);
	uint32_t i;

	for (i = 0; i < n; i++)
		check(memcmp(a + keep[i] * bytes, b + i * bytes, bytes) == 0, "%s, row %u", what,
		    i);
	free(a);
	free(b);
}

static void
check_layer(const struct cache *whole, const struct cache *c, uint32_t l, uint32_t *const *keep,
    const uint32_t *count)
{
	const struct layer_rows *a = &whole->layer[l], *b = &c->layer[l];
	const struct attention_mass *am = &whole->mass[l], *bm = &c->mass[l];
	size_t row = a->width * kv_dtype_size(a->dtype);
	uint32_t R = c->model->id.query_heads / a->heads, g, r;

	for (g = 0; g < a->heads; g++) {
		check(b->len[g] == count[g], "%u rows", b->len[g]);
		check_list(c, (char *)a->k + a->start[g] * row, (char *)b->k + b->start[g] * row,
		    row, keep[g], count[g], "keys");
		check_list(c, (char *)a->v + a->start[g] * row, (char *)b->v + b->start[g] * row,
		    row, keep[g], count[g], "values");
		check_list(c, a->pos + a->start[g], b->pos + b->start[g], sizeof *a->pos, keep[g],
		    count[g], "positions");
		for (r = 0; r < R; r++)
			check_list(c, am->sum + (g * R + r) * am->stride,
			    bm->sum + (g * R + r) * bm->stride, sizeof *am->sum, keep[g], count[g],
			    "mass");
	}
}

/* The sum of the attention mass of the rows of query head h */
static double
mass_of(const struct cache *c, uint32_t l, uint32_t h)
{
	const struct layer_rows *rows = &c->layer[l];
	uint32_t n = rows->len[h / (c->model->id.query_heads / rows->heads)], i;
	float *list = host(c, c->mass[l].sum + h * c->mass[l].stride, n * sizeof *list);
	double sum = 0;

	for (i = 0; i < n; i++)
		sum += list[i];
	free(list);
	return sum;
}

/* Rows that are only run leave no trace; and neither do those before a clear. */
static void
check_coming_and_going(const struct model *m, struct cache *c, struct workspace *ws)
{
	static const uint32_t ids[] = { 3, 1, 4 };
	struct attention_mass *mass = c->mass;

	check_positions(c, "one more");
	c->mass = NULL;
	must(run_unstored(m, &(struct sequence){ .cache = c }, ws, ids, 3, NULL, NULL, err,
	    sizeof err) == 0, "unstored");
	check_positions(c, "three unstored");
	append_tokens(c, ws, ids, 2, "two more");
	check_positions(c, "two more");
	c->mass = mass;
	must(cache_clear(c) == 0, "clear");
	check_positions(c, "clear");
	append_tokens(c, ws, ids, 3, "anew");
	check_positions(c, "anew");
}

/* Each query gives away 1: a row that comes where a dropped one was begins with nothing. */
static void
check_next_token(const struct model *m, struct cache *c, struct workspace *ws)
{
	uint32_t L = m->id.layers, H = m->id.query_heads, id = 7, l, h;
	double *before = malloc((size_t)L * H * sizeof *before);

	must(before != NULL, "memory");
	for (l = 0; l < L; l++)
		for (h = 0; h < H; h++)
			before[l * H + h] = mass_of(c, l, h);
	append_tokens(c, ws, &id, 1, "one more");
	for (l = 0; l < L; l++)
		for (h = 0; h < H; h++)
			check(fabs(mass_of(c, l, h) - before[l * H + h] - 1) < 1e-4,
			    "layer %u query head %u: mass %g more", l, h,
			    mass_of(c, l, h) - before[l * H + h]);
	free(before);
}

static void
check_keep(const struct model *m, int trim)
{
	struct workspace *ws = workspace_new(m, TILE);
	uint32_t G = m->id.kv_heads, L = m->id.layers, g, l;
	struct cache *whole, *c;
	uint32_t **keep = calloc(G, sizeof *keep), *count = calloc(G, sizeof *count);

	must(ws != NULL && keep != NULL && count != NULL, "memory");
	whole = run(m, ws);
	c = run(m, ws);
	for (g = 0; g < G; g++) {
		must((keep[g] = malloc(TOKENS * sizeof *keep[g])) != NULL, "memory");
		count[g] = chosen(keep[g], g);
	}
	for (l = 0; l < L; l++) {
		cache_keep(c, l, count, keep);
		must(!trim || cache_trim(c, l, l + 1) == 0, "trim");
		check(!trim || c->layer[l].capacity[0] == count[0], "%u rows of capacity",
		    c->layer[l].capacity[0]);
		check_layer(whole, c, l, keep, count);
	}
	check_positions(c, trim ? "trim" : "keep");
	check_next_token(m, c, ws);
	check_coming_and_going(m, c, ws);
	for (g = 0; g < G; g++)
		free(keep[g]);
	free(keep);
	free(count);
	cache_free(whole);
	cache_free(c);
	workspace_free(ws, m);
}

/* An empty layer gets the memory of one that is trimmed, cleared. */
static void
check_spare_to(const struct model *m)
{
	const uint32_t G = m->id.kv_heads, H = m->id.query_heads, rows = 9, few = 2;
	uint32_t *count = calloc(G, sizeof *count), **keep = calloc(G, sizeof *keep),
	    first[] = { 0, 5 };
	struct cache *c = cache_new(m, KV_BF16);
	uint32_t pos[9] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 }, g, h;
	const struct ops *o = m->ops;
	void *k;

	must(c != NULL && count != NULL && keep != NULL && cache_want_mass(c) == 0 &&
	    cache_reserve_layers(c, rows, 0, 1) == 0, "memory");
	cache_expect(c, 0, pos, rows);
	for (g = 0; g < G; g++) {
		c->layer[0].len[g] = rows;
		count[g] = few;
		keep[g] = first;
	}
	for (h = 0; h < H * c->mass[0].stride; h++)
		o->put(m->dev, c->mass[0].sum + h, &(float){ 1 }, sizeof(float));
	k = c->layer[0].k;
	cache_keep(c, 0, count, keep);
	must(cache_trim(c, 0, 1) == 0, "trim");
	check(c->layer[1].k == k && c->layer[0].k != k, "the memory is not handed over");
	must(cache_reserve_layers(c, rows, 1, 2) == 0, "memory");
	check(c->layer[1].k == k, "a layer with enough capacity is moved");
	for (g = 0; g < G; g++)
		check(c->layer[1].capacity[g] == rows && c->layer[1].len[g] == 0 &&
		    c->layer[0].capacity[g] == few, "%u rows of capacity", c->layer[1].capacity[g]);
	cache_expect(c, 1, pos, rows);
	c->layer[1].len[G - 1] = rows;
	check(mass_of(c, 1, H - 1) == 0, "the new layer has mass %g", mass_of(c, 1, H - 1));
	check(mass_of(c, 0, H - 1) == few, "the rows have mass %g", mass_of(c, 0, H - 1));
	check(cache_rows(c, 1).pos[G - 1][8] == 8 && cache_rows(c, 0).pos[G - 1][1] == 5,
	    "other positions");
	must(cache_trim(c, 0, m->id.layers) == 0, "trim without spare_to");
	cache_free(c);
	free(count);
	free(keep);
}

int
main(int argc, char **argv)
{
	struct dev *dev = cpu_ops.open(0, 0, err, sizeof err);
	struct model *m = NULL;

	must(dev != NULL, "device");
	must(model_load(argc > 1 ? argv[1] : DEMO_MODEL, &cpu_ops, dev, &m, err, sizeof err) == 0,
	    "model");
	check_keep(m, 0);
	check_keep(m, 1);
	check_spare_to(m);
	model_free(m);
	cpu_ops.close(dev);
	return failures > 0;
}

/* methods_heads.c - the scores of a layer do not depend on the number of threads, and a head that
 * is scored alone gets what it gets among the others */
#include <stdlib.h>
#include <string.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

#define HEADS 5
#define R 3
#define WIDTH 6
#define WINDOW 7

/* Ragged, one head empty, together enough rows for several threads. */
static const uint32_t count[HEADS] = { 9000, 1, 0, 7001, 4095 };

static uint32_t *pos[HEADS];
static const struct kv_rows rows = { HEADS, count, (const uint32_t *const *)pos };
static uint32_t window_pos[WINDOW];
static float *keys, *values, *mass, *window_mass, *queries;
static double *query_sums;
static const double freq[WIDTH / 2];

static float
any(void)
{
	static uint32_t x = 1;

	x = x * 1664525 + 1013904223;
	return (float)(x >> 8) * 0x1p-24f;
}

static float *
many(size_t n)
{
	float *a = malloc(n * sizeof *a);
	size_t i;

	for (i = 0; a != NULL && i < n; i++)
		a[i] = any();
	return a;
}

static void
make_layer(uint32_t next)
{
	uint64_t total = kv_rows_total(&rows);
	uint32_t g, s;

	keys = many(total * WIDTH);
	values = many(total * WIDTH);
	mass = many(total * R);
	window_mass = many((size_t)WINDOW * HEADS * R * count[0]);
	queries = many((size_t)WINDOW * HEADS * R * WIDTH);
	query_sums = calloc((size_t)HEADS * R * WIDTH * (WIDTH + 3), sizeof *query_sums);
	for (s = 0; s < HEADS * R * WIDTH; s++)
		query_sums[s] = any();
	for (g = 0; g < HEADS; g++) {
		pos[g] = malloc(count[g] * sizeof *pos[g] + 1);
		for (s = 0; s < count[g]; s++)
			pos[g][s] = next - count[g] + s;
	}
	for (s = 0; s < WINDOW; s++)
		window_pos[s] = next - WINDOW + s;
}

static void
check_method(const struct method *m, uint32_t next)
{
	const size_t sums = (size_t)HEADS * R * WIDTH;
	const struct kv_query_stats stats = { 4, 1, query_sums, query_sums + sums,
	    query_sums + 2 * sums };
	static const unsigned threads[] = { 1, 2, 3, 64, 1000 };
	struct attention_spread spread[HEADS], wanted[HEADS];
	struct score_input in = { .layer = 2, .layers = 3, .query_heads = HEADS * R, .width = WIDTH,
	    .rows = &rows, .keys = keys, .key_type = KV_ROW_F32, .values = values,
	    .value_type = KV_ROW_F32, .filter = keys, .window_mass = window_mass,
	    .stride = count[0], .of_query = (size_t)HEADS * R * count[0], .spread = wanted,
	    .mass = mass, .probe_mass = mass, .window = WINDOW,
	    .window_pos = window_pos, .next_position = next, .query_stats = &stats,
	    .gate = keys, .noncausal = mass, .queries = queries, .queries_heads = HEADS * R,
	    .freq = freq, .rope_dims = WIDTH, .rope_factor = 1 };
	size_t size = kv_rows_total(&rows) * sizeof(float), i;
	float *want = malloc(size), *score = malloc(size);

	/* those that rotate keys or queries, or read each query, are called for one KV head at a
	 * time alone */
	memset(wanted, 0, sizeof wanted);
	if (m->needs & (NEED_ROPE | NEED_QUERIES | NEED_NONCAUSAL | NEED_EACH_QUERY))
		check(method_score(m, &in, &m->defaults, 1, want) == 0, "%s failed", m->name);
	else
		check(m->score(&in, &m->defaults, want) == 0, "%s failed", m->name);
	in.spread = spread;
	for (i = 0; i < sizeof threads / sizeof *threads; i++) {
		memset(score, 0xff, size);
		memset(spread, 0, sizeof spread);
		check(method_score(m, &in, &m->defaults, threads[i], score) == 0, "%s failed",
		    m->name);
		check(memcmp(score, want, size) == 0, "%s: other scores from %u threads", m->name,
		    threads[i]);
		check(memcmp(spread, wanted, sizeof spread) == 0, "%s: another spread from %u "
		    "threads", m->name, threads[i]);
	}
	free(want);
	free(score);
}

int
main(void)
{
	const struct method *m;
	uint32_t next = 10000, g;

	make_layer(next);
	for (m = methods; m->name != NULL; m++)
		check_method(m, next);
	for (g = 0; g < HEADS; g++)
		free(pos[g]);
	free(keys);
	free(values);
	free(mass);
	free(window_mass);
	free(queries);
	free(query_sums);
	return failures > 0;
}

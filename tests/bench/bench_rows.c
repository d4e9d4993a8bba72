/* bench_rows.c - how fast the CPU backend computes attention over rows of each type
 *
 * bench_rows [threads [E [R [type ...]]]]: heads of E channels, R query heads for each of 8 KV
 * heads; types of libkvfile/rowtype.h. "cpu" for threads: one, and processor time counts instead of
 * the clock. Decoding reads as many layers of 32768 rows as are larger
 * than every cache; prefill is 512 query rows over 8192 rows. The types take turns, ROUNDS times;
 * for each the best counts, beside that of rows in bf16. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "tests/bench/bench.h"

enum { G = 8, S = 32768, PREFILL_ROWS = 8192, PREFILL = 512, MOST_TYPES = 20 };
#define BYTES ((size_t)3 << 28)           /* of the layers of one type: 0.75 GiB */

static struct dev *dev;

/* One type: layers of keys, each followed by its values */
struct rows {
	enum kv_row_type type;
	char *layers;
	size_t n, bytes;                  /* layers; bytes of keys, or of values, of one */
	double decode, prefill;           /* the best times, of one call */
};

static void *
allocate(size_t bytes)
{
	void *p = cpu_ops.alloc(dev, bytes);

	if (p == NULL) {
		fprintf(stderr, "bench_rows: no room for %zu bytes\n", bytes);
		exit(1);
	}
	return p;
}

static float *
random_numbers(size_t n)
{
	float *x = allocate(n * sizeof *x);
	size_t i;

	for (i = 0; i < n; i++)
		x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	return x;
}

/* Random rows in one layer, and the same bytes in all others */
static void
make_rows(struct rows *r, uint32_t E)
{
	const size_t row = kv_row_bytes(r->type, E);
	float *x = random_numbers((size_t)S * E);
	size_t i;

	r->bytes = G * S * row;
	r->n = BYTES / (2 * r->bytes) + 1;
	r->layers = allocate(r->n * 2 * r->bytes);
	for (i = 0; i < 2 * G; i++)
		kv_rows_from_f32(r->layers + i * S * row, x, r->type, E, S);
	for (i = 0; kv_row_type_kivi(r->type) && i < G * S; i += KV_GROUP_ROWS)
		kv_group_from_f32(r->layers + i * row, x + i % S * E, r->type, E);
	for (i = 1; i < r->n; i++)
		memcpy(r->layers + i * 2 * r->bytes, r->layers, 2 * r->bytes);
	cpu_ops.free(dev, x);
}

/* Rows of `len` of the S of each KV head of layer i */
static struct layer_rows
layer(const struct rows *r, size_t i, uint32_t E, uint32_t len)
{
	static uint64_t start[G];
	static uint32_t pos[G * S], n[G], none[G];
	static char no_row[1];
	/* all rows are coded */
	static struct recent_rows recent = { .k = no_row, .v = no_row, .residual = KV_GROUP_ROWS,
		.first = none, .k_coded = n, .v_coded = n };
	struct layer_rows c = { .k = r->layers + i * 2 * r->bytes, .pos = pos, .start = start,
		.len = n, .heads = G, .width = E, .dtype = KV_BF16, .k_type = r->type,
		.v_type = r->type, .recent = kv_row_type_kivi(r->type) ? &recent : NULL };
	uint32_t g, s;

	c.v = (char *)c.k + r->bytes;
	for (g = 0; g < G; g++) {
		start[g] = (uint64_t)g * S;
		n[g] = len;
		for (s = 0; s < S && pos[S - 1] == 0; s++)
			pos[g * S + s] = s;
	}
	for (g = 1; g < G; g++)
		memcpy(pos + g * S, pos, S * sizeof *pos);
	return c;
}

static void
keep_least(double *best, double t)
{
	if (*best == 0 || t < *best)
		*best = t;
}

static void
run_decode(struct rows *r, uint32_t E, uint32_t H, const float *q, float *o)
{
	const uint32_t pos = S;
	const struct query query = { .q = q, .pos = &pos, .N = 1, .H = H };
	struct layer_rows c = layer(r, 0, E, S);
	double t = bench_now();
	size_t i;

	for (i = 0; i < r->n; i++) {
		c.k = r->layers + i * 2 * r->bytes;
		c.v = (char *)c.k + r->bytes;
		cpu_ops.attend(dev, o, NULL, &query, &c);
	}
	keep_least(&r->decode, (bench_now() - t) / (double)r->n);
}

static void
run_prefill(struct rows *r, uint32_t E, uint32_t H, const float *q, float *o)
{
	uint32_t pos[PREFILL], i;
	const struct query query = { .q = q, .pos = pos, .N = PREFILL, .H = H };
	struct layer_rows c = layer(r, 0, E, PREFILL_ROWS);
	double t;

	for (i = 0; i < PREFILL; i++)
		pos[i] = PREFILL_ROWS - PREFILL + i;
	t = bench_now();
	cpu_ops.attend(dev, o, NULL, &query, &c);
	keep_least(&r->prefill, bench_now() - t);
}

static void
report(const struct rows *r, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		printf("%-14s decode %8.3f ms %6.1f GB/s, %5.2f of bf16   prefill %8.1f ms, "
		    "%5.2f of bf16\n", kv_row_type_name(r[i].type), 1e3 * r[i].decode,
		    2e-9 * (double)r[i].bytes / r[i].decode, r[0].decode / r[i].decode,
		    1e3 * r[i].prefill, r[0].prefill / r[i].prefill);
}

int
main(int argc, char *argv[])
{
	static const char *const all[] = { "f16", "q8_0", "q4_0", "q4_1", "q5_0", "int8", "fp8",
		"q8_0-hadamard", "q4_0-hadamard", "kivi4", "kivi2" };
	const uint32_t E = argc > 2 ? (uint32_t)atoi(argv[2]) : 64;
	const uint32_t R = argc > 3 ? (uint32_t)atoi(argv[3]) : 4;
	const int named = argc > 4, types = named ? argc - 4 : (int)(sizeof all / sizeof all[0]);
	struct rows r[MOST_TYPES] = { { .type = KV_ROW_BF16 } };
	float *q, *o;
	char err[128];
	int i, round, n = 1;

	bench_cpu_time = argc > 1 && strcmp(argv[1], "cpu") == 0;
	bench_threads = bench_cpu_time ? 1 : argc > 1 ? atoi(argv[1]) : omp_get_num_procs();
	if ((dev = cpu_ops.open(0, bench_threads, err, sizeof err)) == NULL) {
		fprintf(stderr, "bench_rows: %s\n", err);
		return 1;
	}
	q = random_numbers((size_t)PREFILL * G * R * E);
	o = allocate((size_t)PREFILL * G * R * E * sizeof *o);
	for (i = 0; i < types && n < MOST_TYPES; i++, n++)
		if ((r[n].type = kv_row_type_named(named ? argv[4 + i] : all[i])) == 0) {
			fprintf(stderr, "bench_rows: there is no type %s\n", argv[4 + i]);
			return 1;
		}
	for (i = 0; i < n; i++)
		make_rows(&r[i], E);
	for (round = 0; round < ROUNDS; round++)
		for (i = 0; i < n; i++) {
			run_decode(&r[i], E, G * R, q, o);
			if (round < 3)
				run_prefill(&r[i], E, G * R, q, o);
		}
	printf("%s; E %u, H %u/%u; the best of %d rounds\n", cpu_ops.describe(dev), E, G * R, G,
	    ROUNDS);
	report(r, (size_t)n);
	if (cpu_ops.sync(dev) != NULL) {
		fprintf(stderr, "bench_rows: %s\n", cpu_ops.sync(dev));
		return 1;
	}
	cpu_ops.close(dev);
	return 0;
}

/* bench_batch.c - a step of several sequences at once, as a share of what they take one after
 * the other
 *
 * bench_batch MODEL [ROWS [STEPS [cpu|wall [THREADS]]]]. For 1, 4, 16 and 32 sequences of ROWS
 * rows (512), with caches of their own, filled with random keys and values: milliseconds of a
 * step, tokens per second, and these beside those of one sequence by itself (generate.c). They
 * take turns, STEPS times (9); medians. cpu is processor time of all threads, for machines that
 * have other things to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/batch.h"
#include "forward/generate.h"
#include "tests/bench/bench.h"
#include "tests/bench/fill.h"
#include "tests/bench/median.h"

static const uint32_t at_once[] = { 1, 4, 16, 32 };

enum { SIZES = sizeof at_once / sizeof at_once[0], MOST = 32, ALONE = SIZES };

static void
fail(const char *what)
{
	fprintf(stderr, "bench_batch: %s\n", what);
	exit(1);
}

/* A cache with so many rows, and room for one more in each step */
static struct cache *
fill(const struct model *m, uint32_t rows, uint32_t steps)
{
	struct cache *c = bench_fill(m, rows, steps, 0);

	if (c == NULL)
		fail("no memory");
	return c;
}

static uint32_t
random_id(const struct model *m)
{
	return (uint32_t)(rand() % (int)m->id.vocabulary);
}

static double
step(const struct model *m, struct batch *b, struct sequence *s, uint32_t n)
{
	struct batch_row row[MOST];
	char err[256] = "";
	double t = bench_now();
	uint32_t i;

	for (i = 0; i < n; i++) {
		row[i] = (struct batch_row){ .sequence = &s[i], .id = random_id(m) };
		if (batch_expect(&s[i], row[i].id, err, sizeof err) != 0)
			fail(err);
	}
	if (batch_run(b, row, n, err, sizeof err) != 0)
		fail(err);
	return bench_now() - t;
}

static double
step_alone(const struct model *m, struct generator *g)
{
	char err[256] = "";
	double t = bench_now();
	uint32_t next;

	if (generator_run(g, random_id(m), NULL, &next, err, sizeof err) != 0)
		fail(err);
	return bench_now() - t;
}

static void
measure(const struct model *m, uint32_t rows, int steps)
{
	struct batch *b = batch_new(m, MOST);
	struct workspace *ws = workspace_new(m, 1);
	struct sequence s[MOST] = { { .cache = NULL } };
	struct sequence alone = { .cache = fill(m, rows, 2 * (uint32_t)steps + 2) };
	struct generator *g = ws != NULL ? generator_new(&alone, ws) : NULL;
	double *t[SIZES + 1], one;
	int i, k;

	if (b == NULL || g == NULL)
		fail("no memory");
	for (i = 0; i < MOST; i++)
		s[i].cache = fill(m, rows, SIZES * ((uint32_t)steps + 1));
	for (k = 0; k <= SIZES; k++)
		if ((t[k] = malloc((size_t)steps * sizeof *t[k])) == NULL)
			fail("no memory");
	for (i = -1; i < steps; i++)            /* the first round warms up */
		for (k = 0; k <= SIZES; k++)
			t[k][i < 0 ? 0 : i] = k == ALONE ? step_alone(m, g) :
			    step(m, b, s, at_once[k]);
	one = median(t[ALONE], steps);
	printf("%-12s %9s %12s %8s\n", "sequences", "ms/step", "tokens/s", "alone=1");
	printf("%-12s %9.2f %12.1f %8.2f\n", "1, alone", one * 1e3, 1 / one, 1.0);
	for (k = 0; k < SIZES; k++) {
		const double x = median(t[k], steps);

		printf("%-12u %9.2f %12.1f %8.2f\n", at_once[k], x * 1e3, at_once[k] / x,
		    at_once[k] * one / x);
		free(t[k]);
	}
	free(t[ALONE]);
	for (i = 0; i < MOST; i++)
		sequence_free(&s[i]);
	generator_free(g);
	sequence_free(&alone);
	workspace_free(ws, m);
	batch_free(b);
}

int
main(int argc, char **argv)
{
	const int rows = argc > 2 ? atoi(argv[2]) : 512, steps = argc > 3 ? atoi(argv[3]) : 9;
	struct model *m;
	struct dev *dev;
	char err[512];

	if (argc < 2 || rows < 1 || steps < 1)
		fail("usage: bench_batch MODEL [ROWS [STEPS [cpu|wall [THREADS]]]]");
	bench_cpu_time = argc > 4 && strcmp(argv[4], "cpu") == 0;
	if ((dev = cpu_ops.open(0, argc > 5 ? atoi(argv[5]) : 0, err, sizeof err)) == NULL ||
	    model_load(argv[1], &cpu_ops, dev, &m, err, sizeof err) != 0)
		fail(err);
	measure(m, (uint32_t)rows, steps);
	model_free(m);
	cpu_ops.close(dev);
	return 0;
}

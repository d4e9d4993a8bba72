/* bench_tokens.c - seconds that a model takes for a prompt, and for a token behind it
 *
 * bench_tokens MODEL TOKENS STEPS [f32|bf16 [THREADS [filled [TYPE]]]]. Prints two numbers, of
 * processor time, so that they say something on a busy machine, too, with several threads of the
 * clock: the prompt, and the median of the steps. MODEL is a folder or a GGUF file. Loading does
 * not count; a short prompt runs before. With "filled" there is no prompt, and the steps stand
 * behind TOKENS rows of random numbers, of this type (rowtype.h). peer.py puts them beside those of
 * another program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/forward.h"
#include "tests/bench/bench.h"
#include "tests/bench/fill.h"
#include "tests/bench/median.h"

#define WARM_UP 48

static void
fail(const char *what)
{
	fprintf(stderr, "bench_tokens: %s\n", what);
	exit(1);
}

/* Seconds that n tokens behind the cache take */
static double
run(const struct model *m, struct cache *c, struct workspace *ws, size_t n)
{
	struct sequence s = { .cache = c };
	uint32_t *ids = malloc(n * sizeof *ids);
	char err[256];
	double t;
	size_t i;

	for (i = 0; ids != NULL && i < n; i++)
		ids[i] = (uint32_t)(rand() % (int)m->id.vocabulary);
	cache_reserve(c, n);
	t = bench_now();
	if (ids == NULL || run_tokens(m, &s, ws, ids, n, NULL, NULL, err, sizeof err) != 0)
		fail(ids == NULL ? "no memory" : err);
	free(ids);
	return bench_now() - t;
}

static void
measure(const struct model *m, size_t tokens, size_t steps, int filled, enum kv_row_type type)
{
	struct workspace *ws = workspace_new(m, ops_tile(m->ops)), *one = workspace_new(m, 1);
	struct cache *c = cache_new(m, m->id.weights_dtype);
	double *step = malloc(steps * sizeof *step), prompt = 0;
	size_t i;

	if (ws == NULL || one == NULL || c == NULL || step == NULL)
		fail("no memory");
	run(m, c, ws, WARM_UP);
	cache_free(c);
	c = filled ? bench_fill(m, (uint32_t)tokens, (uint32_t)steps, type) :
	    cache_new(m, m->id.weights_dtype);
	if (c == NULL)
		fail("no memory");
	if (!filled)
		prompt = run(m, c, ws, tokens);
	for (i = 0; i < steps; i++)
		step[i] = run(m, c, one, 1);
	printf("%.6f %.6f\n", prompt, median(step, (int)steps));
	cache_free(c);
	workspace_free(ws, m);
	workspace_free(one, m);
	free(step);
}

int
main(int argc, char **argv)
{
	const int bf16 = argc > 4 && strcmp(argv[4], "bf16") == 0;
	const int threads = argc > 5 ? atoi(argv[5]) : 1;
	const enum kv_row_type type = argc > 7 ? kv_row_type_named(argv[7]) : 0;
	struct model *m;
	struct dev *dev;
	char err[512];

	if (argc < 4 || atoi(argv[2]) < 1 || atoi(argv[3]) < 1)
		fail("usage: bench_tokens MODEL TOKENS STEPS [f32|bf16 [THREADS [filled [TYPE]]]]");
	if (argc > 7 && type == 0)
		fail("no such type of rows");
	bench_cpu_time = threads == 1;
	if ((dev = cpu_ops.open(0, threads, err, sizeof err)) == NULL ||
	    model_load(argv[1], &cpu_ops, dev, &m, err, sizeof err) != 0)
		fail(err);
	if (bf16 && !(m->products_in_bf16 = cpu_ops.products_in_bf16(dev, 1)))
		fail("this processor has no AVX512-BF16");
	measure(m, (size_t)atoi(argv[2]), (size_t)atoi(argv[3]),
	    argc > 6 && strcmp(argv[6], "filled") == 0, type);
	model_free(m);
	cpu_ops.close(dev);
	return 0;
}

/* bench_model.c - how fast a whole model runs, as a share of what the machine can do in the
 * same run
 *
 * bench_model MODEL [threads]. Prefill of 512 tokens: floating-point operations of all matrix
 * products per second, against oneDNN's f32 sgemm at the shape that most of them have (512 x
 * ffn x hidden). Decoding: bytes of weights and cache that one token must read, per second,
 * against a sum over a buffer. They take turns, ROUNDS times; the medians count. */
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/forward.h"
#include "tests/bench/bench.h"

#define PROMPT 512
#define TOKENS 4                          /* decoded in one round */

static void
fail(const char *what)
{
	fprintf(stderr, "bench_model: %s\n", what);
	exit(1);
}

/* Elements of the matrices that every token goes through, without embedding and output. */
static double
layer_elements(const struct kv_model *id)
{
	double D = id->hidden, E = id->head_width;

	return id->layers * (2 * D * id->query_heads * E + 2 * D * id->kv_heads * E + 3 * D *
	    id->ffn);
}

static void
run(const struct model *m, struct cache *c, struct workspace *ws, size_t n)
{
	static uint32_t ids[PROMPT];
	char err[256];
	size_t i;

	for (i = 0; i < n; i++)
		ids[i] = (uint32_t)(rand() % (int)m->id.vocabulary);
	if (run_tokens(m, c, ws, ids, n, NULL, NULL, err, sizeof err) != 0)
		fail(err);
}

int
main(int argc, char **argv)
{
	double prefill[ROUNDS], decode[ROUNDS], gemm[ROUNDS], reading[ROUNDS], t, flop, bytes;
	struct workspace *ws, *one;
	struct dev *dev;
	struct model *m;
	struct cache *c;
	char err[512], *big;
	float *a, *b, *y;
	int r, D, F;

	bench_threads = argc > 2 ? atoi(argv[2]) : omp_get_num_procs();
	omp_set_num_threads(bench_threads);       /* of the peer */
	if (argc < 2)
		fail("usage: bench_model MODEL [threads]");
	if ((dev = cpu_ops.open(0, bench_threads, err, sizeof err)) == NULL ||
	    model_load(argv[1], &cpu_ops, dev, &m, err, sizeof err) != 0)
		fail(err);
	D = (int)m->id.hidden;
	F = (int)m->id.ffn;
	a = calloc((size_t)PROMPT * D, sizeof *a);
	b = calloc((size_t)F * D, sizeof *b);
	y = calloc((size_t)PROMPT * F, sizeof *y);
	big = malloc(BENCH_BIG);
	ws = workspace_new(m, PROMPT);
	one = workspace_new(m, 1);
	if (!a || !b || !y || !big || !ws || !one)
		fail("no memory");
	memset(big, 1, BENCH_BIG);
	for (r = 0; r < PROMPT * D; r++)
		a[r] = (float)rand() / (float)RAND_MAX - 0.5f;
	for (r = 0; r < F * D; r++)
		b[r] = (float)rand() / (float)RAND_MAX - 0.5f;

	printf("%s; medians of %d rounds\n", cpu_ops.describe(dev), ROUNDS);
	flop = 2e-9 * (PROMPT * layer_elements(&m->id) + (double)m->id.vocabulary * D);
	bytes = 1e-9 * (double)kv_dtype_size(m->id.weights_dtype) *
	    (layer_elements(&m->id) + (double)m->id.vocabulary * D);
	for (r = -1; r < ROUNDS; r++) {           /* round -1 warms up */
		int at = r < 0 ? 0 : r;

		c = cache_new(m, m->id.weights_dtype);
		if (c == NULL)
			fail("no memory");
		t = bench_now();
		run(m, c, ws, PROMPT);
		prefill[at] = bench_now() - t;
		t = bench_now();
		dnnl_sgemm('N', 'T', PROMPT, F, D, 1, a, D, b, D, 0, y, F);
		gemm[at] = bench_now() - t;
		cache_reserve(c, TOKENS);
		t = bench_now();
		for (int i = 0; i < TOKENS; i++)
			run(m, c, one, 1);
		decode[at] = (bench_now() - t) / TOKENS;
		t = bench_now();
		bench_read_all(big, BENCH_BIG);
		reading[at] = bench_now() - t;
		cache_free(c);
	}
	bench_report("prefill, 512 tokens; sgemm f32", "GFLOP/s", flop / bench_median(prefill),
	    2e-9 * PROMPT * F * D / bench_median(gemm));
	bench_report("decode, 1 token; reading", "GB/s", bytes / bench_median(decode),
	    1e-9 * (double)BENCH_BIG / bench_median(reading));
	printf("%.0f tokens/s prefill, %.2f tokens/s decode\n", PROMPT / bench_median(prefill),
	    1 / bench_median(decode));
	workspace_free(ws, m);
	workspace_free(one, m);
	model_free(m);
	cpu_ops.close(dev);
	free(a);
	free(b);
	free(y);
	free(big);
	return 0;
}

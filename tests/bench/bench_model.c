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

#include "forward/forward.h"
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
	if (run_tokens(m, &(struct sequence){ .cache = c }, ws, ids, n, NULL, NULL, err,
	    sizeof err) != 0)
		fail(err);
}

static float *
random_floats(size_t n)
{
	float *x = malloc(n * sizeof *x);
	size_t i;

	if (x == NULL)
		fail("no memory");
	for (i = 0; i < n; i++)
		x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	return x;
}

/* Seconds of one round, ours and the peers' */
struct round {
	double prefill, gemm, decode, reading;
};

/* What a round needs: workspaces for the prompt and for one token, and what the peers work on */
struct bench {
	struct model *m;
	struct workspace *ws, *one;
	float *a, *b, *y;              /* [PROMPT][D], [F][D], [PROMPT][F] */
	char *big;                     /* [BENCH_BIG] */
};

static struct round
run_round(const struct bench *s)
{
	const int D = (int)s->m->id.hidden, F = (int)s->m->id.ffn;
	struct cache *c = cache_new(s->m, s->m->id.weights_dtype);
	struct round r;
	double t;
	int i;

	if (c == NULL)
		fail("no memory");
	t = bench_now();
	run(s->m, c, s->ws, PROMPT);
	r.prefill = bench_now() - t;
	t = bench_now();
	dnnl_sgemm('N', 'T', PROMPT, F, D, 1, s->a, D, s->b, D, 0, s->y, F);
	r.gemm = bench_now() - t;
	cache_reserve(c, TOKENS);
	t = bench_now();
	for (i = 0; i < TOKENS; i++)
		run(s->m, c, s->one, 1);
	r.decode = (bench_now() - t) / TOKENS;
	t = bench_now();
	bench_read_all(s->big, BENCH_BIG);
	r.reading = bench_now() - t;
	cache_free(c);
	return r;
}

static void
report(const struct kv_model *id, double *prefill, double *gemm, double *decode, double *reading)
{
	const double head = (double)id->vocabulary * id->hidden, all = layer_elements(id);
	const double bytes = (double)kv_dtype_size(id->weights_dtype) * (all + head);

	bench_report("prefill, 512 tokens; sgemm f32", "GFLOP/s",
	    2e-9 * (PROMPT * all + head) / bench_median(prefill),
	    2e-9 * PROMPT * id->ffn * id->hidden / bench_median(gemm));
	bench_report("decode, 1 token; reading", "GB/s", 1e-9 * bytes / bench_median(decode),
	    1e-9 * (double)BENCH_BIG / bench_median(reading));
	printf("%.0f tokens/s prefill, %.2f tokens/s decode\n", PROMPT / bench_median(prefill),
	    1 / bench_median(decode));
}

int
main(int argc, char **argv)
{
	double prefill[ROUNDS], decode[ROUNDS], gemm[ROUNDS], reading[ROUNDS];
	struct bench s = { .m = NULL };
	struct round one;
	struct dev *dev;
	char err[512];
	int r;

	bench_threads = argc > 2 ? atoi(argv[2]) : omp_get_num_procs();
	omp_set_num_threads(bench_threads);       /* of the peer */
	if (argc < 2)
		fail("usage: bench_model MODEL [threads]");
	if ((dev = cpu_ops.open(0, bench_threads, err, sizeof err)) == NULL ||
	    model_load(argv[1], &cpu_ops, dev, &s.m, err, sizeof err) != 0)
		fail(err);
	s.a = random_floats((size_t)PROMPT * s.m->id.hidden);
	s.b = random_floats((size_t)s.m->id.ffn * s.m->id.hidden);
	s.y = random_floats((size_t)PROMPT * s.m->id.ffn);
	s.big = malloc(BENCH_BIG);
	s.ws = workspace_new(s.m, PROMPT);
	s.one = workspace_new(s.m, 1);
	if (!s.big || !s.ws || !s.one)
		fail("no memory");
	memset(s.big, 1, BENCH_BIG);
	printf("%s; medians of %d rounds\n", cpu_ops.describe(dev), ROUNDS);
	for (r = -1; r < ROUNDS; r++) {           /* round -1 warms up */
		one = run_round(&s);
		prefill[r < 0 ? 0 : r] = one.prefill;
		gemm[r < 0 ? 0 : r] = one.gemm;
		decode[r < 0 ? 0 : r] = one.decode;
		reading[r < 0 ? 0 : r] = one.reading;
	}
	report(&s.m->id, prefill, gemm, decode, reading);
	workspace_free(s.ws, s.m);
	workspace_free(s.one, s.m);
	model_free(s.m);
	cpu_ops.close(dev);
	free(s.a);
	free(s.b);
	free(s.y);
	free(s.big);
	return 0;
}

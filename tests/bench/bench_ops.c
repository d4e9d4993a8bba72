/* bench_ops.c - how fast the CPU backend is, as a share of a peer measured in the same run
 *
 * bench_ops [threads [cpu]]. With cpu the processor time counts instead of the clock: on a
 * busy machine, with one thread, that is what the clock would show on a quiet one. Ours and
 * the peer take turns, ROUNDS times; the medians count. Peers: oneDNN's f32 sgemm with all
 * threads for products, and the time that one pass over the same bytes takes for what is
 * limited by memory: a sum over a buffer that is larger than every cache. Of attention within a
 * window, attention to a cache that holds no more rows than are seen; of softcapped logits, those
 * without. Shapes are those of Llama 3.2 1B: D 2048, F 8192, G*E 512, bf16. */
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "tests/bench/bench.h"

static struct dev *dev;

/* n random elements in device memory */
static void *
fill(size_t n, enum kv_dtype type)
{
	enum { PIECE = 4096 };
	float piece[PIECE];
	size_t size = kv_dtype_size(type), i, k;
	char *p = cpu_ops.alloc(dev, n * size);

	if (p == NULL) {
		fprintf(stderr, "bench_ops: no room for %zu bytes\n", n * size);
		exit(1);
	}
	for (i = 0; i < n; i += PIECE) {
		for (k = 0; k < PIECE; k++)
			piece[k] = (float)rand() / (float)RAND_MAX - 0.5f;
		kv_from_f32(p + i * size, piece, type, n - i < PIECE ? n - i : PIECE);
	}
	return p;
}

/* ---- products ---- */

static void
bench_matmul(const char *products, uint32_t N, uint32_t in, uint32_t out)
{
	float *x = fill((size_t)N * in, KV_F32), *wide = fill((size_t)out * in, KV_F32),
	    *y = fill((size_t)N * out, KV_F32);
	struct mat w = { fill((size_t)out * in, KV_BF16), WEIGHT_BF16, out, in };
	double ours[ROUNDS], peer[ROUNDS], t, flop = 2e-9 * N * in * out;
	char what[64];
	int r;

	for (r = -1; r < ROUNDS; r++) {           /* round -1 warms up */
		t = bench_now();
		cpu_ops.matmul(dev, y, x, &w, NULL, N, 0);
		ours[r < 0 ? 0 : r] = bench_now() - t;
		t = bench_now();
		dnnl_sgemm('N', 'T', N, out, in, 1, x, in, wide, in, 0, y, out);
		peer[r < 0 ? 0 : r] = bench_now() - t;
	}
	snprintf(what, sizeof what, "matmul %s, N %u, in %u, out %u; sgemm f32", products, N, in,
	    out);
	bench_report(what, "GFLOP/s", flop / bench_median(ours), flop / bench_median(peer));
	cpu_ops.free(dev, x);
	cpu_ops.free(dev, wide);
	cpu_ops.free(dev, y);
	cpu_ops.free(dev, (void *)w.data);
}

static void
bench_matmuls(const char *products)
{
	bench_matmul(products, 512, 2048, 2048);
	bench_matmul(products, 512, 2048, 512);
	bench_matmul(products, 512, 2048, 8192);
	bench_matmul(products, 512, 8192, 2048);
}

/* Decoding: one pass over many matrices, together as large as the buffer that measures memory */
static void
bench_gemv(const char *big, enum weight_type type, uint32_t N, uint32_t in, uint32_t out)
{
	const size_t bytes = weight_row_bytes(type, in) * out, count = BENCH_BIG / bytes;
	float *x = fill((size_t)N * in, KV_F32), *y = fill((size_t)N * out, KV_F32);
	double ours[ROUNDS], peer[ROUNDS], t;
	char what[64];
	size_t i;
	int r;

	for (r = 0; r < ROUNDS; r++) {
		t = bench_now();
		for (i = 0; i < count; i++) {
			struct mat w = { big + i * bytes, type, out, in };

			cpu_ops.matmul(dev, y, x, &w, NULL, N, 0);
		}
		ours[r] = bench_now() - t;
		t = bench_now();
		bench_read_all(big, count * bytes);
		peer[r] = bench_now() - t;
	}
	snprintf(what, sizeof what, "matmul %s, N %u, in %u, out %u; reading",
	    weight_type_name(type), N, in, out);
	bench_report(what, "GB/s", 1e-9 * (double)(count * bytes) / bench_median(ours),
	    1e-9 * (double)(count * bytes) / bench_median(peer));
	cpu_ops.free(dev, x);
	cpu_ops.free(dev, y);
}

static void
bench_gemvs(const char *big)
{
	/* as scales of blocks, the bytes of bf16 numbers are f16 numbers of normal size */
	static const enum weight_type blocks[] = { WEIGHT_Q4_0, WEIGHT_Q5_0, WEIGHT_Q8_0,
		WEIGHT_Q4_K, WEIGHT_Q5_K, WEIGHT_Q6_K };
	size_t i;

	bench_gemv(big, WEIGHT_BF16, 1, 2048, 2048);
	bench_gemv(big, WEIGHT_BF16, 1, 2048, 8192);
	bench_gemv(big, WEIGHT_BF16, 1, 8192, 2048);
	bench_gemv(big, WEIGHT_BF16, 4, 2048, 8192);
	bench_gemv(big, WEIGHT_BF16, 8, 2048, 8192);
	for (i = 0; i < sizeof blocks / sizeof *blocks; i++)
		bench_gemv(big, blocks[i], 1, 2048, 8192);
}

/* ---- attention ---- */

/* Positions 0 .. S-1 for each of G heads of S rows */
static struct layer_rows
cache(void *k, void *v, uint32_t G, uint32_t E, uint32_t S)
{
	struct layer_rows c = { .k = k, .v = v, .heads = G, .width = E, .dtype = KV_BF16 };
	uint32_t g, s;

	c.pos = malloc((size_t)G * S * sizeof *c.pos);
	c.start = malloc(G * sizeof *c.start);
	c.len = malloc(G * sizeof *c.len);
	for (g = 0; g < G; g++) {
		c.start[g] = (uint64_t)g * S;
		c.len[g] = S;
		for (s = 0; s < S; s++)
			c.pos[c.start[g] + s] = s;
	}
	return c;
}

static void
free_cache(struct layer_rows *c)
{
	free(c->pos);
	free(c->start);
	free(c->len);
}

/* Decoding: one query row, through as many layers as fit into the buffer that measures memory */
static void
bench_decode(char *big, uint32_t H, uint32_t G, uint32_t E, uint32_t S)
{
	const size_t layer = (size_t)G * S * E * 2, layers = BENCH_BIG / (2 * layer);
	float *q = fill((size_t)H * E, KV_F32), *o = fill((size_t)H * E, KV_F32);
	struct layer_rows c = cache(NULL, NULL, G, E, S);
	double ours[ROUNDS], peer[ROUNDS], t, gb = 2e-9 * (double)(layers * layer);
	uint32_t pos = S;
	const struct query query = { .q = q, .pos = &pos, .N = 1, .H = H };
	char what[64];
	size_t i;
	int r;

	for (r = 0; r < ROUNDS; r++) {
		t = bench_now();
		for (i = 0; i < layers; i++) {
			c.k = big + 2 * i * layer;
			c.v = big + (2 * i + 1) * layer;
			cpu_ops.attend(dev, o, NULL, &query, &c);
		}
		ours[r] = bench_now() - t;
		t = bench_now();
		bench_read_all(big, 2 * layers * layer);
		peer[r] = bench_now() - t;
	}
	snprintf(what, sizeof what, "attend, decode, H %u/%u, E %u, S %u; reading", H, G, E, S);
	bench_report(what, "GB/s", gb / bench_median(ours), gb / bench_median(peer));
	free_cache(&c);
	cpu_ops.free(dev, q);
	cpu_ops.free(dev, o);
}

/* Prefill: causal, N = S; counted are the products of what is seen, half of N x S. Peer:
 * sgemm at N x 2048 x 2048 */
static void
bench_prefill(char *big, uint32_t H, uint32_t G, uint32_t E, uint32_t S)
{
	float *q = fill((size_t)S * H * E, KV_F32), *o = fill((size_t)S * H * E, KV_F32);
	float *a = fill((size_t)2048 * 2048, KV_F32), *b = fill((size_t)2048 * 2048, KV_F32),
	    *y = fill((size_t)2048 * 2048, KV_F32);
	struct layer_rows c = cache(big, big + (size_t)G * S * E * 2, G, E, S);
	const struct query query = { .q = q, .pos = c.pos, .N = S, .H = H };
	double ours[ROUNDS], peer[ROUNDS], t;
	char what[64];
	int r;

	for (r = 0; r < ROUNDS; r++) {
		t = bench_now();
		cpu_ops.attend(dev, o, NULL, &query, &c);
		ours[r] = bench_now() - t;
		t = bench_now();
		dnnl_sgemm('N', 'T', 2048, 2048, 2048, 1, a, 2048, b, 2048, 0, y, 2048);
		peer[r] = bench_now() - t;
	}
	snprintf(what, sizeof what, "attend, prefill, H %u/%u, E %u, N = S %u; sgemm", H, G, E, S);
	bench_report(what, "GFLOP/s", 2e-9 * H * E * S * (S + 1.0) / bench_median(ours),
	    2e-9 * 2048 * 2048 * 2048 / bench_median(peer));
	free_cache(&c);
	cpu_ops.free(dev, q);
	cpu_ops.free(dev, o);
	cpu_ops.free(dev, a);
	cpu_ops.free(dev, b);
	cpu_ops.free(dev, y);
}

/* The same work many times, since some of it is short */
static double
time_attend(float *o, const struct query *query, const struct layer_rows *c, int calls)
{
	double t = bench_now();
	int i;

	for (i = 0; i < calls; i++)
		cpu_ops.attend(dev, o, NULL, query, c);
	return bench_now() - t;
}

/* The last N rows of S within a window, whose work must not grow with S; peer: without a window,
 * over a cache of the rows that they see. Then with softcap over that. */
static void
bench_window(char *big, uint32_t N, uint32_t E, uint32_t S, uint32_t window, int calls)
{
	const uint32_t H = 32, G = 8, seen = N - 1 + window;
	float *q = fill((size_t)N * H * E, KV_F32), *o = fill((size_t)N * H * E, KV_F32);
	struct layer_rows all = cache(big, big + (size_t)G * S * E * 2, G, E, S);
	struct layer_rows few = cache(big, big + (size_t)G * seen * E * 2, G, E, seen);
	const struct query in = { .q = q, .pos = all.pos + S - N, .N = N, .H = H,
	    .window = window };
	const struct query peer = { .q = q, .pos = few.pos + seen - N, .N = N, .H = H };
	struct query capped = peer;
	double windowed[ROUNDS], caps[ROUNDS], without[ROUNDS], by;
	char what[64];
	int r;

	capped.softcap = 50;
	for (r = 0; r < ROUNDS; r++) {
		windowed[r] = time_attend(o, &in, &all, calls);
		without[r] = time_attend(o, &peer, &few, calls);
		caps[r] = time_attend(o, &capped, &few, calls);
	}
	by = calls / bench_median(without);
	snprintf(what, sizeof what, "attend, N %u, E %u, %u of S %u; S %u", N, E, window, S, seen);
	bench_report(what, "calls/s", calls / bench_median(windowed), by);
	snprintf(what, sizeof what, "attend, N %u, E %u, S %u, softcap; none", N, E, seen);
	bench_report(what, "calls/s", calls / bench_median(caps), by);
	free_cache(&all);
	free_cache(&few);
	cpu_ops.free(dev, q);
	cpu_ops.free(dev, o);
}

int
main(int argc, char *argv[])
{
	char err[128], *big;

	bench_threads = argc > 1 ? atoi(argv[1]) : omp_get_num_procs();
	if ((dev = cpu_ops.open(0, bench_threads, err, sizeof err)) == NULL) {
		fprintf(stderr, "bench_ops: %s\n", err);
		return 1;
	}
	if (argc > 2 && strcmp(argv[2], "cpu") == 0)
		bench_cpu_time = 1;
	omp_set_num_threads(bench_threads);             /* of the peer */
	printf("%s; medians of %d rounds\n", cpu_ops.describe(dev), ROUNDS);
	bench_matmuls("bf16 x f32");
	big = fill(BENCH_BIG / 2, KV_BF16);
	bench_gemvs(big);
	bench_decode(big, 32, 8, 64, 32768);
	bench_decode(big, 32, 8, 128, 32768);
	bench_prefill(big, 32, 8, 64, 4096);
	bench_prefill(big, 32, 8, 128, 4096);
	bench_window(big, 1, 64, 100000, 4096, 100);
	bench_window(big, 1, 128, 100000, 4096, 50);
	bench_window(big, 512, 64, 8192, 512, 2);
	bench_window(big, 512, 128, 8192, 512, 2);
	bench_window(big, 512, 256, 8192, 1024, 1);
	if (cpu_ops.products_in_bf16(dev, 1))
		bench_matmuls("bf16 x bf16");
	if (cpu_ops.sync(dev) != NULL) {
		fprintf(stderr, "bench_ops: %s\n", cpu_ops.sync(dev));
		return 1;
	}
	cpu_ops.free(dev, big);
	cpu_ops.close(dev);
	return 0;
}

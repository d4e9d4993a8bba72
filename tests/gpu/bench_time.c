/* bench_time.c - timing and device memory for bench_gpu: see bench_gpu.c */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/bench/median.h"
#include "tests/gpu/bench_gpu.h"

enum { ROUNDS = 5, LEAST_CALLS = 5, MOST_CALLS = 4096 };
#define ROUND 0.05                   /* seconds */

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void
sync_or_die(const char *what)
{
	const char *failure = o->sync(dev);

	if (failure != NULL) {
		fprintf(stderr, "bench_gpu: %s: %s\n", what, failure);
		exit(1);
	}
}

void *
device_alloc(size_t bytes)
{
	void *p = o->alloc(dev, bytes);

	if (p == NULL) {
		fprintf(stderr, "bench_gpu: no room for %zu bytes\n", bytes);
		exit(1);
	}
	return p;
}

void *
fill(size_t n, enum kv_dtype type, float scale)
{
	enum { PIECE = 1000003 };
	static float piece[PIECE];
	static char narrow[PIECE * 4];
	const size_t size = kv_dtype_size(type);
	char *p = device_alloc(n * size);
	size_t i, k;

	for (k = 0; k < PIECE; k++)
		piece[k] = ((float)rand() / (float)RAND_MAX * 2 - 1) * scale;
	kv_from_f32(narrow, piece, type, PIECE);
	for (i = 0; i < n; i += PIECE)
		o->put(dev, p + i * size, narrow, (n - i < PIECE ? n - i : PIECE) * size);
	return p;
}

uint32_t *
count_up(uint32_t n, uint32_t from)
{
	uint32_t *host = malloc(n * sizeof *host), *p = device_alloc(n * sizeof *host), i;

	for (i = 0; i < n; i++)
		host[i] = from + i;
	o->put(dev, p, host, n * sizeof *host);
	o->sync(dev);
	free(host);
	return p;
}

/* The number of calls of a round; the first call here warms up. */
static int
calls_of(const char *what, void (*call)(void *, int), void *arg)
{
	double once;

	if (tiny)
		return 1;
	call(arg, 0);
	sync_or_die(what);
	once = now();
	call(arg, 1);
	sync_or_die(what);
	once = now() - once;
	return once * MOST_CALLS < ROUND ? MOST_CALLS :
	    once * LEAST_CALLS > ROUND ? LEAST_CALLS : (int)(ROUND / once);
}

double
report(const char *what, void (*call)(void *, int), void *arg, double bytes, double flop)
{
	const int rounds = tiny ? 1 : ROUNDS, calls = calls_of(what, call, arg);
	double t[ROUNDS], from, middle;
	int i, r;

	for (r = 0; r < rounds; r++) {
		from = now();
		for (i = 0; i < calls; i++)
			call(arg, i);
		sync_or_die(what);
		t[r] = (now() - from) / calls;
	}
	middle = median(t, rounds);
	printf("{\"what\": \"%s\", \"us\": %.2f, \"least\": %.2f, \"most\": %.2f, "
	       "\"GB/s\": %.1f, \"TFLOP/s\": %.2f}\n", what, middle * 1e6, t[0] * 1e6,
	    t[rounds - 1] * 1e6, bytes / middle * 1e-9, flop / middle * 1e-12);
	fflush(stdout);
	return middle;
}

/* An idle GPU runs at a low clock rate at first. */
void
warm_up(void)
{
	const size_t size = (size_t)1 << 28;
	char *p = device_alloc(2 * size);
	const double from = now();

	while (now() - from < 0.5) {
		o->copy(dev, p, p + size, size);
		sync_or_die("warming up");
	}
	o->free(dev, p);
}

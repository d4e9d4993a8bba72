/* bench_time.c - timing and device memory for bench_gpu: see bench_gpu.c */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/bench/median.h"
#include "tests/gpu/bench_gpu.h"
#include "tests/gpu/event_clock.h"

enum { ROUNDS = 5, WARM = 3, LEAST_CALLS = 5, MOST_CALLS = 4096, MOST_IN_GRAPH = 64 };
/* seconds */
#define ROUND 0.05
#define LEAST_FILLER 2e-4
#define MOST_FILLER 0.02

int not_replayed;

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

/* ---- a measurement ---- */

struct timing {
	const char *what;
	void (*call)(void *, int);
	void *arg;
	int calls;                   /* of a round */
	int in_graph;                /* of them in a graph; 0: launched one by one */
	struct calls *graph;
	double filler;               /* seconds that the host needs at most to queue a round */
};

static void
queue_round(const struct timing *t)
{
	int i;

	for (i = 0; t->in_graph == 0 && i < t->calls; i++)
		t->call(t->arg, i);
	for (i = 0; t->in_graph > 0 && i < t->calls; i += t->in_graph)
		calls_launch(dev, t->graph);
}

/* The number of calls of a round */
static int
calls_of(const struct timing *t)
{
	double once;
	int i;

	for (i = 0; i < WARM; i++) {
		once = now();
		t->call(t->arg, i);
		sync_or_die(t->what);
		once = now() - once;
	}
	return once * MOST_CALLS < ROUND ? MOST_CALLS :
	    once * LEAST_CALLS > ROUND ? LEAST_CALLS : (int)(ROUND / once);
}

/* Captures calls, as many as a round has, at most MOST_IN_GRAPH. */
static void
capture(struct timing *t)
{
	const int n = t->calls < MOST_IN_GRAPH ? t->calls : MOST_IN_GRAPH;
	int i;

	if (!calls_capture(dev))
		return;
	for (i = 0; i < n; i++)
		t->call(t->arg, i);
	if ((t->graph = calls_captured(dev)) != NULL) {
		t->in_graph = n;
		t->calls = (t->calls + n - 1) / n * n;
	}
}

/* The first round is not counted: it shows how long the host takes. */
static void
prepare(struct timing *t, int replayed)
{
	double from;

	if (tiny && !replayed) {
		t->calls = 1;
		return;
	}
	t->calls = tiny ? 1 : calls_of(t);
	if (tiny)
		t->call(t->arg, 0);
	sync_or_die(t->what);
	if (replayed)
		capture(t);
	if (tiny)
		return;
	from = now();
	queue_round(t);
	t->filler = 2 * (now() - from) + LEAST_FILLER;
	if (t->filler > MOST_FILLER)
		t->filler = MOST_FILLER;
	sync_or_die(t->what);
}

/* With --turns another program measures between our rounds, and says when it has. */
static void
wait_for_turn(const char *what)
{
	char line[16];

	if (!turns)
		return;
	printf("{\"turn\": \"%s\"}\n", what);
	if (fgets(line, sizeof line, stdin) == NULL)
		exit(1);
}

static double
measure(const char *what, void (*call)(void *, int), void *arg, double bytes, double flop,
    int replayed)
{
	const int rounds = tiny ? 1 : ROUNDS;
	struct timing g = { .what = what, .call = call, .arg = arg };
	double t[ROUNDS], middle;
	int r;

	if (one_each) {
		call(arg, 0);
		sync_or_die(what);
		return 1;
	}
	prepare(&g, replayed);
	for (r = 0; r < rounds; r++) {
		wait_for_turn(what);
		clock_start(dev, g.filler);
		queue_round(&g);
		t[r] = clock_stop(dev) / g.calls;
		sync_or_die(what);
	}
	calls_free(g.graph);
	middle = median(t, rounds);
	printf("{\"what\": \"%s\", \"us\": %.2f, \"least\": %.2f, \"most\": %.2f, "
	       "\"GB/s\": %.1f, \"TFLOP/s\": %.2f, \"graph\": %d, \"calls\": %d}\n", what,
	    middle * 1e6, t[0] * 1e6, t[rounds - 1] * 1e6, bytes / middle * 1e-9,
	    flop / middle * 1e-12, g.in_graph, g.calls);
	if (replayed && g.in_graph == 0) {
		fprintf(stderr, "bench_gpu: %s: not replayed from a graph\n", what);
		not_replayed++;
	}
	return middle;
}

double
report(const char *what, void (*call)(void *, int), void *arg, double bytes, double flop)
{
	return measure(what, call, arg, bytes, flop, 1);
}

double
report_launched(const char *what, void (*call)(void *, int), void *arg, double bytes, double flop)
{
	return measure(what, call, arg, bytes, flop, 0);
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

/* bench_gpu.c - benchmark of the ops of the CUDA backend, one JSON object a line
 *
 * bench_gpu [--tiny | --once] [--turns] [part ...]: parts attend, decode, mass, retrieve, top,
 * matmul, layer, memory, fetch, rows. --tiny: small shapes and one call of each, to try the program
 * itself on the emulator. --once: one call of each and no measurement, for a profiler. --turns:
 * prints {"turn": NAME} before each round and waits for a line on standard input, so that another
 * program can measure in turn (peers.py).
 *
 * A round calls an op as often as fits into 50 ms by the time of its third call, at least 5 times:
 * as replays of a CUDA graph of up to 64 calls, or, for ops that cannot be captured, one by one.
 * Events around a round measure the GPU's time (event_clock.cu). After a round that is not counted,
 * the median and the extremes of five are printed. peers.py measures the same way. Where an input
 * would stay in L2, calls alternate between up to MOST_COPIES copies of it. Fails where an op that
 * can be captured was not replayed from a graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench_gpu.h"

const struct ops *const o = &gpu_ops;
struct dev *dev;
int tiny, one_each, turns;

/* ---- a layer of cache and queries ---- */

struct layer {
	uint32_t H, G, E, S, N, window;
	float softcap;
	struct layer_rows rows[MOST_COPIES];
	int copies;
	float *q, *o, *lse, *mass, *score;
	float *joint;                /* scores that topk() reads */
	uint32_t *qpos;
	struct entries bits[MOST_COPIES];
	struct chosen chosen;
	uint32_t *n;                 /* host [G] S each */
};

/* H/G heads of width E, S rows, queries at the last N of them; enough copies that their keys
 * do not stay in an L2 cache of 50 MB */
static struct layer *
make_layer(uint32_t H, uint32_t G, uint32_t E, uint32_t S, uint32_t N)
{
	struct layer *l = calloc(1, sizeof *l);
	const size_t rows = (size_t)G * S;
	uint32_t g;
	int i;

	l->H = H;
	l->G = G;
	l->E = E;
	l->S = S;
	l->N = N;
	l->copies = N > 64 || tiny ? 1 : (int)(400e6 / ((double)rows * E * 2)) + 1;
	if (l->copies > MOST_COPIES)
		l->copies = MOST_COPIES;
	l->n = malloc(G * sizeof *l->n);
	for (i = 0; i < l->copies; i++) {
		struct layer_rows *r = &l->rows[i];

		*r = (struct layer_rows){ .k = fill(rows * E, KV_BF16, 3),
			.v = fill(rows * E, KV_BF16, 1), .pos = device_alloc(rows * 4),
			.start = malloc(G * sizeof *r->start), .len = malloc(G * sizeof *r->len),
			.capacity = malloc(G * sizeof *r->capacity), .heads = G, .width = E,
			.dtype = KV_BF16 };
		for (g = 0; g < G; g++) {
			uint32_t *p = count_up(S, 0);

			r->start[g] = (uint64_t)g * S;
			r->len[g] = r->capacity[g] = l->n[g] = S;
			o->copy(dev, r->pos + r->start[g], p, S * 4);
			o->free(dev, p);
		}
	}
	l->q = fill((size_t)N * H * E, KV_F32, 3);
	l->o = device_alloc((size_t)N * H * E * 4);
	l->lse = device_alloc((size_t)N * H * 4);
	l->qpos = count_up(N, S - N);
	return l;
}

static void
free_layer(struct layer *l)
{
	int i;

	for (i = 0; i < l->copies; i++) {
		o->free(dev, l->rows[i].k);
		o->free(dev, l->rows[i].v);
		o->free(dev, l->rows[i].pos);
		free(l->rows[i].start);
		free(l->rows[i].len);
		free(l->rows[i].capacity);
		o->free(dev, l->bits[i].data);
		free(l->bits[i].start);
		free(l->bits[i].len);
		free(l->bits[i].capacity);
	}
	o->free(dev, l->q);
	o->free(dev, l->o);
	o->free(dev, l->lse);
	o->free(dev, l->mass);
	o->free(dev, l->score);
	o->free(dev, l->qpos);
	o->free(dev, l->chosen.at);
	free(l->chosen.n);
	free(l->n);
	free(l);
}

static struct query
query_of(const struct layer *l)
{
	return (struct query){ .q = l->q, .pos = l->qpos, .N = l->N, .H = l->H, .window = l->window,
		.softcap = l->softcap };
}

static void
call_attend(void *arg, int i)
{
	struct layer *l = arg;
	const struct query query = query_of(l);

	o->attend(dev, l->o, l->lse, &query, &l->rows[i % l->copies]);
}

static void
call_window(void *arg, int i)
{
	struct layer *l = arg;
	const struct query query = query_of(l);

	o->window_mass(dev, l->mass, l->S, &query, &l->rows[i % l->copies], NULL, QUERIES_SUM);
}

static void
call_mass(void *arg, int i)
{
	struct layer *l = arg;
	const struct query query = query_of(l);

	o->attend_mass(dev, l->mass, l->S, &query, l->lse, &l->rows[i % l->copies], QUERIES_SUM);
}

static void
call_fier(void *arg, int i)
{
	struct layer *l = arg;
	const struct query query = query_of(l);
	const struct layer_rows *rows = &l->rows[i % l->copies];

	o->bits_scores(dev, l->score, l->S, &query, &l->bits[i % l->copies], rows);
	o->group_reduce(dev, l->joint, l->score, l->S, (struct counts){ l->n, 0 }, NULL,
	    l->H, l->G, REDUCE_MAX);
	o->topk(dev, &l->chosen, l->joint, l->S, (struct counts){ l->n, 0 }, l->G);
	o->attend_chosen(dev, l->o, &query, rows, &l->chosen);
}

static void
call_scores(void *arg, int i)
{
	struct layer *l = arg;
	const struct query query = query_of(l);

	o->bits_scores(dev, l->score, l->S, &query, &l->bits[i % l->copies],
	    &l->rows[i % l->copies]);
}

static void
call_group_reduce(void *arg, int i)
{
	struct layer *l = arg;

	(void)i;
	o->group_reduce(dev, l->joint, l->score, l->S, (struct counts){ l->n, 0 }, NULL,
	    l->H, l->G, REDUCE_MAX);
}

static void
call_topk(void *arg, int i)
{
	struct layer *l = arg;

	(void)i;
	o->topk(dev, &l->chosen, l->joint, l->S, (struct counts){ l->n, 0 }, l->G);
}

static void
call_chosen(void *arg, int i)
{
	struct layer *l = arg;
	const struct query query = query_of(l);

	o->attend_chosen(dev, l->o, &query, &l->rows[i % l->copies], &l->chosen);
}

/* ---- the parts ---- */

/* The longest prompt within a window, and a prompt with softcapped logits: beside rows without
 * either. Query n sees n + 1 rows, or a window of them. */
static void
bench_limited(void)
{
	const uint32_t N = tiny ? 80 : 32768, window = tiny ? 30 : 4096, few = tiny ? 80 : 8192;
	struct layer *l = make_layer(32, 8, 128, N, N);
	char what[80];

	l->window = window;
	snprintf(what, sizeof what, "attend prefill 32/8 E 128 N %u, window %u", N, window);
	report(what, call_attend, l, 0, 2.0 * 32 * 128 * (2.0 * N - window) * window);
	free_layer(l);
	l = make_layer(32, 8, 128, few, few);
	l->softcap = 50;
	snprintf(what, sizeof what, "attend prefill 32/8 E 128 N %u, softcap", few);
	report(what, call_attend, l, 0, 2.0 * 32 * 128 * few * few);
	free_layer(l);
}

static void
bench_attend(void)
{
	static const uint32_t lengths[] = { 8192, 16384, 32768 }, widths[] = { 128, 64 };
	struct layer *l;
	char what[80];
	size_t i, e;

	for (e = 0; e < 2; e++)
		for (i = 0; i < 3; i++) {
			const uint32_t N = tiny ? 80 : lengths[i];

			l = make_layer(32, 8, widths[e], N, N);
			snprintf(what, sizeof what, "attend prefill 32/8 E %u N %u", widths[e], N);
			report(what, call_attend, l, 0, 2.0 * 32 * widths[e] * N * N);
			free_layer(l);
			if (tiny)
				break;
		}
	bench_limited();
}

/* A step within a window of a long cache: of all rows, and of a cache without every third row,
 * where the first row of the window is searched for. The rows of the windows of all copies do not
 * stay in L2. */
static void
bench_step_in_window(void)
{
	const uint32_t S = tiny ? 300 : 32768, window = tiny ? 100 : 4096;
	struct layer *l = make_layer(32, 8, 128, S, 1);
	uint32_t *pos = malloc(S * sizeof *pos), far = S - 1 + S / 2, r, g;
	char what[80];
	int c;

	l->window = window;
	snprintf(what, sizeof what, "attend decode 32/8 E 128 S %u, window %u", S, window);
	report(what, call_attend, l, 4.0 * 8 * window * 128, 0);
	for (r = 0; r < S; r++)
		pos[r] = r + r / 2;
	for (c = 0; c < l->copies; c++)
		for (g = 0; g < 8; g++)
			o->put(dev, l->rows[c].pos + (size_t)g * S, pos, S * sizeof *pos);
	o->put(dev, l->qpos, &far, sizeof far);
	snprintf(what, sizeof what, "attend decode 32/8 E 128 S %u, window %u, evicted", S, window);
	report(what, call_attend, l, 4.0 * 8 * (window * 2 / 3) * 128, 0);
	free_layer(l);
	free(pos);
}

static void
bench_decode(void)
{
	static const struct {
		uint32_t H, G, S;
	} shape[] = { { 32, 8, 8192 }, { 32, 8, 32768 }, { 32, 8, 131072 }, { 32, 4, 131072 },
		{ 32, 32, 32768 } };
	struct layer *l;
	char what[80];
	size_t i;
	uint32_t g;

	for (i = 0; i < sizeof shape / sizeof shape[0]; i++) {
		const uint32_t S = tiny ? 300 : shape[i].S;

		l = make_layer(shape[i].H, shape[i].G, 128, S, 1);
		snprintf(what, sizeof what, "attend decode %u/%u E 128 S %u", shape[i].H,
		    shape[i].G, S);
		report(what, call_attend, l, 4.0 * shape[i].G * S * 128, 0);
		/* the same number of rows, one head with half of them */
		for (g = 0; g < shape[i].G; g++)
			for (int c = 0; c < l->copies; c++)
				l->rows[c].len[g] = g == 0 ? S : S / (2 * (shape[i].G - 1));
		snprintf(what, sizeof what, "attend decode %u/%u E 128, rows %u and %u", shape[i].H,
		    shape[i].G, l->rows[0].len[0], l->rows[0].len[1]);
		report(what, call_attend, l,
		    4.0 * (l->rows[0].len[0] + (shape[i].G - 1.0) * l->rows[0].len[1]) * 128, 0);
		free_layer(l);
	}
	bench_step_in_window();
}

/* Column sums beside attention, of a prompt of S rows; `of`: what stands behind the names */
static void
bench_column_sums(uint32_t E, uint32_t S, const char *of)
{
	struct layer *l = make_layer(32, 8, E, S, tiny ? 80 : S);
	const double products = 1.0 * 32 * E * S * S;
	char what[64];
	double attend;

	l->mass = fill((size_t)32 * S, KV_F32, 0);
	snprintf(what, sizeof what, "attend, of all rows%s", of);
	attend = report(what, call_attend, l, 0, 2 * products);
	snprintf(what, sizeof what, "attend_mass, of all rows%s", of);
	printf("{\"what\": \"attend_mass / attend%s\", \"ratio\": %.3f}\n", of,
	    report(what, call_mass, l, 0, products) / attend);
	free_layer(l);
}

static void
bench_mass(void)
{
	const uint32_t S = tiny ? 300 : 32768;
	struct layer *l = make_layer(32, 8, 128, S, 32);

	l->mass = fill((size_t)32 * S, KV_F32, 0);
	report("window_mass W 32, 32/8 E 128", call_window, l, 2.0 * 8 * S * 128, 0);
	free_layer(l);
	bench_column_sums(128, S, "");
	bench_column_sums(64, S, ", E 64");
}

/* A layer and its 1-bit keys, entries of entry bytes for u rows each; retrieval selects k
 * rows of each KV head */
static struct layer *
make_retrieval(uint32_t H, uint32_t G, uint32_t E, uint32_t S, uint32_t u, uint32_t k, size_t entry)
{
	struct layer *l = make_layer(H, G, E, S, 1);
	uint32_t g;
	int c;

	for (c = 0; c < l->copies; c++) {
		struct entries *b = &l->bits[c];

		*b = (struct entries){ .data = device_alloc(G * (S / u) * entry), .bytes = entry,
			.start = malloc(G * sizeof *b->start), .len = calloc(G, sizeof *b->len),
			.capacity = malloc(G * sizeof *b->capacity), .heads = G, .width = E,
			.rows = u };
		for (g = 0; g < G; g++) {
			b->start[g] = (uint64_t)g * (S / u);
			b->capacity[g] = S / u;
		}
		o->pack_bits(dev, b, &l->rows[c]);
	}
	l->score = device_alloc((size_t)H * S * 4);
	l->joint = l->score;                 /* in place, as in retrieve() */
	l->chosen = (struct chosen){ .at = device_alloc((size_t)G * S * 4), .stride = S,
		.n = malloc(G * sizeof *l->chosen.n), .rows = 1 };
	for (g = 0; g < G; g++)
		l->chosen.n[g] = k;
	return l;
}

static void
bench_retrieve(void)
{
	static const struct {
		uint32_t H, G, S;
	} shape[] = { { 32, 32, 32768 }, { 32, 8, 32768 }, { 32, 8, 131072 } };
	const uint32_t E = 128, u = 32;
	const size_t entry = E * 4 + E * u / 8;
	size_t i, n;

	for (i = 0; i < 3; i++) {
		const uint32_t H = shape[i].H, G = shape[i].G, S = tiny ? 320 : shape[i].S,
			k = (uint32_t)(S * 0.11);
		const double row = E * 4.0, index = (double)G * (S / u) * (double)entry;
		/* in the order of a decode step: each reads the output of those before it */
		const struct {
			const char *name;
			void (*call)(void *, int);
			double bytes;
		} op[] = {
			{ "attend", call_attend, G * S * row },
			{ "FIER", call_fier, index + G * k * row },
			{ "bits_scores", call_scores, index },
			{ "join", call_group_reduce, H == G ? 0 : 4.0 * (H + G) * S },
			{ "top", call_topk, 4.0 * G * S },
			{ "attend_chosen", call_chosen, G * k * row },
		};
		struct layer *l = make_retrieval(H, G, E, S, u, k, entry);
		double t[6];
		char what[80];

		for (n = 0; n < 6; n++) {
			snprintf(what, sizeof what, "%u/%u S %u, %u rows: %s", H, G, S, k,
			    op[n].name);
			t[n] = report(what, op[n].call, l, op[n].bytes, 0);
		}
		printf("{\"what\": \"%u/%u S %u, %u rows: attend / FIER\", \"ratio\": %.3f}\n", H,
		    G, S, k, t[0] / t[1]);
		free_layer(l);
	}
}

static void
bench_topk(void)
{
	static const uint32_t heads[] = { 8, 32 };
	size_t i;
	uint32_t g;

	for (i = 0; i < 2; i++) {
		const uint32_t S = tiny ? 5000 : 65536, G = heads[i];
		struct layer l = { .G = G, .S = S, .n = malloc(G * 4), .copies = 1 };
		char what[80];

		l.joint = fill((size_t)G * S, KV_F32, 5);
		l.chosen = (struct chosen){ .at = device_alloc((size_t)G * S * 4), .stride = S,
			.n = malloc(G * 4), .rows = 1 };
		for (g = 0; g < G; g++) {
			l.n[g] = S;
			l.chosen.n[g] = S * 11 / 100;
		}
		snprintf(what, sizeof what, "top, %u x %u, k %u", G, S, l.chosen.n[0]);
		report(what, call_topk, &l, 4.0 * G * S, 0);
		o->free(dev, l.joint);
		o->free(dev, l.chosen.at);
		free(l.chosen.n);
		free(l.n);
	}
}

struct moved {
	char *host, *device;
	size_t bytes;
	int up;                      /* host to device */
};

static void
call_move(void *arg, int i)
{
	struct moved *m = arg;

	(void)i;
	m->up ? o->put(dev, m->device, m->host, m->bytes) :
	    o->get(dev, m->host, m->device, m->bytes);
}

static uint32_t stays[32768], *keep[8], count[8];

static void
call_compact(void *arg, int i)
{
	struct layer *l = arg;
	struct layer_rows *r = &l->rows[i % l->copies];

	memcpy(r->len, l->n, sizeof count);
	o->compact(dev, r, NULL, 0, l->H, count, keep);
}

/* Compaction of 8 heads of S rows of 256 bytes: every tenth row stays, or all but the middle
 * one. */
static void
bench_compact(uint32_t S, int tenth)
{
	struct layer *l = make_layer(32, 8, 128, tiny ? 100 : S, 1);
	uint32_t n = 0, i;
	char what[64];

	for (i = 0; i < l->S; i++)
		if (tenth ? i % 10 == 0 : i != l->S / 2)
			stays[n++] = i;
	for (i = 0; i < 8; i++) {
		keep[i] = stays;
		count[i] = n;
	}
	snprintf(what, sizeof what, "keep, %u of %u rows", n, l->S);
	report_launched(what, call_compact, l, 2.0 * 8 * 2 * 256 * n / (tenth ? 1 : 2), 0);
	free_layer(l);
}

static void
bench_memory(void)
{
	struct moved m = { .bytes = tiny ? 1 << 20 : (size_t)1 << 30 };

	m.host = malloc(m.bytes);
	memset(m.host, 1, m.bytes);
	m.device = device_alloc(m.bytes);
	for (m.up = 1; m.up >= 0; m.up--)
		report_launched(m.up ? "put" : "get", call_move, &m, (double)m.bytes, 0);
	o->free(dev, m.device);
	free(m.host);
	bench_compact(4096, 0);
	bench_compact(32768, 1);
}

/* Returns the number of the first argument that is no option. */
static int
options(int argc, char *argv[])
{
	int a;

	for (a = 1; a < argc && argv[a][0] == '-'; a++)
		if (strcmp(argv[a], "--tiny") == 0)
			tiny = 1;
		else if (strcmp(argv[a], "--once") == 0)
			one_each = 1;
		else if (strcmp(argv[a], "--turns") == 0)
			turns = 1;
		else {
			fprintf(stderr, "bench_gpu: there is no option '%s'\n", argv[a]);
			exit(2);
		}
	return a;
}

int
main(int argc, char *argv[])
{
	static const struct {
		const char *name;
		void (*run)(void);
	} part[] = {
		{ "attend", bench_attend }, { "decode", bench_decode }, { "mass", bench_mass },
		{ "retrieve", bench_retrieve }, { "top", bench_topk }, { "matmul", bench_matmul },
		{ "layer", bench_layer }, { "memory", bench_memory },
		{ "fetch", bench_fetch }, { "rows", bench_rows },
	};
	char err[256];
	size_t i;
	int first = options(argc, argv), a, named;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (o->open == NULL || (dev = o->open(0, 0, err, sizeof err)) == NULL) {
		fprintf(stderr, "bench_gpu: %s\n", o->open == NULL ? "built without CUDA" : err);
		return 1;
	}
	printf("{\"device\": \"%s\"}\n", o->describe(dev));
	if (!tiny && !one_each)
		warm_up();
	for (i = 0; i < sizeof part / sizeof part[0]; i++) {
		named = argc == first;
		for (a = first; a < argc; a++)
			named |= strcmp(argv[a], part[i].name) == 0;
		if (named)
			part[i].run();
	}
	o->close(dev);
	return not_replayed > 0;
}

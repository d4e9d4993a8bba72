/* bench_retrieve.c - what a step of decoding gains by reading the rows that matter only
 *
 * bench_retrieve [threads [rows [cpu]]]. One query row attends to a text of 32768 rows, through as
 * many layers as fit into the buffer that measures memory, so that nothing is in a cache when its
 * turn comes. Dense attention against FIER (keys in one bit, 11 % of the rows), Quest (bounds of
 * pages of 16 rows, as many rows) and exact top-k (all keys): these take turns, ROUNDS times, and
 * the medians count. Keys are random, so the chosen rows lie scattered: the worst case. A KV head
 * and step read, in bytes, with u rows in a group and k rows chosen:
 *
 * 	dense  2 S E 2             FIER   S E (4 + u/8) / u + 2 k E 2
 * 	exact  S E 2 + 2 k E 2     Quest  S E 2 2 / page + 2 k E 2
 *
 * Then what choosing takes in a step of a model of MODEL_LAYERS layers, of which FIER and Quest
 * choose in all but two, and SpeContext once: by all keys of a head of the model's shape, behind
 * its projections, a product of [2 H E] (the paper's drafts read two vectors of the model's width)
 * with q and k. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "tests/bench/bench.h"

enum { GROUP = 32, PAGE = 16, MAX_LAYERS = 64, MODEL_LAYERS = 32 };
enum way { DENSE, FIER, QUEST, EXACT, WAYS };
enum part { SCORES, JOIN, TOP, ATTEND, PARTS };

static const char *const way_name[] = { "dense", "FIER", "Quest", "exact top-k" };
static const char *const part_name[] = { "scores", "join", "top", "attend_chosen" };

struct shape {
	const char *name;
	uint32_t H, G, E;
};

struct layer {
	struct layer_rows rows;
	struct entries bits, pages;
};

static struct dev *dev;
static struct layer layer[MAX_LAYERS];
static size_t layers;
static double spent[PARTS];               /* seconds of the parts of the last pass */

static void *
room(size_t bytes)
{
	void *p = cpu_ops.alloc(dev, bytes);

	if (p == NULL) {
		fprintf(stderr, "bench_retrieve: no room for %zu bytes\n", bytes);
		exit(1);
	}
	return p;
}

/* Random bf16 from 0.5 to 2, with both signs */
static void *
random_rows(size_t n)
{
	uint16_t *p = room(n * sizeof *p);
	uint64_t x = n;
	size_t i;

	for (i = 0; i < n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint16_t)(0x3f00 | (x >> 48 & 0x80ff));
	}
	return p;
}

static struct entries
empty_index(const struct layer_rows *c, uint32_t rows, size_t bytes)
{
	struct entries e = { .bytes = bytes, .heads = c->heads, .width = c->width, .rows = rows };
	uint32_t g, n = c->len[0] / rows;

	e.start = malloc(c->heads * sizeof *e.start);
	e.len = calloc(c->heads, sizeof *e.len);
	e.capacity = malloc(c->heads * sizeof *e.capacity);
	for (g = 0; g < c->heads; g++) {
		e.start[g] = (uint64_t)g * n;
		e.capacity[g] = n;
	}
	e.data = room(c->heads * n * bytes);
	return e;
}

static void
make_layer(struct layer *l, const struct shape *s, uint32_t S)
{
	const size_t rows = (size_t)s->G * S;
	struct layer_rows *c = &l->rows;
	uint32_t g;
	size_t i;

	*c = (struct layer_rows){ .heads = s->G, .width = s->E, .dtype = KV_BF16 };
	c->start = malloc(s->G * sizeof *c->start);
	c->len = malloc(s->G * sizeof *c->len);
	c->pos = malloc(rows * sizeof *c->pos);
	for (g = 0; g < s->G; g++) {
		c->start[g] = (uint64_t)g * S;
		c->len[g] = S;
	}
	for (i = 0; i < rows; i++)
		c->pos[i] = (uint32_t)(i % S);
	c->k = random_rows(rows * s->E);
	c->v = random_rows(rows * s->E);
	l->bits = empty_index(c, GROUP, s->E * (4 + GROUP / 8));
	l->pages = empty_index(c, PAGE, (size_t)2 * s->E * 2);
	cpu_ops.pack_bits(dev, &l->bits, c);
	cpu_ops.pack_pages(dev, &l->pages, c);
}

static void
free_index(struct entries *e)
{
	cpu_ops.free(dev, e->data);
	free(e->start);
	free(e->len);
	free(e->capacity);
}

static void
free_layer(struct layer *l)
{
	cpu_ops.free(dev, l->rows.k);
	cpu_ops.free(dev, l->rows.v);
	free(l->rows.pos);
	free(l->rows.start);
	free(l->rows.len);
	free_index(&l->bits);
	free_index(&l->pages);
}

/* What a step works on */
struct step {
	const struct shape *shape;
	uint32_t S, k;               /* rows; rows read */
	float *q, *o, *score, *joint;
	struct chosen chosen;
};

static void
since(enum part part, double *t)
{
	double now = bench_now();

	spent[part] += now - *t;
	*t = now;
}

/* One layer of one step */
static void
run_layer(struct step *s, const struct layer *l, enum way way)
{
	const uint32_t H = s->shape->H, G = s->shape->G, entry = way == QUEST ? PAGE : 1;
	float *joint = H == G ? s->score : s->joint;   /* nothing to do where they are the same */
	uint32_t n[64], g, far = s->S;
	const struct query query = { .q = s->q, .pos = &far, .N = 1, .H = H };
	double t = bench_now();

	if (way == DENSE) {
		cpu_ops.attend(dev, s->o, NULL, &query, &l->rows);
		return;
	}
	for (g = 0; g < G; g++) {
		n[g] = s->S / entry;
		s->chosen.n[g] = s->k / entry;
	}
	s->chosen.rows = entry;
	if (way == FIER)
		cpu_ops.bits_scores(dev, s->score, s->S, &query, &l->bits, &l->rows);
	else if (way == QUEST)
		cpu_ops.page_scores(dev, s->score, s->S, &query, &l->pages, KV_BF16);
	else
		cpu_ops.key_scores(dev, s->score, s->S, &query, &l->rows);
	since(SCORES, &t);
	cpu_ops.group_reduce(dev, joint, s->score, s->S, (struct counts){ n, 0 }, NULL, H, G,
	    REDUCE_MAX);
	since(JOIN, &t);
	cpu_ops.topk(dev, &s->chosen, joint, s->S, (struct counts){ n, 0 }, G);
	since(TOP, &t);
	cpu_ops.attend_chosen(dev, s->o, &query, &l->rows, &s->chosen);
	since(ATTEND, &t);
}

static double
run_layers(struct step *s, enum way way)
{
	double t = bench_now();
	size_t i;

	memset(spent, 0, sizeof spent);
	for (i = 0; i < layers; i++)
		run_layer(s, &layer[i], way);
	return bench_now() - t;
}

/* Bytes that a layer's step reads: of the index (or of the keys), and of rows */
static void
bytes_read(const struct step *s, enum way way, double *index, double *rows)
{
	const double E = s->shape->E, G = s->shape->G, S = s->S;
	const double k = way == QUEST ? s->k / PAGE * PAGE : s->k;

	*rows = way == DENSE ? G * 2 * S * E * 2 : G * 2 * k * E * 2;
	*index = way == FIER ? G * S * E * (4 + GROUP / 8.0) / GROUP :
	    way == QUEST ? G * S * E * 2 * 2 / PAGE : way == EXACT ? G * S * E * 2 : 0;
}

static void
report(const struct step *s, double time[WAYS][ROUNDS], double part[WAYS][PARTS][ROUNDS],
    double reading[ROUNDS])
{
	const double peak = bench_median(reading), dense = bench_median(time[DENSE]);
	double index, rows, all, t, of_part;
	char what[64];
	int w, p;

	printf("%s, H %u/%u, E %u, S %u, bf16, %u rows chosen, %zu layers; reading %.1f GB/s\n",
	    s->shape->name, s->shape->H, s->shape->G, s->shape->E, s->S, s->k, layers, peak);
	for (w = 0; w < WAYS; w++) {
		t = bench_median(time[w]) / (double)layers;
		bytes_read(s, w, &index, &rows);
		all = index + rows;
		printf("  %-12s %7.3f ms a layer, %6.1f MB (index %5.1f, rows %5.1f), %5.1f GB/s",
		    way_name[w], 1e3 * t, 1e-6 * all, 1e-6 * index, 1e-6 * rows, 1e-9 * all / t);
		for (p = 0; p < PARTS && w != DENSE; p++) {
			of_part = bench_median(part[w][p]) / (double)layers;
			printf("%s%s %.3f", p == 0 ? "\n\t" : ", ", part_name[p], 1e3 * of_part);
			if (p == SCORES || p == ATTEND)
				printf(" (%.1f GB/s)",
				    1e-9 * (p == SCORES ? index : rows) / of_part);
		}
		printf("\n");
	}
	for (w = FIER; w < WAYS; w++) {
		snprintf(what, sizeof what, "%s, H %u/%u, a step; dense", way_name[w], s->shape->H,
		    s->shape->G);
		bench_report(what, "/s", (double)layers / bench_median(time[w]),
		    (double)layers / dense);
	}
}

/* What the projections of a head take */
static double
time_projections(const struct shape *s)
{
	const uint32_t in = 2 * s->H * s->E, out = (s->H + s->G) * s->E;
	const struct mat w = { random_rows((size_t)out * in), WEIGHT_BF16, out, in };
	float *x = room(in * sizeof *x), *y = room(out * sizeof *y);
	double time[ROUNDS], t;
	int r;

	memset(x, 0, in * sizeof *x);
	for (r = -1; r < ROUNDS; r++) {
		bench_read_all(layer[0].rows.k, (size_t)s->G * layer[0].rows.len[0] * s->E * 2);
		t = bench_now();
		cpu_ops.matmul(dev, y, x, &w, NULL, 1, 0);
		time[r < 0 ? 0 : r] = bench_now() - t;
	}
	cpu_ops.free(dev, (void *)(uintptr_t)w.data);
	cpu_ops.free(dev, x);
	cpu_ops.free(dev, y);
	return bench_median(time);
}

/* Scores, join and top of a layer */
static double
choosing(double part[PARTS][ROUNDS])
{
	return (bench_median(part[SCORES]) + bench_median(part[JOIN]) + bench_median(part[TOP])) /
	    (double)layers;
}

static void
report_choosing(const struct shape *s, double part[WAYS][PARTS][ROUNDS])
{
	const double projections = time_projections(s), once = choosing(part[EXACT]) + projections;
	char what[64];
	int w;

	printf("  choosing, in a step of %d layers: SpeContext once, %.3f ms, of which its "
	    "projections %.3f\n", MODEL_LAYERS, 1e3 * once, 1e3 * projections);
	for (w = FIER; w <= QUEST; w++) {
		snprintf(what, sizeof what, "SpeContext, H %u/%u, choosing; %s", s->H, s->G,
		    way_name[w]);
		bench_report(what, "/s", 1 / once, 1 / (choosing(part[w]) * (MODEL_LAYERS - 2)));
	}
}

/* The formula is what is there: one group more or less would show. */
static void
check_formula(const struct step *s)
{
	const struct entries *e = &layer[0].bits;
	double index, rows;

	bytes_read(s, FIER, &index, &rows);
	if (index != (double)e->heads * e->len[0] * (double)e->bytes) {
		fprintf(stderr, "bench_retrieve: an index of %g bytes, not %g\n",
		    (double)e->heads * e->len[0] * (double)e->bytes, index);
		exit(1);
	}
}

static void
bench_shape(const struct shape *shape, uint32_t S)
{
	const size_t rows = (size_t)shape->G * S, one = rows * shape->E * 4;
	double time[WAYS][ROUNDS], part[WAYS][PARTS][ROUNDS], reading[ROUNDS], t;
	uint32_t counts[64];
	struct step s = { .shape = shape, .S = S, .k = (uint32_t)(S * 0.11) };
	size_t i;
	int r, w, p;

	layers = BENCH_BIG / (one + one / 8);
	if (layers > MAX_LAYERS)
		layers = MAX_LAYERS;
	for (i = 0; i < layers; i++)
		make_layer(&layer[i], shape, S);
	s.q = room((size_t)shape->H * shape->E * 4);
	s.o = room((size_t)shape->H * shape->E * 4);
	s.score = room((size_t)shape->H * S * 4);
	s.joint = room(rows * 4);
	s.chosen = (struct chosen){ .at = room(rows * 4), .stride = S, .n = counts };
	for (i = 0; i < (size_t)shape->H * shape->E; i++)
		s.q[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	check_formula(&s);
	for (r = -1; r < ROUNDS; r++) {        /* round -1 warms up */
		for (w = 0; w < WAYS; w++) {
			time[w][r < 0 ? 0 : r] = run_layers(&s, w);
			for (p = 0; p < PARTS; p++)
				part[w][p][r < 0 ? 0 : r] = spent[p];
		}
		t = bench_now();
		for (i = 0; i < layers; i++)
			bench_read_all(layer[i].rows.k, one / 2);
		reading[r < 0 ? 0 : r] = 1e-9 * (double)(layers * one / 2) / (bench_now() - t);
	}
	report(&s, time, part, reading);
	report_choosing(shape, part);
	for (i = 0; i < layers; i++)
		free_layer(&layer[i]);
	cpu_ops.free(dev, s.q);
	cpu_ops.free(dev, s.o);
	cpu_ops.free(dev, s.score);
	cpu_ops.free(dev, s.joint);
	cpu_ops.free(dev, s.chosen.at);
}

int
main(int argc, char *argv[])
{
	static const struct shape shape[] = {
		{ "Llama-2-7B", 32, 32, 128 },
		{ "Llama-3.1-8B", 32, 8, 128 },
	};
	uint32_t S = argc > 2 ? (uint32_t)atoi(argv[2]) : 32768;
	char err[128];
	size_t i;

	bench_threads = argc > 1 ? atoi(argv[1]) : omp_get_num_procs();
	if ((dev = cpu_ops.open(0, bench_threads, err, sizeof err)) == NULL) {
		fprintf(stderr, "bench_retrieve: %s\n", err);
		return 1;
	}
	if (argc > 3 && strcmp(argv[3], "cpu") == 0)
		bench_cpu_time = 1;
	omp_set_num_threads(bench_threads);
	printf("%s; medians of %d rounds\n", cpu_ops.describe(dev), ROUNDS);
	for (i = 0; i < sizeof shape / sizeof shape[0]; i++)
		bench_shape(&shape[i], S);
	if (cpu_ops.sync(dev) != NULL) {
		fprintf(stderr, "bench_retrieve: %s\n", cpu_ops.sync(dev));
		return 1;
	}
	cpu_ops.close(dev);
	return 0;
}

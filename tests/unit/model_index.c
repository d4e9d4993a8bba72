/* model_index - indexes and retrieval whose rows outgrow their capacity, against indexes made at
 * once */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/retrieval.h"
#include "tests/unit/methods_check.h"

#define G 2
#define H 4
#define E 8
#define ROWS 200                /* of KV head 0; head 1 has a third */
#define STEPS 5                 /* the rows come in so many parts */
#define GROUP 16
#define PAGE 8

static const struct ops *ops = &cpu_ops;
static struct dev *dev;
static float keys[G][ROWS][E], values[G][ROWS][E], query[H * E];

static void
must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "index: %s\n", what);
		exit(1);
	}
}

static uint32_t
rows_of(uint32_t g, uint32_t step)
{
	return (g == 0 ? ROWS : ROWS / 3) * (step + 1) / STEPS;
}

static void
fill(float *to, size_t n, uint32_t *state)
{
	size_t i;

	for (i = 0; i < n; i++) {
		*state = *state * 1664525 + 1013904223;
		to[i] = (float)(int32_t)*state * 0x1p-31f;
	}
}

/* The rows up to `step`, with `more` rows of room; memory of the CPU. */
static void
make_rows(struct layer_rows *r, uint32_t step, uint32_t more)
{
	size_t row = E * sizeof(float);
	uint64_t at = 0;
	uint32_t g, i;

	*r = (struct layer_rows){ .heads = G, .width = E, .dtype = KV_F32,
	    .k = malloc(G * (ROWS + more) * row), .v = malloc(G * (ROWS + more) * row),
	    .pos = malloc(G * (ROWS + more) * sizeof *r->pos), .start = calloc(G, sizeof *r->start),
	    .len = calloc(G, sizeof *r->len), .capacity = calloc(G, sizeof *r->capacity) };
	must(r->k && r->v && r->pos && r->start && r->len && r->capacity, "memory");
	for (g = 0; g < G; at += r->capacity[g++]) {
		r->start[g] = at;
		r->len[g] = rows_of(g, step);
		r->capacity[g] = r->len[g] + more;
		memcpy((float *)r->k + at * E, keys[g], r->len[g] * row);
		memcpy((float *)r->v + at * E, values[g], r->len[g] * row);
		for (i = 0; i < r->len[g]; i++)
			r->pos[at + i] = i;
	}
}

static void
free_rows(struct layer_rows *r)
{
	free(r->k);
	free(r->v);
	free(r->pos);
	free(r->start);
	free(r->len);
	free(r->capacity);
}

static void
start(struct layer_index *x)
{
	must(index_init(x, ops, dev, G, E, KV_F32) == 0, "memory");
	index_start(x, KV_BITS, GROUP);
	index_start(x, KV_PAGE, PAGE);
}

static void
extend(struct layer_index *x, const struct layer_rows *r)
{
	must(index_reserve(x, r) == 0, "memory");
	index_extend(x, r);
}

static void
same_entries(const struct entries *a, const struct entries *b)
{
	uint32_t g;

	for (g = 0; g < G; g++) {
		check(a->len[g] == b->len[g], "%s", __func__);
		check(memcmp((char *)a->data + a->start[g] * a->bytes,
		    (char *)b->data + b->start[g] * b->bytes, a->len[g] * a->bytes) == 0, "%s",
		    __func__);
	}
}

/* All that were given one, and 0 behind them. */
static void
check_page_labels(const struct layer_index *x)
{
	const struct labels *l = &x->page_label;
	uint32_t g, i;

	for (g = 0; g < G; g++) {
		check(l->n[g] == (rows_of(g, STEPS - 1) - 1) / PAGE, "%s", __func__);
		for (i = 0; i < l->stride; i++)
			check(l->at[g * l->stride + i] == (i < l->n[g] ? i + 1 : 0), "%s",
			    __func__);
	}
}

/* One step over the rows; out[H][E]. */
static void
attend_once(struct retrieval *t, struct layer_index *x, const struct layer_rows *r, float *out)
{
	const uint32_t pos = ROWS;
	const struct query all = { query, &pos, 1, H, 0, 0, NULL };

	must(retrieval_reserve(t, r, x) == 0, "memory");
	retrieve(t, 0, out, &all, r, x);
	must(ops->sync(dev) == NULL, "the device failed");
}

/* What was read of each KV head: rows of this step and the one before; sums of overlap. */
struct seen {
	char now[G][ROWS], before[G][ROWS];
	double overlap[G];
	uint64_t pairs[G];
	int chose[G];
};

/* Counts from the lists of the last step, row by row. */
static void
see_step(struct seen *s, const struct retrieval *t, const struct layer_rows *r)
{
	const struct chosen *c = retrieval_chosen(t);
	uint32_t g, i, row, n, both;

	memcpy(s->before, s->now, sizeof s->now);
	memset(s->now, 0, sizeof s->now);
	for (g = 0; g < G; g++) {
		for (i = 0; i < c->n[g] * c->rows; i++) {
			row = c->at[g * c->stride + i / c->rows] * c->rows + i % c->rows;
			if (row < r->len[g])
				s->now[g][row] = 1;
		}
		for (row = n = both = 0; row < r->len[g]; row++) {
			n += s->now[g][row] != 0;
			both += s->now[g][row] && s->before[g][row];
		}
		if (n < r->len[g] && s->chose[g]) {
			s->overlap[g] += (double)both / n;
			s->pairs[g]++;
		}
		s->chose[g] = n < r->len[g];
	}
}

static void
check_overlap(const struct seen *s, const struct retrieval *t)
{
	const struct retrieval_stats *stats = retrieval_stats(t);
	uint32_t g;

	for (g = 0; g < G; g++) {
		check(s->pairs[g] >= 3 && stats[g].pairs == s->pairs[g], "%s: pairs", __func__);
		check(s->overlap[g] > 0 && stats[g].overlap == s->overlap[g], "%s: %g and %g",
		    __func__, stats[g].overlap, s->overlap[g]);
	}
}

static struct retrieval *
new_retrieval(enum retrieve_method method)
{
	const struct retrieval_options o = { .method = method, .budget = 24,
		.reduce = REDUCE_MAX, .audit = 1, .overlap = 1 };
	struct retrieval *t = retrieval_new(ops, dev, &o, 1, H, G, E, KV_F32, NULL);

	must(t != NULL, "memory");
	return t;
}

/* Bits and pages, extended part by part into ever new memory, are those of all rows at once, and
 * so is what is retrieved by them. What was read before memory grew counts for the overlap. */
static void
check_growth(enum retrieve_method method)
{
	struct retrieval *t = new_retrieval(method), *fresh = new_retrieval(method);
	float grown[H * E], once[H * E];
	struct layer_index x, all;
	struct seen seen = { 0 };
	struct layer_rows r;
	uint32_t step;

	start(&x);
	start(&all);
	for (step = 0; step < STEPS; step++) {
		make_rows(&r, step, 3);
		extend(&x, &r);
		attend_once(t, &x, &r, grown);
		see_step(&seen, t, &r);
		if (step < STEPS - 1)
			free_rows(&r);
	}
	extend(&all, &r);
	attend_once(fresh, &all, &r, once);
	same_entries(&x.bits, &all.bits);
	same_entries(&x.pages, &all.pages);
	check_page_labels(&x);
	check(memcmp(grown, once, sizeof once) == 0, "%s", __func__);
	check(retrieval_chosen(fresh) != NULL, "%s", __func__);
	check_overlap(&seen, t);
	check(retrieval_stats(t)->steps == STEPS && retrieval_stats(fresh)->steps == 1, "%s",
	    __func__);
	retrieval_free(t);
	retrieval_free(fresh);
	index_free(&x);
	index_free(&all);
	free_rows(&r);
}

/* Clusters that are added for appended rows: labels count on, rows behind have none. */
static void
check_clusters(void)
{
	const uint32_t sink = 4, new[G] = { 2, 1 }, none[G] = { 0, 0 };
	static const uint32_t label[ROWS] = { 0, 1, 1, 0, 1 };
	const uint32_t *labels[G] = { label, label + 3 };
	const void *means[G] = { keys[0], keys[1] };
	const struct kv_index empty = { KV_CLUS, { .clusters = { 4, none, none, NULL, NULL } } };
	const uint32_t rows[G] = { 5, 1 };
	struct layer_index x;
	struct layer_rows r;
	uint32_t step, g, i;

	must(index_init(&x, ops, dev, G, E, KV_F32) == 0, "memory");
	make_rows(&r, 0, 0);
	must(index_load(&x, &empty, &r) == 0, "memory");
	check(x.sink == sink && x.end[0] == 0, "%s", __func__);
	for (step = 0; step < 3; step++) {
		if (step > 0)
			make_rows(&r, step, 1);
		must(index_reserve(&x, &r) == 0, "memory");
		must(index_add_clusters(&x, new, means, rows, labels) == 0, "memory");
		must(index_add_clusters(&x, none, means, none, labels) == 0, "memory");
		free_rows(&r);
	}
	for (g = 0; g < G; g++) {
		check(x.end[g] == sink + 3 * rows[g] && x.mean.len[g] == 3 * new[g], "%s",
		    __func__);
		for (i = 0; i < x.row_label.stride; i++)
			check(x.row_label.at[g * x.row_label.stride + i] ==
			    (i < sink || i >= x.end[g] ? 0 : (i - sink) / rows[g] * new[g] +
			    labels[g][(i - sink) % rows[g]] + 1), "%s", __func__);
		for (i = 0; i < 3; i++)
			check(memcmp((float *)x.mean.k + (x.mean.start[g] + i * new[g]) * E,
			    keys[g], new[g] * E * sizeof(float)) == 0, "%s", __func__);
	}
	index_free(&x);
}

int
main(void)
{
	uint32_t state = 7;
	char err[256];

	must((dev = ops->open(0, 2, err, sizeof err)) != NULL, err);
	fill(&keys[0][0][0], G * ROWS * E, &state);
	fill(&values[0][0][0], G * ROWS * E, &state);
	fill(query, H * E, &state);
	check_growth(RETRIEVE_FIER);
	check_growth(RETRIEVE_QUEST);
	check_growth(RETRIEVE_QUEST_EVAL);
	check_clusters();
	ops->close(dev);
	return failures > 0;
}

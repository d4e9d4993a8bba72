/* compare.c - one layer of two snapshots */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compare.h"
#include "cli/tool.h"

#define PIECE 256       /* elements that are compared at a time */

/* ---- rows ---- */

/* Compares n elements of a and b. Returns 1 when one is another number. */
static int
differs(const void *a, enum kv_dtype a_type, const void *b, enum kv_dtype b_type, size_t n,
    double *greatest)
{
	float x[PIECE], y[PIECE];
	size_t part, i;
	double gap;
	int other = 0;

	if (a_type == b_type && memcmp(a, b, n * kv_dtype_size(a_type)) == 0)
		return 0;
	for (; n > 0; n -= part) {
		part = n < PIECE ? n : PIECE;
		kv_to_f32(x, a, a_type, part);
		kv_to_f32(y, b, b_type, part);
		for (i = 0; i < part; i++) {
			if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i])))
				continue;
			other = 1;
			gap = fabs((double)x[i] - y[i]);
			if (isnan(gap))
				gap = INFINITY;
			*greatest = gap > *greatest ? gap : *greatest;
		}
		a = (const char *)a + part * kv_dtype_size(a_type);
		b = (const char *)b + part * kv_dtype_size(b_type);
	}
	return other;
}

/* Rows of a that b has, too: count[g] and row numbers row[g] for each KV head. */
struct common {
	uint32_t *count, **row;
};

/* Row i of a and row j of b stand at one position. */
static void
compare_row(struct rows_compared *out, const struct layerwise *a, const struct layerwise *b,
    uint64_t i, uint64_t j)
{
	size_t E = a->there.width, at = i * E * kv_dtype_size(a->there.dtype);
	size_t bt = j * E * kv_dtype_size(b->there.dtype);

	out->both++;
	out->keys_differ += differs(a->keys + at, a->there.dtype, b->keys + bt, b->there.dtype, E,
	    &out->key_difference);
	out->values_differ += differs(a->values + at, a->there.dtype, b->values + bt,
	    b->there.dtype, E, &out->value_difference);
}

static void
compare_rows(struct rows_compared *out, struct common *common, const struct layerwise *a,
    const struct layerwise *b, uint32_t g)
{
	const uint32_t *p = a->rows->pos[g], *q = b->rows->pos[g];
	uint32_t n = a->rows->count[g], m = b->rows->count[g], i = 0, j = 0, c = 0;

	common->row[g] = must_alloc(n < m ? n : m, sizeof *common->row[g]);
	while (i < n && j < m)
		if (p[i] == q[j]) {
			common->row[g][c++] = i;
			compare_row(out, a, b, a->there.start[g] + i++, b->there.start[g] + j++);
		} else if (p[i] < q[j])
			i++;
		else
			j++;
	common->count[g] = c;
	out->only_a = n - c;
	out->only_b = m - c;
}

/* ---- attention ---- */

static struct area area_q, area_qpos, area_o, area_lse, area_keys, area_pos;

/* W queries of all query heads, and what they get, on the host. */
struct window {
	const struct queries *queries;
	uint32_t W, H, R, E;
	float *o_a, *o_b;               /* [W][H][E] */
	float *lse_a, *lse_both;        /* [W][H] */
};

/* o and lse (NULL: not wanted) <- attention of the window over rows. */
static void
attend(const struct device *d, float *o, float *lse, const struct window *w,
    const struct layer_rows *rows)
{
	size_t outputs = (size_t)w->W * w->H * w->E * sizeof *o;
	size_t sums = (size_t)w->W * w->H * sizeof *lse;
	void *o_there = o != NULL ? device_room(d, &area_o, outputs) : NULL;
	void *lse_there = lse != NULL ? device_room(d, &area_lse, sums) : NULL;

	d->ops->attend(d->dev, o_there, lse_there, area_q.at, rows, area_qpos.at, w->W, w->H);
	if (o != NULL)
		d->ops->get(d->dev, o, o_there, outputs);
	if (lse != NULL)
		d->ops->get(d->dev, lse, lse_there, sums);
	device_check(d);
}

/* The same of the rows of a that b has, too: a's keys, gathered. */
static void
attend_common(const struct device *d, float *lse, const struct window *w,
    const struct layerwise *a, const struct common *common)
{
	uint32_t G = a->rows->heads, g, i;
	size_t row = a->there.width * kv_dtype_size(a->there.dtype);
	struct layer_rows both = a->there;
	uint64_t total = 0;
	uint32_t *pos;
	char *keys;

	both.start = must_alloc(G, sizeof *both.start);
	both.len = common->count;
	for (g = 0; g < G; total += common->count[g++])
		both.start[g] = total;
	keys = must_alloc(total, row);
	pos = must_alloc(total, sizeof *pos);
	for (g = 0; g < G; g++)
		for (i = 0; i < common->count[g]; i++) {
			memcpy(keys + (both.start[g] + i) * row,
			    a->keys + (a->there.start[g] + common->row[g][i]) * row, row);
			pos[both.start[g] + i] = a->rows->pos[g][common->row[g][i]];
		}
	both.k = device_upload(d, &area_keys, keys, total * row);
	both.v = NULL;
	both.pos = device_upload(d, &area_pos, pos, total * sizeof *pos);
	attend(d, NULL, lse, w, &both);
	free(both.start);
	free(keys);
	free(pos);
}

/* Query n of query head h. */
static void
compare_query(struct attention_compared *out, const struct window *w, size_t n, size_t h)
{
	size_t at = n * w->H + h, e;
	double x, y;

	if (w->lse_a[at] == -INFINITY)
		return;
	out->seen++;
	out->mass += exp((double)w->lse_both[at] - w->lse_a[at]);
	for (e = at * w->E; e < (at + 1) * w->E; e++) {
		x = w->o_a[e];
		y = x - w->o_b[e];
		out->whole += x * x;
		out->lost += y * y;
	}
}

static void
compare_attention(struct head_compared *out, const struct device *d, const struct queries *queries,
    struct layerwise *a, struct layerwise *b, const struct common *common)
{
	const struct kv_model *m = &a->head->model;
	struct window w = { .queries = queries, .W = queries->n, .H = m->query_heads,
	    .R = m->query_heads / m->kv_heads, .E = m->head_width };
	size_t WH = (size_t)w.W * w.H, n, h;

	w.o_a = must_alloc(WH, w.E * sizeof *w.o_a);
	w.o_b = must_alloc(WH, w.E * sizeof *w.o_b);
	w.lse_a = must_alloc(WH, sizeof *w.lse_a);
	w.lse_both = must_alloc(WH, sizeof *w.lse_both);
	device_upload(d, &area_q, queries->q, WH * w.E * sizeof *queries->q);
	device_upload(d, &area_qpos, queries->pos, w.W * sizeof *queries->pos);
	layerwise_upload(a, d);
	layerwise_upload(b, d);
	attend(d, w.o_a, w.lse_a, &w, &a->there);
	attend(d, w.o_b, NULL, &w, &b->there);
	attend_common(d, w.lse_both, &w, a, common);
	for (h = 0; h < w.H; h++)
		for (n = 0; n < w.W; n++)
			compare_query(&out[h / w.R].query[h % w.R], &w, n, h);
	free(w.o_a);
	free(w.o_b);
	free(w.lse_a);
	free(w.lse_both);
}

/* ---- a layer ---- */

void
compare_layers(struct layer_compared *out, const struct device *d, struct layerwise *a,
    struct layerwise *b)
{
	uint32_t G = a->rows->heads, R = a->head->model.query_heads / G, g;
	struct common common = { must_alloc(G, sizeof *common.count),
	    must_alloc(G, sizeof *common.row) };
	const struct queries *queries = a->queries.n > 0 ? &a->queries : &b->queries;

	out->queries = queries->n;
	out->queries_of_b = queries->n > 0 && a->queries.n == 0;
	out->head = must_alloc(G, sizeof *out->head);
	for (g = 0; g < G; g++) {
		out->head[g].query = must_alloc(R, sizeof *out->head[g].query);
		compare_rows(&out->head[g].rows, &common, a, b, g);
	}
	if (queries->n > 0)
		compare_attention(out->head, d, queries, a, b, &common);
	for (g = 0; g < G; g++)
		free(common.row[g]);
	free(common.row);
	free(common.count);
}

void
layer_compared_free(struct layer_compared *l, uint32_t G)
{
	uint32_t g;

	for (g = 0; g < G; g++)
		free(l->head[g].query);
	free(l->head);
}

void
compare_end(const struct device *d)
{
	struct area *areas[] = { &area_q, &area_qpos, &area_o, &area_lse, &area_keys, &area_pos };
	size_t i;

	for (i = 0; i < sizeof areas / sizeof *areas; i++)
		device_release(d, areas[i]);
}

/* ---- sums ---- */

void
rows_add(struct rows_compared *sum, const struct rows_compared *more)
{
	sum->both += more->both;
	sum->only_a += more->only_a;
	sum->only_b += more->only_b;
	sum->keys_differ += more->keys_differ;
	sum->values_differ += more->values_differ;
	sum->key_difference = fmax(sum->key_difference, more->key_difference);
	sum->value_difference = fmax(sum->value_difference, more->value_difference);
}

void
attention_add(struct attention_compared *sum, const struct attention_compared *more)
{
	sum->seen += more->seen;
	sum->mass += more->mass;
	sum->whole += more->whole;
	sum->lost += more->lost;
}

double
mass_recall(const struct attention_compared *x)
{
	return x->seen > 0 ? x->mass / (double)x->seen : NAN;
}

double
output_error(const struct attention_compared *x)
{
	if (x->seen == 0)
		return NAN;
	return x->lost == 0 ? 0 : sqrt(x->lost / x->whole);
}

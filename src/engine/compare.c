/* compare.c - compares a layer of two snapshots */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compare.h"

/* ---- rows ---- */

/* Compares the first channels of two rows. Returns 1 when a number differs. */
static int
differs(const void *a, enum kv_row_type a_type, const void *b, enum kv_row_type b_type, size_t E,
    size_t channels, double *greatest)
{
	float x[KV_ROW_WIDTH_MOST], y[KV_ROW_WIDTH_MOST];
	size_t i;
	double gap;
	int other = 0;

	if (a_type == b_type && memcmp(a, b, kv_row_bytes(a_type, E)) == 0)
		return 0;
	kv_rows_to_f32(x, a, a_type, E, 1);
	kv_rows_to_f32(y, b, b_type, E, 1);
	for (i = 0; i < channels; i++) {
		if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i])))
			continue;
		other = 1;
		gap = fabs((double)x[i] - y[i]);
		if (isnan(gap))
			gap = INFINITY;
		*greatest = gap > *greatest ? gap : *greatest;
	}
	return other;
}

/* Compares row i of a and row j of b, which have the same position. */
static void
compare_row(struct rows_compared *out, const struct layer_reader *a, const struct layer_reader *b,
    uint64_t i, uint64_t j)
{
	const struct layer_rows *p = &a->on_device, *q = &b->on_device;

	out->both++;
	out->keys_differ += differs(a->keys + i * rows_k_bytes(p), rows_k_type(p),
	    b->keys + j * rows_k_bytes(q), rows_k_type(q), p->width, p->width,
	    &out->key_difference);
	out->values_differ += differs(a->values + i * rows_v_bytes(p), rows_v_type(p),
	    b->values + j * rows_v_bytes(q), rows_v_type(q), p->width,
	    a->head->model.latent_rank != 0 ? a->head->model.latent_rank : p->width,
	    &out->value_difference);
}

/* Compares the rows of KV head g. row <- the rows of a that b has, too. */
static void
compare_rows(struct layer_compared *out, uint32_t *row, const struct layer_reader *a,
    const struct layer_reader *b, uint32_t g)
{
	const uint32_t *p = a->rows->pos[g], *q = b->rows->pos[g];
	uint32_t n = a->rows->count[g], m = b->rows->count[g], i = 0, j = 0, c = 0;
	struct rows_compared *rows = &out->head[g].rows;

	while (i < n && j < m)
		if (p[i] == q[j]) {
			row[c++] = i;
			compare_row(rows, a, b, a->on_device.start[g] + i++,
			    b->on_device.start[g] + j++);
		} else if (p[i] < q[j])
			i++;
		else
			j++;
	out->count[g] = c;
	rows->only_a = n - c;
	rows->only_b = m - c;
}

/* ---- attention ---- */

/* W queries of all query heads, and their attention, on the host */
struct window {
	const struct device *d;
	struct compare_areas *areas;
	uint32_t W, H, R, E;
	uint32_t sees;                  /* window of this layer; 0: a query sees all rows */
	float softcap;
	const float *sinks;             /* device [H]; NULL: none */
	float *o_a, *o_b;               /* [W][H][E] */
	float *lse_a, *lse_both;        /* [W][H] */
};

static int
window_init(struct window *w, const struct device *d, struct compare_areas *areas,
    const struct queries *queries, const struct layer_reader *a, struct engine_error *e)
{
	const struct kv_model *m = &a->head->model;
	const size_t WH = (size_t)queries->n * m->query_heads;

	*w = (struct window){ .d = d, .areas = areas, .W = queries->n, .H = m->query_heads,
	    .R = m->query_heads / m->kv_heads, .E = m->head_width,
	    .sees = kv_layer_window(m, a->layer), .softcap = (float)m->attention_softcap };
	if ((w->o_a = engine_alloc(WH, w->E * sizeof *w->o_a, e)) == NULL ||
	    (w->o_b = engine_alloc(WH, w->E * sizeof *w->o_b, e)) == NULL ||
	    (w->lse_a = engine_alloc(WH, sizeof *w->lse_a, e)) == NULL ||
	    (w->lse_both = engine_alloc(WH, sizeof *w->lse_both, e)) == NULL ||
	    area_upload(d, &areas->q, queries->q, WH * w->E * sizeof *queries->q, e) == NULL ||
	    area_upload(d, &areas->qpos, queries->pos, w->W * sizeof *queries->pos, e) == NULL ||
	    (queries->sinks != NULL && (w->sinks = area_upload(d, &areas->sinks, queries->sinks,
	    w->H * sizeof *queries->sinks, e)) == NULL))
		return e->code;
	return ENGINE_OK;
}

static void
window_free(struct window *w)
{
	free(w->o_a);
	free(w->o_b);
	free(w->lse_a);
	free(w->lse_both);
}

/* o, lse (NULL: not wanted) <- attention of the queries over rows. Without o, lse is that of the
 * rows alone, without sinks. */
static int
attend_on_device(float *o, float *lse, const struct window *w, const struct layer_rows *rows,
    struct engine_error *e)
{
	const struct device *d = w->d;
	const size_t outputs = (size_t)w->W * w->H * w->E * sizeof *o;
	const size_t sums = (size_t)w->W * w->H * sizeof *lse;
	void *o_device = NULL, *lse_device = NULL;
	const struct query query = { .q = w->areas->q.at, .pos = w->areas->qpos.at, .N = w->W,
		.H = w->H, .window = w->sees, .softcap = w->softcap,
		.sinks = o != NULL ? w->sinks : NULL };

	if (o != NULL && (o_device = area_room(d, &w->areas->o, outputs, e)) == NULL)
		return e->code;
	if (lse != NULL && (lse_device = area_room(d, &w->areas->lse, sums, e)) == NULL)
		return e->code;
	d->ops->attend(d->dev, o_device, lse_device, &query, rows);
	if (o != NULL)
		d->ops->get(d->dev, o, o_device, outputs);
	if (lse != NULL)
		d->ops->get(d->dev, lse, lse_device, sums);
	return device_synced(d, e);
}

/* keys[total][E], pos[total] <- keys and positions of the rows of a that b has, too; start[G] <-
 * the first row of each KV head. */
static void
gather_common(char *keys, uint32_t *pos, uint64_t *start, const struct layer_reader *a,
    const struct layer_compared *common)
{
	const size_t row = rows_k_bytes(&a->on_device);
	uint64_t at = 0;
	uint32_t g, i;

	for (g = 0; g < common->G; g++) {
		start[g] = at;
		for (i = 0; i < common->count[g]; i++, at++) {
			memcpy(keys + at * row,
			    a->keys + (a->on_device.start[g] + common->row[at]) * row, row);
			pos[at] = a->rows->pos[g][common->row[at]];
		}
	}
}

/* lse <- log-sum-exps of the queries over the rows of a that b has, too. */
static int
attend_common(float *lse, const struct window *w, const struct layer_reader *a,
    const struct layer_compared *common, struct engine_error *e)
{
	const size_t row = rows_k_bytes(&a->on_device);
	struct layer_rows both = a->on_device;
	uint64_t total = 0;
	uint32_t *pos = NULL, g;
	char *keys = NULL;
	int rc;

	for (g = 0; g < common->G; g++)
		total += common->count[g];
	both.k = both.v = NULL;
	both.pos = NULL;
	if ((both.start = engine_alloc(common->G, sizeof *both.start, e)) != NULL &&
	    (keys = engine_alloc(total, row, e)) != NULL &&
	    (pos = engine_alloc(total, sizeof *pos, e)) != NULL) {
		gather_common(keys, pos, both.start, a, common);
		both.len = common->count;
		both.k = area_upload(w->d, &w->areas->keys, keys, total * row, e);
		if (both.k != NULL)
			both.pos = area_upload(w->d, &w->areas->pos, pos, total * sizeof *pos, e);
	}
	rc = both.pos != NULL ? attend_on_device(NULL, lse, w, &both, e) : e->code;
	free(both.start);
	free(keys);
	free(pos);
	return rc;
}

/* Adds query n of query head h to out. */
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

static int
compare_attention(struct layer_compared *out, const struct device *d, struct compare_areas *areas,
    const struct queries *queries, struct layer_reader *a, struct layer_reader *b,
    struct engine_error *e)
{
	struct window w;
	size_t n, h;
	int rc;

	if ((rc = window_init(&w, d, areas, queries, a, e)) == ENGINE_OK &&
	    (rc = layer_reader_upload(a, d, e)) == ENGINE_OK &&
	    (rc = layer_reader_upload(b, d, e)) == ENGINE_OK &&
	    (rc = attend_on_device(w.o_a, w.sinks == NULL ? w.lse_a : NULL, &w, &a->on_device,
	    e)) == ENGINE_OK &&
	    (w.sinks == NULL || (rc = attend_on_device(NULL, w.lse_a, &w, &a->on_device, e)) ==
	    ENGINE_OK) &&
	    (rc = attend_on_device(w.o_b, NULL, &w, &b->on_device, e)) == ENGINE_OK &&
	    (rc = attend_common(w.lse_both, &w, a, out, e)) == ENGINE_OK)
		for (h = 0; h < w.H; h++)
			for (n = 0; n < w.W; n++)
				compare_query(&out->query[h], &w, n, h);
	window_free(&w);
	return rc;
}

/* ---- a layer ---- */

int
layer_compared_init(struct layer_compared *l, const struct kv_model *m, struct engine_error *e)
{
	uint32_t g;

	*l = (struct layer_compared){ .G = m->kv_heads, .R = m->query_heads / m->kv_heads };
	if ((l->head = engine_alloc(l->G, sizeof *l->head, e)) == NULL ||
	    (l->query = engine_alloc(m->query_heads, sizeof *l->query, e)) == NULL ||
	    (l->count = engine_alloc(l->G, sizeof *l->count, e)) == NULL)
		return e->code;
	for (g = 0; g < l->G; g++)
		l->head[g].query = l->query + (size_t)g * l->R;
	return ENGINE_OK;
}

void
layer_compared_free(struct layer_compared *l)
{
	free(l->head);
	free(l->query);
	free(l->count);
	free(l->row);
	*l = (struct layer_compared){ .head = NULL };
}

/* Makes room for the rows that both can have. */
static int
reserve_rows(struct layer_compared *l, const struct kv_rows *a, const struct kv_rows *b,
    struct engine_error *e)
{
	uint64_t total = 0;
	uint32_t g;

	for (g = 0; g < l->G; g++)
		total += a->count[g] < b->count[g] ? a->count[g] : b->count[g];
	if (total <= l->capacity && l->row != NULL)
		return ENGINE_OK;
	free(l->row);
	l->capacity = total;
	l->row = engine_alloc(total, sizeof *l->row, e);
	return l->row != NULL ? ENGINE_OK : e->code;
}

int
compare_layers(struct layer_compared *out, const struct device *d, struct compare_areas *areas,
    struct layer_reader *a, struct layer_reader *b, struct engine_error *e)
{
	const struct queries *queries = a->queries.n > 0 ? &a->queries : &b->queries;
	uint64_t at = 0;
	uint32_t g;

	out->queries = queries->n;
	out->queries_of_b = queries->n > 0 && a->queries.n == 0;
	if (reserve_rows(out, a->rows, b->rows, e) != ENGINE_OK)
		return e->code;
	memset(out->query, 0, (size_t)out->G * out->R * sizeof *out->query);
	for (g = 0; g < out->G; at += out->count[g++]) {
		out->head[g].rows = (struct rows_compared){ 0 };
		compare_rows(out, out->row + at, a, b, g);
	}
	if (queries->n > 0 && compare_attention(out, d, areas, queries, a, b, e) != ENGINE_OK)
		return layer_reader_place(b, e);
	return ENGINE_OK;
}

void
compare_release(const struct device *d, struct compare_areas *areas)
{
	area_release(d, &areas->q);
	area_release(d, &areas->qpos);
	area_release(d, &areas->sinks);
	area_release(d, &areas->o);
	area_release(d, &areas->lse);
	area_release(d, &areas->keys);
	area_release(d, &areas->pos);
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

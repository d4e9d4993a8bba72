/* ops_latent.c - latent attention: channels put together, products of each query head */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_cache.h"

static void
test_copy_channels(size_t rows, uint32_t width, size_t y_stride, size_t x_stride)
{
	float *x = floats(rows * x_stride + 1, 3), *y = floats(rows * y_stride + 1, 3), *got;
	size_t n, i;
	int k;

	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, (rows * x_stride + 1) * 4);
		float *dy = to_device(d, y, (rows * y_stride + 1) * 4);

		d->ops->copy_channels(d->dev, dy, y_stride, dx, x_stride, width, rows);
		got = from_device(d, dy, rows * y_stride + 1);
		for (n = 0; n < rows; n++)
			for (i = 0; i < y_stride; i++)
				verdict(got[n * y_stride + i] == (i < width ? x[n * x_stride + i] :
				    y[n * y_stride + i]), "%s: copy_channels: row %zu channel %zu",
				    d->name, n, i);
		verdict(got[rows * y_stride] == y[rows * y_stride], "%s: behind them", d->name);
		free(got);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dy);
	}
	free(x);
	free(y);
}

struct products {
	uint32_t N, heads, block, first, rows, in;
	enum kv_dtype type;
	int transposed;
};

/* want <- the products in double precision, magnitude <- the same of absolute values */
static void
reference(double *want, double *magnitude, const struct products *s, const float *w, const float *x,
    size_t y_stride, size_t x_stride)
{
	const uint32_t out = s->transposed ? s->in : s->rows;
	size_t n, h, i, j;

	for (n = 0; n < s->N; n++)
		for (h = 0; h < s->heads; h++)
			for (i = 0; i < out; i++) {
				const float *a = w + (h * s->block + s->first) * s->in;
				const float *of = x + (n * s->heads + h) * x_stride;
				const size_t at = (n * s->heads + h) * y_stride + i;
				double sum = 0, large = 0, one;

				for (j = 0; j < (s->transposed ? s->rows : s->in); j++) {
					one = (double)of[j] * (s->transposed ?
					    a[j * s->in + i] : a[i * s->in + j]);
					sum += one;
					large += fabs(one);
				}
				want[at] = sum;
				magnitude[at] = large;
			}
}

/* Strides are greater than what they hold; what is between stays. */
static void
test_products(const struct products *s)
{
	const size_t x_stride = (s->transposed ? s->rows : s->in) + 3;
	const size_t y_stride = (s->transposed ? s->in : s->rows) + 5;
	const size_t all = (size_t)s->N * s->heads, weights = (size_t)s->heads * s->block * s->in;
	float *w = floats(weights, 1), *x = floats(all * x_stride, 2);
	float *y = floats(all * y_stride, 2), *got;
	double *want = doubles(y, all * y_stride), *bound = calloc(all * y_stride, sizeof *bound);
	double *magnitude = calloc(all * y_stride, sizeof *magnitude);
	char what[120];
	int k;

	round_to(w, s->type, weights);
	reference(want, magnitude, s, w, x, y_stride, x_stride);
	snprintf(what, sizeof what, "head_products%s of %u rows, %u heads, %u of %u rows, %u wide",
	    s->transposed ? ", transposed," : "", s->N, s->heads, s->rows, s->block, s->in);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx, *dy;
		void *dw;

		dx = to_device(d, x, all * x_stride * 4);
		dy = to_device(d, y, all * y_stride * 4);
		dw = to_device_as(d, w, s->type, weights);
		d->ops->head_products(d->dev, dy, y_stride, dx, x_stride,
		    &(struct head_matrices){ &(struct mat){ dw, (enum weight_type)s->type,
		    s->heads * s->block, s->in }, s->heads, s->block, s->first, s->rows },
		    s->transposed, s->N);
		got = from_device(d, dy, all * y_stride);
		matmul_bound(bound, magnitude, all * y_stride, s->transposed ? s->rows : s->in,
		    s->type, d->rounds);
		compare_each(d, MATMUL, what, got, want, bound, all * y_stride);
		free(got);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dy);
		d->ops->free(d->dev, dw);
	}
	free(w);
	free(x);
	free(y);
	free(want);
	free(magnitude);
	free(bound);
}

/* A row of few has the bytes of a row alone. */
static void
test_alone(enum kv_dtype type, int transposed)
{
	enum { N = 7, HEADS = 3, BLOCK = 11, ROWS = 5, IN = 37, STRIDE = 40 };
	const size_t all = (size_t)N * HEADS * STRIDE, row = (size_t)HEADS * STRIDE;
	float *w = floats((size_t)HEADS * BLOCK * IN, 1), *x = floats(all, 2), *got[2];
	int k, n;

	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, all * 4), *dy = cleared(d, all * 4);
		void *dw = to_device_as(d, w, type, (size_t)HEADS * BLOCK * IN);
		const struct mat m = { dw, (enum weight_type)type, HEADS * BLOCK, IN };
		const struct head_matrices a = { &m, HEADS, BLOCK, 2, ROWS };

		d->ops->head_products(d->dev, dy, STRIDE, dx, STRIDE, &a, transposed, N);
		got[0] = from_device(d, dy, all);
		for (n = 0; n < N; n++)
			d->ops->head_products(d->dev, dy + n * row, STRIDE, dx + n * row, STRIDE,
			    &a, transposed, 1);
		got[1] = from_device(d, dy, all);
		verdict(memcmp(got[0], got[1], all * 4) == 0, "%s: rows of few and alone",
		    d->name);
		free(got[0]);
		free(got[1]);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dy);
		d->ops->free(d->dev, dw);
	}
	free(w);
	free(x);
}

/* ---- attention over rows that are key and value ---- */

/* The rows of c, whose values are its keys, on a device; drop_latent() */
static struct layer_rows
latent_rows(struct device *d, struct cache *c, const struct shape *s)
{
	struct layer_rows rows = cache_on_device(d, c, s, 1);

	d->ops->free(d->dev, rows.v);
	rows.v = rows.k;
	rows.v_in_k = 1;
	return rows;
}

static void
drop_latent(struct device *d, struct layer_rows *rows)
{
	rows->v = NULL;
	rows->v_in_k = 0;
	cache_free_rows(d, rows);
}

static void
test_latent_attend(const struct shape *s)
{
	const size_t NH = (size_t)s->N * s->H, n = NH * s->E;
	float *q = floats(n, s->scale), *o, *lse;
	double *want = malloc(n * sizeof *want), *want_lse = malloc(NH * sizeof *want_lse);
	struct ref_rows ref;
	struct query host;
	struct cache c;
	char what[128];
	int k;

	cache_make(&c, s);
	memcpy(c.v, c.k, c.rows * s->E * sizeof *c.v);
	cache_store(&c, s);
	host = cache_query(s, q, c.qpos);
	ref = cache_reference(&c, s);
	ref_attend(want, want_lse, &host, &ref);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = latent_rows(d, &c, s);
		struct query query = query_on_device(d, s, &host);
		void *out = cleared(d, n * 4), *dl = cleared(d, NH * 4);

		cache_name(what, sizeof what, "attend to latent rows", s);
		new_case();
		d->ops->attend(d->dev, out, dl, &query, &rows);
		o = from_device(d, out, n);
		lse = from_device(d, dl, NH);
		compare(d, ATTEND, what, o, want, n);
		d->ops->attend(d->dev, out, NULL, &query, &rows);
		free(o);
		o = from_device(d, out, n);
		again(d, what, o, n);
		new_case();
		compare(d, LSE, what, lse, want_lse, NH);
		free(lse);
		d->ops->attend(d->dev, NULL, dl, &query, &rows);
		lse = from_device(d, dl, NH);
		again(d, what, lse, NH);
		free(o);
		free(lse);
		drop_query(d, &query);
		drop_latent(d, &rows);
		d->ops->free(d->dev, out);
		d->ops->free(d->dev, dl);
	}
	cache_free(&c);
	free(q);
	free(want);
	free(want_lse);
}

/* Of a choice: the bytes of attend() over the rows that gather() puts together. */
static void
test_latent_chosen(uint32_t E, uint32_t S, enum kv_dtype type, uint32_t per)
{
	const struct shape s = { 1, 5, 1, E, S, type, 1, LATE, 0, 0 };
	const uint32_t entries = (S + per - 1) / per;
	uint32_t at[1000], n[1] = { 0 }, i;
	float *q = floats((size_t)s.H * E, 1), *got[2];
	struct query host;
	struct cache c;
	int k;

	cache_make(&c, &s);
	for (i = 0; i < entries; i++)
		if (i % 3 == 1 || i + 1 == entries)
			at[n[0]++] = i;
	host = cache_query(&s, q, c.qpos);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = latent_rows(d, &c, &s), few = latent_rows(d, &c, &s);
		struct query query = query_on_device(d, &s, &host);
		struct chosen chosen = { .at = to_device(d, at, sizeof at), .stride = 1000,
			.n = n, .rows = per };
		float *out = cleared(d, (size_t)s.H * E * 4);
		uint32_t len[1];

		d->ops->attend_chosen(d->dev, out, &query, &rows, &chosen);
		got[0] = from_device(d, out, (size_t)s.H * E);
		few.len = len;
		d->ops->gather(d->dev, &few, &rows, &chosen);
		d->ops->attend(d->dev, out, NULL, &query, &few);
		got[1] = from_device(d, out, (size_t)s.H * E);
		verdict(memcmp(got[0], got[1], (size_t)s.H * E * 4) == 0 && len[0] < S,
		    "%s: chosen latent rows, width %u, %u rows of entries of %u", d->name, E, S,
		    per);
		free(got[0]);
		free(got[1]);
		few.len = rows.len;
		drop_query(d, &query);
		drop_latent(d, &rows);
		drop_latent(d, &few);
		d->ops->free(d->dev, chosen.at);
		d->ops->free(d->dev, out);
	}
	cache_free(&c);
	free(q);
}

static void
test_latent_rows(void)
{
	static const struct shape attends[] = {
		{ 1, 16, 1, 576, 300, KV_BF16, 1, LATE, 0, 0 },
		{ 1, 70, 1, 576, 1100, KV_BF16, 1, LATE, 0, 0 },
		{ 3, 21, 1, 576, 95, KV_F16, 1, LATE, 0, 0 },
		{ 1, 40, 1, 288, 1, KV_F16, 1, LATE | FIRST, 0, 0 },
		{ 130, 3, 1, 288, 400, KV_BF16, 1, 0, 0, 0 },
		{ 67, 2, 1, 288, 33, KV_F16, 1, 0, 0, 0 },
		{ 9, 5, 1, 576, 800, KV_BF16, 1, LATE, 0, 0 },
		{ 12, 3, 1, 576, 70, KV_F32, 1, 0, 0, 0 },
		{ 12, 3, 1, 72, 70, KV_BF16, 1, 0, 0, 0 },
		{ 12, 3, 1, 288, 70, KV_BF16, 1, 0, 20, 0 },
	};
	size_t i;

	for (i = 0; i < COUNT(attends); i++)
		test_latent_attend(&attends[i]);
	test_latent_chosen(576, 700, KV_BF16, 1);
	test_latent_chosen(288, 333, KV_F16, 16);
	test_latent_chosen(72, 100, KV_BF16, 1);
}

void
test_latent(void)
{
	static const struct products shapes[] = {
		{ 1, 1, 1, 0, 1, 1, KV_F32, 0 }, { 1, 1, 1, 0, 1, 1, KV_F32, 1 },
		{ 3, 3, 64, 0, 24, 56, KV_BF16, 1 }, { 3, 3, 64, 24, 40, 56, KV_BF16, 0 },
		{ 1, 16, 256, 0, 128, 512, KV_BF16, 1 }, { 1, 16, 256, 128, 128, 512, KV_BF16, 0 },
		{ 64, 2, 30, 7, 20, 65, KV_F16, 0 }, { 65, 2, 30, 7, 20, 65, KV_F16, 0 },
		{ 64, 2, 30, 7, 20, 65, KV_F32, 1 }, { 65, 2, 30, 7, 20, 65, KV_F16, 1 },
		{ 8, 3, 20, 3, 17, 264, KV_F32, 1 }, { 5, 3, 20, 3, 17, 264, KV_F16, 0 },
		{ 4, 2, 20, 3, 17, 264, KV_F32, 0 }, { 4, 2, 20, 3, 17, 264, KV_F16, 1 },
		{ 4, 2, 20, 3, 17, 37, KV_BF16, 1 }, { 9, 2, 20, 3, 17, 37, KV_F16, 0 },
		{ 130, 5, 9, 4, 5, 48, KV_BF16, 1 }, { 130, 5, 9, 4, 5, 48, KV_F32, 0 },
		{ 130, 5, 9, 4, 5, 48, KV_F32, 1 }, { 130, 5, 9, 4, 5, 48, KV_BF16, 0 },
	};
	size_t i;

	test_copy_channels(1, 1, 1, 1);
	test_copy_channels(7, 16, 72, 40);
	test_copy_channels(513, 5, 9, 6);
	for (i = 0; i < sizeof shapes / sizeof *shapes; i++)
		test_products(&shapes[i]);
	test_alone(KV_BF16, 0);
	test_alone(KV_F32, 1);
	test_latent_rows();
}

/* ops_latent.c - latent attention: channels put together, products of each query head */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

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

struct shape {
	uint32_t N, heads, block, first, rows, in;
	enum kv_dtype type;
	int transposed;
};

/* want <- the products in double precision, magnitude <- the same of absolute values */
static void
reference(double *want, double *magnitude, const struct shape *s, const float *w, const float *x,
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
test_products(const struct shape *s)
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

void
test_latent(void)
{
	static const struct shape shapes[] = {
		{ 1, 1, 1, 0, 1, 1, KV_F32, 0 }, { 1, 1, 1, 0, 1, 1, KV_F32, 1 },
		{ 3, 3, 64, 0, 24, 56, KV_BF16, 1 }, { 3, 3, 64, 24, 40, 56, KV_BF16, 0 },
		{ 1, 16, 256, 0, 128, 512, KV_BF16, 1 }, { 1, 16, 256, 128, 128, 512, KV_BF16, 0 },
		{ 64, 2, 30, 7, 20, 65, KV_F16, 0 }, { 65, 2, 30, 7, 20, 65, KV_F16, 0 },
		{ 64, 2, 30, 7, 20, 65, KV_F32, 1 }, { 65, 2, 30, 7, 20, 65, KV_F16, 1 },
		{ 8, 3, 20, 3, 17, 264, KV_F32, 1 }, { 5, 3, 20, 3, 17, 264, KV_F16, 0 },
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
}

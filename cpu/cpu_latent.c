/* cpu_latent.c - multi-head latent attention: channels put together, and products of each query
 * head with its own rows of a matrix
 *
 * An item is a head, so that each weight is widened once. Few rows of x (up to FEW) take one
 * weight row after another, each sum in the same order for every N; more go to oneDNN's sgemm with
 * the whole matrix of the head. */
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "cpu/cpu_internal.h"

#define FEW 64                  /* rows of x, as in cpu_matmul.c */
#define LANES 16                /* sums side by side of one product */

struct copy_channels {
	float *y;
	const float *x;
	size_t y_stride, x_stride, width, rows, step;
};

static void
copy_item(void *arg, size_t item, int thread)
{
	const struct copy_channels *c = arg;
	size_t n = item * c->step, end = n + c->step < c->rows ? n + c->step : c->rows;

	(void)thread;
	for (; n < end; n++)
		memcpy(c->y + n * c->y_stride, c->x + n * c->x_stride, c->width * sizeof *c->y);
}

void
cpu_copy_channels(struct dev *d, float *y, size_t y_stride, const float *x, size_t x_stride,
    uint32_t width, size_t rows)
{
	enum { STEP = 256 };
	struct copy_channels c = { y, x, y_stride, x_stride, width, rows, STEP };

	if (d->error[0] == '\0' && rows > 0)
		cpu_run(d, copy_item, &c, (rows + STEP - 1) / STEP, rows * width);
}

struct head_products {
	struct dev *d;
	const struct head_matrices *a;
	float *y;
	const float *x;
	size_t y_stride, x_stride, N;   /* strides from head to head */
	int transposed;
	float *scratch;                 /* [threads][rows that are widened at once][in] */
};

static float
dot(const float *a, const float *b, size_t n)
{
	float lane[LANES] = { 0 }, sum = 0;
	size_t i, j;

	for (i = 0; i + LANES <= n; i += LANES)
		for (j = 0; j < LANES; j++)
			lane[j] += a[i + j] * b[i + j];
	for (j = 0; i < n; i++, j++)
		lane[j] += a[i] * b[i];
	for (j = 0; j < LANES; j++)
		sum += lane[j];
	return sum;
}

/* Returns vector x or y of head h of row n. */
static size_t
place(const struct head_products *p, size_t n, size_t h, size_t stride)
{
	return (n * p->a->heads + h) * stride;
}

/* Products of few rows: w[in] is scratch for a weight row. */
static void
few_rows(const struct head_products *p, size_t h, float *w)
{
	const struct head_matrices *a = p->a;
	const size_t in = a->w->in, first = h * a->block + a->first;
	size_t n, i, j;
	float *y;

	for (n = 0; p->transposed && n < p->N; n++)
		memset(p->y + place(p, n, h, p->y_stride), 0, in * sizeof *p->y);
	for (i = 0; i < a->rows; i++) {
		cpu_widen_rows(p->d->simd, w, a->w, first + i, 1);
		for (n = 0; n < p->N; n++) {
			const float *x = p->x + place(p, n, h, p->x_stride);

			y = p->y + place(p, n, h, p->y_stride);
			if (!p->transposed)
				y[i] = dot(w, x, in);
			else
				for (j = 0; j < in; j++)
					y[j] += x[i] * w[j];
		}
	}
}

/* Products of many rows: w[rows][in] is scratch for the matrix of the head. */
static void
many_rows(const struct head_products *p, size_t h, float *w)
{
	const struct head_matrices *a = p->a;
	const dnnl_dim_t in = a->w->in, rows = a->rows, heads = a->heads, N = (dnnl_dim_t)p->N;
	const dnnl_dim_t ldx = heads * (dnnl_dim_t)p->x_stride;
	const dnnl_dim_t ldy = heads * (dnnl_dim_t)p->y_stride;
	const float *x = p->x + place(p, 0, h, p->x_stride);
	float *y = p->y + place(p, 0, h, p->y_stride);
	dnnl_status_t status;

	cpu_widen_rows(p->d->simd, w, a->w, h * a->block + a->first, a->rows);
	if (p->transposed)
		status = dnnl_sgemm('N', 'N', N, in, rows, 1, x, ldx, w, in, 0, y, ldy);
	else
		status = dnnl_sgemm('N', 'T', N, rows, in, 1, x, ldx, w, in, 0, y, ldy);
	if (status != dnnl_success)
		cpu_fail(p->d, "head_products: oneDNN sgemm: status %d", (int)status);
}

static void
head_item(void *arg, size_t h, int thread)
{
	const struct head_products *p = arg;
	const size_t most = p->N <= FEW ? 1 : p->a->rows;
	float *w = p->scratch + (size_t)thread * most * p->a->w->in;

	(p->N <= FEW ? few_rows : many_rows)(p, h, w);
}

void
cpu_head_products(struct dev *d, float *y, size_t y_stride, const float *x, size_t x_stride,
    const struct head_matrices *a, int transposed, uint32_t N)
{
	struct head_products p = { .d = d, .a = a, .y = y, .x = x, .y_stride = y_stride,
	    .x_stride = x_stride, .N = N, .transposed = transposed };
	const size_t most = N <= FEW ? 1 : a->rows;
	int before;

	if (d->error[0] != '\0' || N == 0)
		return;
	p.scratch = cpu_scratch(d, d->threads * most * a->w->in * sizeof *p.scratch);
	if (p.scratch == NULL || (N > FEW && !cpu_has_room(d)))
		return;
	before = cpu_blas_threads(1);
	cpu_run(d, head_item, &p, a->heads, (size_t)N * a->heads * a->rows * a->w->in);
	cpu_blas_threads(before);
}

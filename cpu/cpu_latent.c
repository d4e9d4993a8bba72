/* cpu_latent.c - multi-head latent attention: channels put together, and products of each query
 * head with its own rows of a matrix
 *
 * An item is a head, so that each weight is read once. For few rows of x (up to FEW) weights are
 * widened in registers, those in blocks some rows at a time before; more rows go to oneDNN's sgemm
 * with the whole matrix of the head in f32. */
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "cpu/cpu_internal.h"

#define FEW 64                  /* rows of x, as in cpu_matmul.c */
#define WIDENED 8               /* rows of weights in blocks that are widened at once */

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
	float *scratch;                 /* [threads][floats] */
	size_t floats;                  /* a multiple of 16 */
};

/* Floats of scratch of a thread for few rows of x: widened weights, and x as dots() takes it */
static size_t
few_floats(const struct head_products *p)
{
	return WIDENED * p->a->w->in + p->N * DOTS_LD(p->a->w->in);
}

/* Products of few rows. Each sum is made in the same order, whatever N is. */
static void
few_rows(const struct head_products *p, size_t h, float *scratch)
{
	const struct head_matrices *a = p->a;
	const struct simd *simd = p->d->simd;
	const int blocks = weight_is_block(a->w->type);
	const enum kv_dtype type = blocks ? KV_F32 : mat_elements(a->w);
	const size_t in = a->w->in, first = h * a->block + a->first;
	const size_t step = blocks ? WIDENED : a->rows;
	const size_t ldx = a->heads * p->x_stride, ldy = a->heads * p->y_stride;
	const float *x = p->x + h * p->x_stride;
	float *y = p->y + h * p->y_stride, *wide = scratch, *arranged = wide + WIDENED * in;
	size_t n, i, rows;
	const void *w;

	for (n = 0; n < p->N; n++)
		if (p->transposed)
			memset(y + n * ldy, 0, in * sizeof *y);
		else
			simd->arrange(arranged + n * DOTS_LD(in), x + n * ldx, 1, in, type);
	for (i = 0; i < a->rows; i += step) {
		rows = a->rows - i < step ? a->rows - i : step;
		w = (const char *)a->w->data + (first + i) * weight_row_bytes(a->w->type, in);
		if (blocks) {
			cpu_widen_rows(simd, wide, a->w, first + i, rows);
			w = wide;
		}
		if (p->transposed)
			simd->add_rows(y, ldy, x + i, ldx, p->N, w, type, rows, in);
		else
			simd->dots(y + i, ldy, arranged, p->N, w, type, rows, in, NULL, 0);
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
	const float *x = p->x + h * p->x_stride;
	float *y = p->y + h * p->y_stride;
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

	(p->N <= FEW ? few_rows : many_rows)(p, h, p->scratch + (size_t)thread * p->floats);
}

void
cpu_head_products(struct dev *d, float *y, size_t y_stride, const float *x, size_t x_stride,
    const struct head_matrices *a, int transposed, uint32_t N)
{
	struct head_products p = { .d = d, .a = a, .y = y, .x = x, .y_stride = y_stride,
	    .x_stride = x_stride, .N = N, .transposed = transposed };
	int before;

	if (d->error[0] != '\0' || N == 0)
		return;
	p.floats = PADDED(N <= FEW ? few_floats(&p) : (size_t)a->rows * a->w->in);
	p.scratch = cpu_scratch(d, d->threads * p.floats * sizeof *p.scratch);
	if (p.scratch == NULL || (N > FEW && !cpu_has_room(d)))
		return;
	before = cpu_blas_threads(1);
	cpu_run(d, head_item, &p, a->heads, (size_t)N * a->heads * a->rows * a->w->in);
	cpu_blas_threads(before);
}

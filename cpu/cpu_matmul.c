/* cpu_matmul.c - y = x . w^T with weights in the type they are stored in
 *
 * Many rows: oneDNN's sgemm on tiles of y. A tile is PANEL weight rows, widened to f32 in
 * scratch that stays in the second-level cache, times up to TILE rows of x. Each call runs
 * on one thread; the threads share the tiles.
 *
 * Few rows: the time is that of reading the weights, so they are read once and widened in
 * registers: simd_dot.c.
 *
 * Both cut y by the shapes alone, so y does not depend on the number of threads. The two
 * paths add in different orders. */
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>

#include "cpu/cpu_internal.h"

#define FEW 32           /* rows up to which reading the weights once beats oneDNN */
#define PANEL 256        /* weight rows of one tile */
#define TILE 512         /* rows of x of one tile: long, because each tile widens its panel */
#define TILE_SHORT 128   /* the same where there would be fewer than MIN_TILES tiles */
#define MIN_TILES 8
#define DOT_BYTES 131072 /* weights of one item of the few-rows path */

static void
few_rows(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	const size_t in = w->in, out = w->out, row = in * kv_dtype_size(w->dtype);
	size_t item, o;

	item = (DOT_BYTES / row + 4) / 4 * 4;          /* whole groups of rows read side by side */
#pragma omp parallel for schedule(dynamic) num_threads(d->threads) if (out * in > 65536)
	for (o = 0; o < out; o += item)
		d->simd->dots(y + o, out, x, N, (const char *)w->data + o * row, w->dtype,
		    out - o < item ? out - o : item, in, bias == NULL ? NULL : bias + o, add);
}

/* y[rows][out] at the columns of the panel that begins at o; scratch[threads][PANEL][in] */
static void
tile(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    float *scratch, size_t rows, size_t o, int add)
{
	const size_t in = w->in, out = w->out, cols = out - o < PANEL ? out - o : PANEL;
	const char *data = (const char *)w->data + o * in * kv_dtype_size(w->dtype);
	const float *panel = (const float *)data;
	dnnl_status_t status;
	size_t n, i;

	if (w->dtype != KV_F32) {
		scratch += (size_t)omp_get_thread_num() * PANEL * in;
		d->simd->widen(scratch, data, w->dtype, cols * in);
		panel = scratch;
	}
	status = dnnl_sgemm('N', 'T', (dnnl_dim_t)rows, (dnnl_dim_t)cols, (dnnl_dim_t)in, 1, x,
	    (dnnl_dim_t)in, panel, (dnnl_dim_t)in, add ? 1 : 0, y + o, (dnnl_dim_t)out);
	if (status != dnnl_success)
		cpu_fail(d, "matmul: oneDNN sgemm %zux%zux%zu: status %d", rows, cols, in,
		    (int)status);
	for (n = 0; bias != NULL && n < rows; n++)
		for (i = o; i < o + cols; i++)
			y[n * out + i] += bias[i];
}

static void
many_rows(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	const size_t in = w->in, out = w->out;
	const size_t step =
	    (out + PANEL - 1) / PANEL * ((N + TILE - 1) / TILE) < MIN_TILES ? TILE_SHORT : TILE;
	float *scratch = NULL;
	size_t o, n;

	if (w->dtype != KV_F32 &&
	    (scratch = cpu_scratch(d, d->threads * PANEL * in * sizeof *scratch)) == NULL)
		return;
#pragma omp parallel num_threads(d->threads)
	{
		/* oneDNN asks OpenMP how many threads there are, and is serial in a
		 * parallel region, but a team of one is none to OpenMP. This setting is the
		 * task's own and ends with the region. */
		omp_set_num_threads(1);
#pragma omp for collapse(2) schedule(dynamic)
		for (o = 0; o < out; o += PANEL)
			for (n = 0; n < N; n += step)
				tile(d, y + n * out, x + n * in, w, bias, scratch,
				    N - n < step ? N - n : step, o, add);
	}
}

void
cpu_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	if (d->error[0] != '\0' || N == 0 || w->out == 0)
		return;
	if (N <= FEW)
		few_rows(d, y, x, w, bias, N, add);
	else
		many_rows(d, y, x, w, bias, N, add);
}

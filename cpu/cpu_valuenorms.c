/* cpu_valuenorms.c - norms of what values add to the residual stream (kv-snapshot(5), 4.23)
 *
 * A query head has E columns of the output projection. A panel of some output channels is widened
 * and multiplied with a tile of values, and only the sums of the products are kept. The sums have
 * the same order for any number of threads. */
#include <math.h>

#include <dnnl.h>

#include "cpu/cpu_internal.h"

#define TILE 256                /* values that a thread takes, of one query head */
#define PANEL 64                /* output channels at a time */

struct norms {
	struct dev *d;
	const struct value_outputs *of;
	float *norms, *scratch;
	size_t stride, tiles;
};

/* Floats of scratch of a thread: panel, products */
static size_t
scratch_of(const struct value_outputs *of)
{
	return (size_t)PANEL * of->width + (size_t)TILE * PANEL;
}

/* panel[rows][E] <- the columns of query head h in output channels from `first` on */
static void
widen_panel(const struct norms *a, float *panel, uint32_t h, size_t first, size_t rows)
{
	const struct mat *wo = a->of->wo;
	const size_t E = a->of->width;
	size_t i;

	for (i = 0; i < rows; i++)
		cpu_widen_row(a->d->simd, panel + i * E, wo, first + i, h * E, E);
}

static void
norms_part(void *arg, size_t item, int thread)
{
	const struct norms *a = arg;
	const struct value_outputs *of = a->of;
	const size_t E = of->width, first = item % a->tiles * TILE, r = item / a->tiles;
	const size_t n = of->n - first < TILE ? of->n - first : TILE;
	float *panel = a->scratch + (size_t)thread * scratch_of(of), *y = panel + PANEL * E;
	double sum[TILE] = { 0 };
	dnnl_status_t status = dnnl_success;
	size_t at, rows, i, o;

	for (at = 0; at < of->wo->out && status == dnnl_success; at += rows) {
		rows = of->wo->out - at < PANEL ? of->wo->out - at : PANEL;
		widen_panel(a, panel, of->first + (uint32_t)r, at, rows);
		status = dnnl_sgemm('N', 'T', (dnnl_dim_t)n, (dnnl_dim_t)rows, (dnnl_dim_t)E, 1,
		    of->v + first * E, (dnnl_dim_t)E, panel, (dnnl_dim_t)E, 0, y, PANEL);
		for (i = 0; i < n; i++)
			for (o = 0; o < rows; o++)
				sum[i] += of->euclidean ? (double)y[i * PANEL + o] *
				    y[i * PANEL + o] : fabsf(y[i * PANEL + o]);
	}
	if (status != dnnl_success)
		cpu_fail(a->d, "value_norms: oneDNN sgemm: status %d", (int)status);
	for (i = 0; i < n; i++)
		a->norms[r * a->stride + first + i] =
		    (float)(of->euclidean ? sqrt(sum[i]) : sum[i]);
}

void
cpu_value_norms(struct dev *d, float *norms, size_t stride, const struct value_outputs *of)
{
	struct norms a = { .d = d, .of = of, .norms = norms, .stride = stride,
	    .tiles = (of->n + (size_t)TILE - 1) / TILE };
	int before;

	if (d->error[0] != '\0' || of->n == 0)
		return;
	a.scratch = cpu_scratch(d, d->threads * scratch_of(of) * sizeof *a.scratch);
	if (a.scratch == NULL || !cpu_has_room(d))
		return;
	before = cpu_blas_threads(1);
	cpu_run(d, norms_part, &a, a.tiles * of->heads,
	    (size_t)of->n * of->heads * of->wo->out * of->width);
	cpu_blas_threads(before);
}

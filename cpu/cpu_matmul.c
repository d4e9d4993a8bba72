/* cpu_matmul.c - y = x . w^T with weights in the type they are stored in
 *
 * Many rows of x (GEMM): oneDNN's sgemm on tiles of y. A tile is PANEL weight rows, widened to
 * f32 in scratch that stays in L2, times up to TILE rows of x. Each call runs on one thread;
 * the threads share the tiles.
 *
 * Few rows of x (GEMV, skinny GEMM): the limit is reading the weights, so they are read once
 * and widened in registers: simd_dot.c; in blocks: cpu_blocks.c.
 *
 * Both cut y by the shapes alone, so y does not depend on the number of threads. The two
 * paths add in different orders. Where products in bf16 are asked for, cpu_bf16.c does what is
 * limited by arithmetic. */
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>

#include "cpu/cpu_internal.h"

#define GEMV_ROWS 64   /* rows up to which reading the weights once beats oneDNN */
#define SKINNY_BF16 16   /* and products in bf16 */
#define PANEL 256        /* weight rows of one tile */
#define PANEL_SHORT 64   /* at least so many where there would be fewer than MIN_TILES tiles */
#define TILE 512         /* rows of x of one tile: long, because each tile widens its panel */
#define MIN_TILES 8
#define DOT_BYTES 131072 /* weights of one item of skinny GEMM, in eights of rows */

struct multiply {
	struct dev *d;
	float *y;
	const float *x;              /* skinny GEMM: arranged */
	const struct mat *w;
	const float *bias;           /* NULL: none */
	int add;
	size_t N;
	size_t step;                 /* skinny GEMM: weight rows of one item */
	size_t panel, panels;        /* GEMM: weight rows of one item; items along them */
	float *scratch;              /* [threads][panel][in]; skinny GEMM: x */
};

static void
skinny_item(void *arg, size_t item, int thread)
{
	const struct multiply *p = arg;
	const struct mat *w = p->w;
	const size_t in = w->in, out = w->out, o = item * p->step;
	const char *data = (const char *)w->data + o * weight_row_bytes(w->type, in);

	(void)thread;
	p->d->simd->dots(p->y + o, out, p->x, p->N, data, mat_elements(w),
	    out - o < p->step ? out - o : p->step, in, p->bias == NULL ? NULL : p->bias + o,
	    p->add);
}

/* A tile: a panel of weight rows and up to TILE rows of x */
static void
gemm_item(void *arg, size_t item, int thread)
{
	const struct multiply *p = arg;
	const struct mat *w = p->w;
	const size_t in = w->in, out = w->out, o = item % p->panels * p->panel;
	const size_t cols = out - o < p->panel ? out - o : p->panel, n0 = item / p->panels * TILE;
	const size_t rows = p->N - n0 < TILE ? p->N - n0 : TILE;
	const float *x = p->x + n0 * in, *panel = (const float *)w->data + o * in;
	float *y = p->y + n0 * out, *mine;
	dnnl_status_t status;
	size_t n, i;

	if (w->type != WEIGHT_F32) {
		mine = p->scratch + (size_t)thread * p->panel * in;
		cpu_widen_rows(p->d->simd, mine, w, o, cols);
		panel = mine;
	}
	status = dnnl_sgemm('N', 'T', (dnnl_dim_t)rows, (dnnl_dim_t)cols, (dnnl_dim_t)in, 1, x,
	    (dnnl_dim_t)in, panel, (dnnl_dim_t)in, p->add ? 1 : 0, y + o, (dnnl_dim_t)out);
	if (status != dnnl_success)
		cpu_fail(p->d, "matmul: oneDNN sgemm %zux%zux%zu: status %d", rows, cols, in,
		    (int)status);
	for (n = 0; p->bias != NULL && n < rows; n++)
		for (i = o; i < o + cols; i++)
			y[n * out + i] += p->bias[i];
}

/* oneDNN asks OpenMP how many threads to use; the answer is kept per thread. */
int
cpu_blas_threads(int threads)
{
	int before = omp_get_max_threads();

	omp_set_num_threads(threads);
	return before;
}

/* oneDNN makes its code at the first product: here, where its room has just been looked at, and
 * while no other thread allocates. */
static void
warm_up(struct dev *d)
{
	enum { SIZE = 48 };
	static const float x[SIZE * SIZE];
	float y[SIZE * SIZE];

	if (!d->warm)
		dnnl_sgemm('N', 'T', SIZE, SIZE, SIZE, 1, x, SIZE, x, SIZE, 0, y, SIZE);
	d->warm = 1;
}

int
cpu_few_rows(const struct dev *d, size_t N, enum weight_type type)
{
	if (d->bf16 != NULL && N > SKINNY_BF16 && cpu_bf16_takes(type))
		return 0;
	return N <= GEMV_ROWS;
}

void
cpu_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	struct multiply p = { .d = d, .y = y, .x = x, .w = w, .bias = bias, .add = add, .N = N };
	const size_t in = w->in, out = w->out, cost = (size_t)N * in * out;
	size_t tiles;
	int before;

	if (d->error[0] != '\0' || cost == 0)
		return;
	if (d->bf16 != NULL && N > SKINNY_BF16 && cpu_bf16_takes(w->type)) {
		cpu_bf16_matmul(d, y, x, w, bias, N, add);
		return;
	}
	if (N <= GEMV_ROWS && weight_is_block(w->type)) {
		cpu_blocks_matmul(d, y, x, w, bias, N, add);
		return;
	}
	if (N <= GEMV_ROWS) {
		if ((p.scratch = cpu_scratch(d, N * DOTS_LD(in) * sizeof *p.scratch)) == NULL)
			return;
		d->simd->arrange(p.scratch, x, N, in, mat_elements(w));
		p.x = p.scratch;
		p.step = (DOT_BYTES / weight_row_bytes(w->type, in) + 8) / 8 * 8;
		cpu_run(d, skinny_item, &p, (out + p.step - 1) / p.step, cost);
		return;
	}
	tiles = (N + (size_t)TILE - 1) / TILE;
	p.panel = PANEL;
	while (p.panel > PANEL_SHORT && (out + p.panel - 1) / p.panel * tiles < MIN_TILES)
		p.panel /= 2;
	p.panels = (out + p.panel - 1) / p.panel;
	if (w->type != WEIGHT_F32 &&
	    (p.scratch = cpu_scratch(d, d->threads * p.panel * in * sizeof *p.scratch)) == NULL)
		return;
	if (!cpu_has_room(d))
		return;
	before = cpu_blas_threads(1);
	warm_up(d);
	cpu_run(d, gemm_item, &p, p.panels * tiles, cost);
	cpu_blas_threads(before);
}

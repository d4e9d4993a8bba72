/* cpu_bf16.c - y = x . w^T where w is in bf16 and x is rounded to bf16, too; sums are f32
 *
 * An item is a panel of BF16_COLS weight rows and up to TILE rows of x. The panel is copied into
 * the order of the instructions, BF16_DEPTH channels at a time so that it stays in L2, and then
 * meets the rows of x, BF16_ROWS at a time. x is rounded before, once for all items.
 *
 * What y[n][o] is depends on row n of x and row o of w only: neither on the other rows nor on how
 * the work is cut. */
#include "cpu/cpu_internal.h"

#define TILE 512             /* rows of x of one item: long, because each item packs its panel */
#define TILE_SHORT 64        /* at least so many where there would be fewer than MIN_ITEMS items */
#define MIN_ITEMS 8
#define SLAB 2048            /* rows of x that are rounded at a time: what scratch is for at most */
#define LINE 64              /* bytes */

struct multiply {
	const struct bf16_products *simd;
	float *y;
	const float *x;
	const struct mat *w;
	const float *bias;           /* NULL: none */
	int add;
	size_t N, tile, panels;      /* rows of x; items: panels along w, times tiles along x */
	uint16_t *rounded;           /* [N up to whole BF16_ROWS][ld] */
	size_t ld;                   /* in, up to whole pairs of vectors */
	uint32_t *panel;             /* [threads][PANEL_WORDS] */
};

/* Pairs of one panel, in words, and a page: what one thread writes is not read ahead by another */
enum { PANEL_WORDS = BF16_COLS * BF16_DEPTH / 2 + 1024 };

static size_t
up_to(size_t n, size_t whole)
{
	return (n + whole - 1) / whole * whole;
}

/* BF16_ROWS rows; rows behind the last one stay what they are, and are multiplied for nothing */
static void
round_item(void *arg, size_t item, int thread)
{
	const struct multiply *p = arg;
	const size_t n = item * BF16_ROWS, rows = p->N - n < BF16_ROWS ? p->N - n : BF16_ROWS;

	(void)thread;
	p->simd->round_rows(p->rounded + n * p->ld, p->ld, p->x + n * p->w->in, rows, p->w->in);
}

static void
multiply_item(void *arg, size_t item, int thread)
{
	const struct multiply *p = arg;
	const size_t in = p->w->in, out = p->w->out, o = item % p->panels * BF16_COLS;
	const size_t cols = out - o < BF16_COLS ? out - o : BF16_COLS;
	const size_t first = item / p->panels * p->tile;
	const size_t last = p->N - first < p->tile ? p->N : first + p->tile;
	const uint16_t *w = (const uint16_t *)p->w->data + o * in;
	uint32_t *panel = p->panel + (size_t)thread * PANEL_WORDS;
	size_t i, n, depth;

	for (i = 0; i < in; i += depth) {
		depth = in - i < BF16_DEPTH ? in - i : BF16_DEPTH;
		p->simd->pack(panel, w + i, in, cols, depth);
		for (n = first; n < last; n += BF16_ROWS)
			p->simd->multiply(p->y + n * out + o, out, p->rounded + n * p->ld + i,
			    p->ld, panel, last - n < BF16_ROWS ? last - n : BF16_ROWS, cols, depth,
			    i == 0 && p->bias != NULL ? p->bias + o : NULL, i > 0 || p->add);
	}
}

static void
multiply_slab(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    size_t N, int add)
{
	struct multiply p = { .simd = d->bf16, .y = y, .x = x, .w = w, .bias = bias, .add = add,
		.N = N };
	const size_t rows = up_to(N, BF16_ROWS), cost = N * w->in * w->out;
	size_t bytes;

	p.ld = up_to(w->in, 32);
	p.panels = (w->out + (size_t)BF16_COLS - 1) / BF16_COLS;
	for (p.tile = TILE; p.tile > TILE_SHORT; p.tile /= 2)
		if ((N + p.tile - 1) / p.tile * p.panels >= MIN_ITEMS)
			break;
	bytes = up_to(rows * p.ld * sizeof *p.rounded, LINE);
	p.rounded = cpu_scratch(d, bytes + (size_t)d->threads * PANEL_WORDS * sizeof *p.panel);
	if (p.rounded == NULL)
		return;
	p.panel = (uint32_t *)((char *)p.rounded + bytes);
	cpu_run(d, round_item, &p, rows / BF16_ROWS, N * w->in);
	cpu_run(d, multiply_item, &p, (N + p.tile - 1) / p.tile * p.panels, cost);
}

void
cpu_bf16_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	size_t n;

	for (n = 0; n < N; n += SLAB)
		multiply_slab(d, y + n * w->out, x + n * w->in, w, bias,
		    N - n < SLAB ? N - n : SLAB, add);
}

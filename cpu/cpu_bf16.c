/* cpu_bf16.c - y = x . w^T where w is in bf16, or blocks that are rounded to it, and x is rounded
 * to bf16, too; sums are f32
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
	const struct simd *widen;    /* of use with blocks */
	float *wide;                 /* [threads][WIDE_WORDS] a row as f32, and rows in bf16 */
};

/* Pairs of one panel, in words, and a page: what one thread writes is not read ahead by another */
enum { PANEL_WORDS = BF16_COLS * BF16_DEPTH / 2 + 1024 };
enum { WIDE_WORDS = BF16_DEPTH + BF16_COLS * BF16_DEPTH / 2 + 1024 };

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

int
cpu_bf16_takes(enum weight_type type)
{
	return type == WEIGHT_BF16 || weight_is_block(type);
}

/* Packs `depth` channels, from channel i on, of the weight rows of a panel. */
static void
pack_panel(const struct multiply *p, uint32_t *panel, size_t first, size_t cols, size_t i,
    size_t depth, int thread)
{
	const struct mat *w = p->w;
	const size_t bytes = weight_row_bytes(w->type, w->in);
	const char *from = (const char *)w->data + first * bytes + weight_row_bytes(w->type, i);
	float *wide;
	uint16_t *rows;
	size_t c;

	if (w->type == WEIGHT_BF16) {
		p->simd->pack(panel, (const uint16_t *)(const void *)from, w->in, cols, depth);
		return;
	}
	wide = p->wide + (size_t)thread * WIDE_WORDS;
	rows = (uint16_t *)(void *)(wide + BF16_DEPTH);
	for (c = 0; c < cols; c++) {
		p->widen->widen_blocks(wide, from + c * bytes, w->type, depth);
		p->simd->round_rows(rows + c * BF16_DEPTH, up_to(depth, 32), wide, 1, depth);
	}
	p->simd->pack(panel, rows, BF16_DEPTH, cols, depth);
}

static void
multiply_item(void *arg, size_t item, int thread)
{
	const struct multiply *p = arg;
	const size_t in = p->w->in, out = p->w->out, o = item % p->panels * BF16_COLS;
	const size_t cols = out - o < BF16_COLS ? out - o : BF16_COLS;
	const size_t first = item / p->panels * p->tile;
	const size_t last = p->N - first < p->tile ? p->N : first + p->tile;
	uint32_t *panel = p->panel + (size_t)thread * PANEL_WORDS;
	size_t i, n, depth;

	for (i = 0; i < in; i += depth) {
		depth = in - i < BF16_DEPTH ? in - i : BF16_DEPTH;
		pack_panel(p, panel, o, cols, i, depth, thread);
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
	struct multiply p = { .simd = d->bf16, .widen = d->simd, .y = y, .x = x, .w = w,
		.bias = bias, .add = add, .N = N };
	const size_t rows = up_to(N, BF16_ROWS), cost = N * w->in * w->out;
	const size_t panels = (size_t)d->threads * PANEL_WORDS * sizeof *p.panel;
	size_t bytes;

	p.ld = up_to(w->in, 32);
	p.panels = (w->out + (size_t)BF16_COLS - 1) / BF16_COLS;
	for (p.tile = TILE; p.tile > TILE_SHORT; p.tile /= 2)
		if ((N + p.tile - 1) / p.tile * p.panels >= MIN_ITEMS)
			break;
	bytes = up_to(rows * p.ld * sizeof *p.rounded, LINE);
	p.rounded = cpu_scratch(d, bytes + panels + (weight_is_block(w->type) ?
	    (size_t)d->threads * WIDE_WORDS * sizeof *p.wide : 0));
	if (p.rounded == NULL)
		return;
	p.panel = (uint32_t *)((char *)p.rounded + bytes);
	p.wide = (float *)(void *)((char *)p.panel + panels);
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

/* cpu_blocks.c - y = x . w^T for a few rows of x, with weights in blocks
 *
 * x is rounded to 8 bits once, and meets the codes of the blocks as integers (cpu_blocks.h); or,
 * where products are to be exact, each weight row is widened to f32 first. Neither depends on the
 * other rows of x, nor on how the work is cut. */
#include "cpu/cpu_blocks.h"

#define DOT_BYTES 65536      /* weights of one item, in eights of rows */

struct multiply {
	struct dev *d;
	const struct mat *w;
	const float *bias;           /* NULL: none */
	float *y;
	size_t N, step;              /* rows of x; weight rows of one item */
	int add;
	const struct x_chunk *rounded;       /* [N][chunks], or .. */
	const float *x;              /* .. as arrange() has left it */
	char *scratch;               /* of each thread: a weight row, decoded or widened */
	size_t row;                  /* bytes of it */
};

static size_t
rows_of_item(const struct multiply *p, size_t first)
{
	return p->w->out - first < p->step ? p->w->out - first : p->step;
}

static void
rounded_item(void *arg, size_t item, int thread)
{
	const struct multiply *p = arg;
	const size_t o = item * p->step, bytes = weight_row_bytes(p->w->type, p->w->in);
	const struct block_product job = { .y = p->y + o, .ldy = p->w->out, .x = p->rounded,
		.N = p->N, .w = (const char *)p->w->data + o * bytes,
		.rows = rows_of_item(p, o), .in = p->w->in,
		.bias = p->bias == NULL ? NULL : p->bias + o, .add = p->add,
		.decoded = (void *)(p->scratch + (size_t)thread * p->row) };

	p->d->block_dots(&job, p->w->type);
}

static void
exact_item(void *arg, size_t item, int thread)
{
	const struct multiply *p = arg;
	const size_t first = item * p->step, bytes = weight_row_bytes(p->w->type, p->w->in);
	float *row = (void *)(p->scratch + (size_t)thread * p->row);
	size_t o;

	for (o = first; o < first + rows_of_item(p, first); o++) {
		p->d->simd->widen_blocks(row, (const char *)p->w->data + o * bytes, p->w->type,
		    p->w->in);
		p->d->simd->dots(p->y + o, p->w->out, p->x, p->N, row, KV_F32, 1, p->w->in,
		    p->bias == NULL ? NULL : p->bias + o, p->add);
	}
}

void
cpu_widen_rows(const struct simd *simd, float *dst, const struct mat *w, size_t first, size_t n)
{
	const size_t bytes = weight_row_bytes(w->type, w->in);
	const char *row = (const char *)w->data + first * bytes;
	size_t i;

	if (!weight_is_block(w->type)) {
		simd->widen(dst, row, mat_elements(w), n * w->in);
		return;
	}
	for (i = 0; i < n; i++)
		simd->widen_blocks(dst + i * w->in, row + i * bytes, w->type, w->in);
}

void
cpu_widen_row(const struct simd *simd, float *dst, const struct mat *w, size_t o, size_t first,
    size_t n)
{
	const size_t block = weight_block(w->type), begin = first / block * block;
	const size_t end = (first + n + block - 1) / block * block;
	const char *row = (const char *)w->data + o * weight_row_bytes(w->type, w->in) +
	    weight_row_bytes(w->type, begin);
	float whole[1024 + 2 * CHUNK];

	if (!weight_is_block(w->type)) {
		simd->widen(dst, row, mat_elements(w), n);
		return;
	}
	simd->widen_blocks(whole, row, w->type, end - begin);
	memcpy(dst, whole + (first - begin), n * sizeof *dst);
}

void
cpu_blocks_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	const size_t in = w->in, out = w->out, chunks = chunks_of(in);
	const size_t bytes = weight_row_bytes(w->type, in);
	struct multiply p = { .d = d, .w = w, .bias = bias, .y = y, .N = N, .add = add };
	const size_t rows_of_x = d->exact ? N * DOTS_LD(in) * sizeof *x :
	    N * chunks * sizeof(struct x_chunk);
	void *scratch;

	p.row = ((d->exact ? in * sizeof *x : chunks * sizeof(struct chunk)) + 4159) / 64 * 64;
	if ((scratch = cpu_scratch(d, rows_of_x + d->threads * p.row)) == NULL)
		return;
	p.scratch = (char *)scratch + rows_of_x;
	p.step = (DOT_BYTES / bytes + 8) / 8 * 8;
	if (d->exact) {
		d->simd->arrange(scratch, x, N, in, KV_F32);
		p.x = scratch;
	} else {
		d->simd->round_x(scratch, x, N, in);
		p.rounded = scratch;
	}
	cpu_run(d, d->exact ? exact_item : rounded_item, &p, (out + p.step - 1) / p.step,
	    (size_t)N * in * out);
}

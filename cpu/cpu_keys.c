/* cpu_keys.c - what keys say by themselves: their lengths, and how they differ from the others
 *
 * The same sums in the same order as the methods of these names make from keys in a file: the same
 * scores, to the bit. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

#define PIECE 256                /* keys of one item */

struct keys {
	const struct simd *simd;
	const struct layer_rows *rows;
	float *score;
	size_t stride;
	size_t pieces;               /* items of one KV head */
	double *scratch;             /* [threads][2E], and then E floats each */
	size_t threads;
};

static const char *
key(const struct layer_rows *c, size_t g, size_t s)
{
	return (const char *)c->k + (c->start[g] + s) * c->width * kv_dtype_size(c->dtype);
}

/* [2E] of this thread */
static double *
own_doubles(const struct keys *p, int thread)
{
	return p->scratch + (size_t)thread * 2 * p->rows->width;
}

/* [E] of this thread */
static float *
own_floats(const struct keys *p, int thread)
{
	return (float *)(p->scratch + p->threads * 2 * p->rows->width) +
	    (size_t)thread * p->rows->width;
}

/* |k|^2, and k as f32. double: the square of an f32 may overflow */
static double
square(const struct keys *p, float *k, size_t g, size_t s)
{
	const size_t E = p->rows->width;
	double sum = 0;
	size_t e;

	p->simd->widen(k, key(p->rows, g, s), p->rows->dtype, E);
	for (e = 0; e < E; e++)
		sum += (double)k[e] * k[e];
	return sum;
}

static void
knorm_piece(void *arg, size_t item, int thread)
{
	const struct keys *p = arg;
	const size_t g = item / p->pieces, n = p->rows->len[g];
	size_t s = item % p->pieces * PIECE, end = s + PIECE < n ? s + PIECE : n;
	float *k = own_floats(p, thread);

	for (; s < end; s++)
		p->score[g * p->stride + s] = (float)-sqrt(square(p, k, g, s));
}

/* u[E] <- the direction of a key, 0 when it has none */
static void
direction(const struct keys *p, double *u, float *k, size_t g, size_t s)
{
	const double sum = square(p, k, g, s), scale = sum == 0 ? 0 : 1 / sqrt(sum);
	size_t e;

	for (e = 0; e < p->rows->width; e++)
		u[e] = k[e] * scale;
}

static void
keydiff_head(void *arg, size_t g, int thread)
{
	const struct keys *p = arg;
	const size_t E = p->rows->width, n = p->rows->len[g];
	double *u = own_doubles(p, thread), *anchor = u + E, length = 0, dot;
	float *k = own_floats(p, thread), *score = p->score + g * p->stride;
	size_t s, e;

	memset(anchor, 0, E * sizeof *anchor);
	for (s = 0; s < n; s++) {
		direction(p, u, k, g, s);
		for (e = 0; e < E; e++)
			anchor[e] += u[e];
	}
	for (e = 0; e < E; e++)
		length += anchor[e] * anchor[e];
	length = sqrt(length);
	for (s = 0; s < n; s++) {
		direction(p, u, k, g, s);
		for (e = 0, dot = 0; e < E; e++)
			dot += u[e] * anchor[e];
		score[s] = length == 0 ? 0 : (float)(-dot / length);
	}
}

/* Fills p; 0 after a failure. */
static int
keys_of(struct dev *d, struct keys *p, float *score, size_t stride, const struct layer_rows *rows)
{
	uint32_t g;

	*p = (struct keys){ .simd = d->simd, .rows = rows, .score = score, .stride = stride,
		.threads = (size_t)d->threads };
	for (g = 0; g < rows->heads; g++)
		if ((rows->len[g] + (size_t)PIECE - 1) / PIECE > p->pieces)
			p->pieces = (rows->len[g] + (size_t)PIECE - 1) / PIECE;
	p->scratch = cpu_scratch(d, p->threads * rows->width * (2 * sizeof(double) + sizeof(float)));
	return d->error[0] == '\0' && p->scratch != NULL;
}

void
cpu_knorm(struct dev *d, float *score, size_t stride, const struct layer_rows *rows)
{
	struct keys p;

	if (d->error[0] == '\0' && keys_of(d, &p, score, stride, rows))
		cpu_run(d, knorm_piece, &p, rows->heads * p.pieces,
		    rows->heads * p.pieces * PIECE * rows->width);
}

void
cpu_keydiff(struct dev *d, float *score, size_t stride, const struct layer_rows *rows)
{
	struct keys p;

	if (d->error[0] == '\0' && keys_of(d, &p, score, stride, rows))
		cpu_run(d, keydiff_head, &p, rows->heads,
		    2 * rows->heads * p.pieces * PIECE * rows->width);
}

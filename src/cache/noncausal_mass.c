/* noncausal_mass.c - what the rows of a chunk pay one another without a causal mask */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/noncausal_mass.h"

struct noncausal *
noncausal_new(const struct model *m, uint32_t first)
{
	const size_t H = m->id.query_heads, G = m->id.kv_heads, n = NONCAUSAL_CHUNK;
	struct noncausal *x = calloc(1, sizeof *x);
	uint32_t *pos = malloc(n * sizeof *pos);

	if (x != NULL && pos != NULL) {
		x->first = first;
		snprintf(x->label, sizeof x->label, "chunk=%d first=%u", NONCAUSAL_CHUNK, first);
		x->mass = m->ops->alloc(m->dev, H * n * sizeof *x->mass);
		x->pos = m->ops->alloc(m->dev, n * sizeof *x->pos);
		x->host = malloc(H * n * sizeof *x->host);
		x->numbers = malloc(G * n * sizeof *x->numbers);
		x->start = malloc(G * sizeof *x->start);
		x->len = malloc(G * sizeof *x->len);
	}
	if (x == NULL || pos == NULL || x->mass == NULL || x->pos == NULL || x->host == NULL ||
	    x->numbers == NULL || x->start == NULL || x->len == NULL) {
		noncausal_free(x, m);
		free(pos);
		return NULL;
	}
	memset(pos, 0xff, n * sizeof *pos);
	m->ops->put(m->dev, x->pos, pos, n * sizeof *pos);
	free(pos);
	return x;
}

void
noncausal_free(struct noncausal *x, const struct model *m)
{
	if (x == NULL)
		return;
	m->ops->free(m->dev, x->mass);
	m->ops->free(m->dev, x->pos);
	free(x->host);
	free(x->numbers);
	free(x->start);
	free(x->len);
	free(x);
}

/* Returns how many of N rows at ascending positions are in one chunk with the first. */
static uint32_t
rows_of_chunk(const struct noncausal *x, const uint32_t *pos, uint32_t N)
{
	const uint32_t at = pos[0] >= x->first ? (pos[0] - x->first) / NONCAUSAL_CHUNK : 0;
	uint32_t n;

	for (n = 1; n < N && n < NONCAUSAL_CHUNK; n++)
		if (pos[0] < x->first ? pos[n] >= x->first :
		    (pos[n] - x->first) / NONCAUSAL_CHUNK != at)
			break;
	return n;
}

uint32_t
noncausal_whole(const struct noncausal *x, uint32_t position, uint32_t N)
{
	const uint32_t end = position + N;
	const uint32_t more = end > x->first ? (end - x->first) % NONCAUSAL_CHUNK : 0;

	return more < N ? N - more : N;
}

/* x->numbers[n][G] <- those of n rows, which begin `back` rows before the end of each KV head */
static void
run_chunk(const struct noncausal *x, const struct model *m, const struct layer_rows *all,
    const float *q, uint32_t back, uint32_t n)
{
	const uint32_t H = m->id.query_heads, R = H / all->heads;
	const struct query query = { .q = q, .pos = x->pos, .N = n, .H = H };
	struct layer_rows rows = *all;
	uint32_t g, r, i;
	double sum;

	for (g = 0; g < all->heads; g++) {
		x->start[g] = all->start[g] + all->len[g] - back;
		x->len[g] = n;
	}
	rows.start = x->start;
	rows.len = x->len;
	m->ops->window_mass(m->dev, x->mass, n, &query, &rows, NULL, QUERIES_SUM);
	m->ops->get(m->dev, x->host, x->mass, (size_t)H * n * sizeof *x->host);
	for (g = 0; g < all->heads; g++)
		for (i = 0; i < n; i++) {
			for (sum = 0, r = 0; r < R; r++)
				sum += x->host[((size_t)g * R + r) * n + i];
			x->numbers[(size_t)i * all->heads + g] = (float)(sum / R);
		}
}

void
noncausal_run(const struct noncausal *x, const struct model *m, struct row_lists *lists, uint32_t l,
    const struct layer_rows *rows, const float *q, float *scratch, const uint32_t *pos, uint32_t N)
{
	const size_t row = (size_t)m->id.query_heads * rows->width;
	uint32_t at, n, i;

	/* ops divide logits by sqrt(E) */
	m->ops->mix(m->dev, scratch, q, N * row, sqrtf((float)rows->width), 0);
	for (at = 0; at < N; at += n) {
		n = rows_of_chunk(x, pos + at, N - at);
		if (pos[at] >= x->first)
			run_chunk(x, m, rows, scratch + at * row, N - at, n);
		else
			for (i = 0; i < n * rows->heads; i++)
				x->numbers[i] = 0;
		row_lists_put(lists, l, rows, N - at, x->numbers, n);
	}
}

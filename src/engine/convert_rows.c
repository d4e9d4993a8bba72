/* convert_rows.c - rows of one type as rows of another
 *
 * Threads convert PIECE rows of a KV head at a time, through f32. The sums of the error are added
 * up piece by piece, so they do not depend on the number of threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/convert_rows.h"

enum { PIECE = 2 * KV_GROUP_ROWS, THREADS_MOST = 64 };

/* Some rows of a KV head */
struct piece {
	uint32_t g, first, n;
	struct rows_error error;
	uint32_t done;                  /* rows that could be stored */
};

struct conversion {
	const struct rows_conversion *how;
	char *to;
	const char *from;
	struct piece *piece;
	uint64_t *from_at, *to_at;      /* [G] where a KV head begins */
	uint64_t pieces;
	atomic_uint_fast64_t next;      /* piece */
};

static void
add_error(struct rows_error *e, const float *before, const float *after, size_t n)
{
	double gap;
	size_t i;

	for (i = 0; i < n; i++) {
		gap = (double)before[i] - after[i];
		e->squares += (double)before[i] * before[i];
		e->error_squares += gap * gap;
	}
}

/* x, y: scratch for the rows of a piece each */
static void
convert_piece(const struct conversion *c, struct piece *p, float *x, float *y)
{
	const struct rows_conversion *how = c->how;
	const uint32_t rows = how->rows->count[p->g];
	char *to = c->to + c->to_at[p->g];

	kv_head_rows_to_f32(x, how->from, how->kind, how->layer, c->from + c->from_at[p->g], rows,
	    p->first, p->n);
	p->done = kv_head_rows_from_f32(to, x, how->to, how->kind, how->layer, rows, p->first,
	    p->n);
	if (p->done < p->n)
		return;
	kv_head_rows_to_f32(y, how->to, how->kind, how->layer, to, rows, p->first, p->n);
	add_error(&p->error, x, y, (size_t)p->n * how->to->model.head_width);
}

/* A thread without memory leaves its pieces to the others. */
static void *
convert_pieces(void *arg)
{
	struct conversion *c = arg;
	const size_t floats = (size_t)PIECE * c->how->to->model.head_width;
	float *x = malloc(2 * floats * sizeof *x);
	uint64_t i;

	while (x != NULL && (i = atomic_fetch_add(&c->next, 1)) < c->pieces)
		convert_piece(c, &c->piece[i], x, x + floats);
	free(x);
	return x != NULL ? c : NULL;
}

/* Returns 0 without memory. */
static int
run(struct conversion *c, unsigned threads)
{
	pthread_t id[THREADS_MOST];
	unsigned n = 0;
	int done;

	threads = threads < THREADS_MOST ? threads : THREADS_MOST;
	while (n + 1 < threads && pthread_create(&id[n], NULL, convert_pieces, c) == 0)
		n++;
	done = convert_pieces(c) != NULL;       /* all pieces, if no thread could be started */
	while (n > 0)
		pthread_join(id[--n], NULL);
	return done;
}

static int
refuse(const struct conversion *c, const struct piece *p, struct engine_error *e)
{
	const struct rows_conversion *how = c->how;
	const enum kv_row_type type = kv_head_row_type(how->to, how->kind, how->layer);
	const uint32_t row = p->first + p->done;
	char last[24] = "";

	if (how->kind == KV_KEYS && kv_row_type_kivi(type))
		snprintf(last, sizeof last, "-%u", row + KV_GROUP_ROWS - 1);
	return engine_fail(e, ENGINE_ERUN, "%s head %u row %u%s: %s cannot store it: a number is "
	    "not finite, or too large", how->name, p->g, row, last, kv_row_type_name(type));
}

/* Cuts the rows of each KV head into pieces. */
static int
cut(struct conversion *c, struct engine_error *e)
{
	const struct rows_conversion *how = c->how;
	const uint32_t G = how->rows->heads;
	uint64_t from = 0, to = 0, i = 0;
	uint32_t g, row, n;

	for (g = 0; g < G; g++)
		c->pieces += (how->rows->count[g] + PIECE - 1) / PIECE;
	if ((c->piece = engine_alloc(c->pieces, sizeof *c->piece, e)) == NULL ||
	    (c->from_at = engine_alloc(2 * (size_t)G, sizeof *c->from_at, e)) == NULL)
		return e->code;
	c->to_at = c->from_at + G;
	for (g = 0; g < G; g++) {
		n = how->rows->count[g];
		c->from_at[g] = from;
		c->to_at[g] = to;
		from += kv_head_bytes(how->from, how->kind, how->layer, n);
		to += kv_head_bytes(how->to, how->kind, how->layer, n);
		for (row = 0; row < n; row += PIECE)
			c->piece[i++] = (struct piece){ .g = g, .first = row,
				.n = n - row < PIECE ? n - row : PIECE };
	}
	return ENGINE_OK;
}

size_t
converted_size(const struct rows_conversion *how)
{
	size_t size = 0;
	uint32_t g;

	for (g = 0; g < how->rows->heads; g++)
		size += kv_head_bytes(how->to, how->kind, how->layer, how->rows->count[g]);
	return size;
}

int
convert_rows(void *to, const void *from, const struct rows_conversion *how,
    struct rows_error *error, struct engine_error *e)
{
	struct conversion c = { .how = how, .to = to, .from = from };
	uint64_t i;
	int rc = cut(&c, e);

	if (rc == ENGINE_OK && !run(&c, how->threads))
		rc = engine_fail(e, ENGINE_ERUN, "no memory to convert rows");
	for (i = 0; rc == ENGINE_OK && i < c.pieces; i++) {
		error->squares += c.piece[i].error.squares;
		error->error_squares += c.piece[i].error.error_squares;
		if (c.piece[i].done < c.piece[i].n)
			rc = refuse(&c, &c.piece[i], e);
	}
	free(c.piece);
	free(c.from_at);
	return rc;
}

/* convert_rows.c - rows of one type as rows of another
 *
 * Threads convert PIECE rows at a time, through f32. The sums of the error are added up piece by
 * piece, so they do not depend on the number of threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/convert_rows.h"

enum { PIECE = 64, THREADS_MOST = 64 };

struct conversion {
	const struct rows_conversion *how;
	char *to;
	const char *from;
	uint64_t total;                 /* rows */
	struct rows_error *error;       /* [pieces] */
	atomic_uint_fast64_t next;      /* piece */
	atomic_uint_fast64_t bad;       /* the lowest row that cannot be stored; total: none */
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

static void
refuse_row(struct conversion *c, uint64_t row)
{
	uint_fast64_t lowest = c->bad;

	while (row < lowest && !atomic_compare_exchange_weak(&c->bad, &lowest, row))
		;
}

/* Converts row by row: a row and its copy stay in L1. */
static void
convert_piece(struct conversion *c, uint64_t piece)
{
	const struct rows_conversion *how = c->how;
	const size_t E = how->width;
	const size_t from = kv_row_bytes(how->from, E), to = kv_row_bytes(how->to, E);
	const uint64_t end = (piece + 1) * PIECE < c->total ? (piece + 1) * PIECE : c->total;
	float x[KV_ROW_WIDTH_MOST], y[KV_ROW_WIDTH_MOST];
	uint64_t row;

	for (row = piece * PIECE; row < end; row++) {
		kv_rows_to_f32(x, c->from + row * from, how->from, E, 1);
		if (kv_rows_from_f32(c->to + row * to, x, how->to, E, 1) == 0) {
			refuse_row(c, row);
			return;
		}
		kv_rows_to_f32(y, c->to + row * to, how->to, E, 1);
		add_error(&c->error[piece], x, y, E);
	}
}

static void *
convert_pieces(void *arg)
{
	struct conversion *c = arg;
	uint64_t piece;

	while ((piece = atomic_fetch_add(&c->next, 1)) * PIECE < c->total)
		convert_piece(c, piece);
	return NULL;
}

static void
run(struct conversion *c, unsigned threads)
{
	pthread_t id[THREADS_MOST];
	unsigned n = 0;

	threads = threads < THREADS_MOST ? threads : THREADS_MOST;
	while (n + 1 < threads && pthread_create(&id[n], NULL, convert_pieces, c) == 0)
		n++;
	convert_pieces(c);              /* all pieces, if no thread could be started */
	while (n > 0)
		pthread_join(id[--n], NULL);
}

static int
refuse(const struct conversion *c, struct engine_error *e)
{
	const struct rows_conversion *how = c->how;
	uint64_t row = c->bad;
	uint32_t g;

	for (g = 0; g + 1 < how->rows->heads && row >= how->rows->count[g]; g++)
		row -= how->rows->count[g];
	return engine_fail(e, ENGINE_ERUN, "%s head %u row %llu: %s cannot store it: a number is "
	    "not finite, or too large", how->name, g, (unsigned long long)row,
	    kv_row_type_name(how->to));
}

int
convert_rows(void *to, const void *from, const struct rows_conversion *how,
    struct rows_error *error, struct engine_error *e)
{
	struct conversion c = { .how = how, .to = to, .from = from,
	    .total = kv_rows_total(how->rows) };
	const uint64_t pieces = (c.total + PIECE - 1) / PIECE;
	uint64_t i;

	if ((c.error = engine_alloc(pieces, sizeof *c.error, e)) == NULL)
		return e->code;
	c.bad = c.total;
	run(&c, how->threads);
	for (i = 0; i < pieces; i++) {
		error->squares += c.error[i].squares;
		error->error_squares += c.error[i].error_squares;
	}
	free(c.error);
	return c.bad < c.total ? refuse(&c, e) : ENGINE_OK;
}

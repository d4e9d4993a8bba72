/* retrieval_count.c - counts of what retrieval has read
 *
 * Bytes are counted from the choice, not measured: the entries of an index that are scored, and the
 * keys and values of rows in the softmax, once for each KV head, whichever of its query heads have
 * chosen the row: what a step must fetch. Keys that are computed from factors are not counted,
 * although gather() copies them: the method does not need the copy. */
#include "retrieval/retrieval_internal.h"

uint64_t
retrieve_chosen_rows(const struct retrieval *t, uint32_t c)
{
	const uint32_t u = t->chosen.rows, part = t->seen[c] % u;

	return (uint64_t)t->chosen.n[c] * u - (part > 0 ? u - part : 0);
}

uint64_t
retrieve_rows_read(const struct retrieval *t, uint32_t g)
{
	return t->opt.per == PER_QUERY_HEAD ? t->each.united.n[g] : retrieve_chosen_rows(t, g);
}

/* Returns the rows that the query heads of KV head g attend to, each counted for itself. */
static uint64_t
head_rows(const struct retrieval *t, uint32_t g)
{
	const uint32_t of = t->lists / t->G;    /* choices of a KV head */
	uint64_t sum = 0;
	uint32_t c;

	for (c = g * of; c < (g + 1) * of; c++)
		sum += retrieve_chosen_rows(t, c) * (t->H / t->lists);
	return sum;
}

/* Returns the bytes of a value that are not those of its key. */
static uint64_t
value_bytes(const struct layer_rows *rows)
{
	return rows->v_in_k ? 0 : rows_v_bytes(rows);
}

void
retrieve_count_whole(struct retrieval *t, uint32_t l, const struct layer_rows *rows)
{
	struct retrieval_stats *s = &t->stats[(size_t)l * t->G];
	const uint64_t key = rows_k_bytes(rows), value = value_bytes(rows);
	uint32_t g;

	for (g = 0; g < t->G && !t->capturing; g++, s++) {
		s->steps++;
		s->rows += rows->len[g];
		s->of_rows += rows->len[g];
		s->head_rows += (uint64_t)rows->len[g] * (t->H / t->G);
		s->key_bytes += rows->len[g] * key;
		s->value_bytes += rows->len[g] * value;
		s->of_bytes += rows->len[g] * (key + value);
		s->recall += 1;
		s->mass += 1;
	}
}

void
retrieve_count(struct retrieval *t, uint32_t l, const struct layer_rows *rows,
    const struct layer_index *x)
{
	struct retrieval_stats *s = &t->stats[(size_t)l * t->G];
	const uint64_t key = rows_k_bytes(rows), value = value_bytes(rows);
	uint64_t n;
	uint32_t g;

	for (g = 0; g < t->G && !t->capturing; g++, s++) {
		s->steps++;
		n = retrieve_rows_read(t, g);
		s->rows += n;
		s->of_rows += rows->len[g];
		s->head_rows += head_rows(t, g);
		s->key_bytes += n * key;
		s->value_bytes += n * value;
		s->of_bytes += rows->len[g] * (key + value);
		t->method->count(s, t, g, rows, x);
	}
	t->specontext.bytes = 0;
}

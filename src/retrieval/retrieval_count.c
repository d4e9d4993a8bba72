/* retrieval_count.c - counts of what retrieval has read
 *
 * Bytes are counted from the choice, not measured: the entries of an index that are scored, and the
 * keys and values of rows in the softmax. Keys that are computed from factors are not counted,
 * although gather() copies them: the method does not need the copy. */
#include "retrieval/retrieval_internal.h"

uint64_t
retrieve_chosen_rows(const struct retrieval *t, uint32_t g)
{
	const uint32_t u = t->chosen.rows, part = t->seen[g] % u;

	return (uint64_t)t->chosen.n[g] * u - (part > 0 ? u - part : 0);
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
		n = retrieve_chosen_rows(t, g);
		s->rows += n;
		s->of_rows += rows->len[g];
		s->key_bytes += n * key;
		s->value_bytes += n * value;
		s->of_bytes += rows->len[g] * (key + value);
		t->method->count(s, t, g, rows, x);
	}
	t->specontext.bytes = 0;
}

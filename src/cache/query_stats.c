/* query_stats.c - sums over the queries of a text before rotary embedding */
#include <stdlib.h>

#include "cache/query_stats.h"

static size_t
bytes_of(const struct kv_model *id, uint32_t l)
{
	return kv_query_stats_numbers(id, l) * sizeof(double);
}

uint64_t
query_stats_bytes(const struct kv_model *id)
{
	uint64_t all = 0;
	uint32_t l;

	for (l = 0; l < id->layers; l++)
		all += bytes_of(id, l);
	return all;
}

struct query_stats *
query_stats_new(const struct model *m)
{
	const uint32_t L = m->id.layers;
	struct query_stats *s = calloc(1, sizeof *s);
	uint32_t l;

	if (s == NULL)
		return NULL;
	s->first = QUERY_STATS_SINK;
	s->n = calloc(L, sizeof *s->n);
	s->sums = calloc(L, sizeof *s->sums);
	s->whole = calloc(L, sizeof *s->whole);
	for (l = 0; s->n != NULL && s->sums != NULL && s->whole != NULL && l < L; l++) {
		s->sums[l] = m->ops->alloc(m->dev, bytes_of(&m->id, l));
		if (s->sums[l] == NULL)
			break;
		query_stats_clear(s, m, l);
	}
	if (l == L)
		return s;
	query_stats_free(s, m);
	return NULL;
}

void
query_stats_free(struct query_stats *s, const struct model *m)
{
	uint32_t l;

	if (s == NULL)
		return;
	for (l = 0; s->sums != NULL && l < m->id.layers; l++)
		m->ops->free(m->dev, s->sums[l]);
	free(s->sums);
	free(s->n);
	free(s->whole);
	free(s);
}

void
query_stats_clear(struct query_stats *s, const struct model *m, uint32_t l)
{
	m->ops->clear(m->dev, s->sums[l], bytes_of(&m->id, l));
	s->n[l] = 0;
	s->whole[l] = 1;
}

void
query_stats_add(struct query_stats *s, const struct model *m, uint32_t l, const float *q,
    const uint32_t *pos, uint32_t N)
{
	const struct kv_model *id = &m->id;
	uint32_t skip = 0;

	while (skip < N && pos[skip] < s->first)
		skip++;
	if (skip == N)
		return;
	m->ops->query_stats(m->dev, s->sums[l], q + (size_t)skip * id->query_heads * id->head_width,
	    N - skip, id->query_heads, id->head_width, kv_rope_first(id), kv_rope_dims(id, l));
	s->n[l] += N - skip;
}

void
query_stats_get(const struct query_stats *s, const struct model *m, uint32_t l, double *numbers)
{
	m->ops->get(m->dev, numbers, s->sums[l], bytes_of(&m->id, l));
}

void
query_stats_put(struct query_stats *s, const struct model *m, uint32_t l, const double *numbers)
{
	m->ops->put(m->dev, s->sums[l], numbers, bytes_of(&m->id, l));
}

int
query_stats_load(struct query_stats *s, const struct model *m, uint32_t l, struct kv_reader *r)
{
	struct kv_query_stats stored;
	const int rc = kv_load_query_stats(r, &stored);

	if (rc != KV_OK)
		return rc;
	query_stats_put(s, m, l, stored.sum);
	s->first = stored.first;
	s->n[l] = stored.n;
	s->whole[l] = 1;
	return KV_OK;
}

int
query_stats_save(const struct query_stats *s, const struct model *m, uint32_t l,
    struct kv_writer *w)
{
	double *numbers = malloc(bytes_of(&m->id, l));
	struct kv_query_stats out = { s->first, s->n[l], numbers, NULL, NULL };
	int rc;

	if (numbers == NULL)
		return KV_ENOMEM;
	query_stats_get(s, m, l, numbers);
	rc = kv_write_query_stats(w, l, &out);
	free(numbers);
	return rc;
}

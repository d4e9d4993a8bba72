/* codec_querystats.c - query statistics of a layer: qSTa (4.22) */

#include "codec.h"
#include "layout.h"
#include "reader.h"
#include "writer.h"

static struct query_stats_parts
parts_of(const struct kv_model *m, uint32_t layer)
{
	return query_stats_parts(m->query_heads, m->head_width, kv_rope_dims(m, layer));
}

uint64_t
kv_query_stats_numbers(const struct kv_model *m, uint32_t layer)
{
	const struct query_stats_parts n = parts_of(m, layer);

	return n.sum + n.modulus + n.product;
}

void
kv_query_stats_arrays(struct kv_query_stats *s, const struct kv_model *m, uint32_t layer,
    const double *numbers)
{
	const struct query_stats_parts n = parts_of(m, layer);

	s->sum = numbers;
	s->modulus = numbers + n.sum;
	s->product = numbers + n.sum + n.modulus;
}

int
kv_load_query_stats(struct kv_reader *r, struct kv_query_stats *s)
{
	const uint8_t *p;
	const void *data;
	int code = kv_load_kind(r, KV_QSTA, "kv_load_query_stats", &data);

	*s = (struct kv_query_stats){ 0 };
	if (code != KV_OK)
		return code;
	p = data;
	s->first = get32(p + QUERY_STATS_FIRST);
	s->n = get32(p + QUERY_STATS_COUNT);
	kv_query_stats_arrays(s, &r->head.model, r->h.layer, (const void *)(p + QUERY_STATS_SUM));
	return KV_OK;
}

int
kv_write_query_stats(struct kv_writer *w, uint32_t layer, const struct kv_query_stats *s)
{
	const struct kv_model *m = &kv_writer_head(w)->model;
	uint8_t front[QUERY_STATS_SUM] = { 0 };
	const struct kv_span spans[] = { { front, sizeof front },
	    { s->sum, (size_t)kv_query_stats_numbers(m, layer) * sizeof *s->sum } };

	put32(front + QUERY_STATS_FIRST, s->first);
	put32(front + QUERY_STATS_COUNT, s->n);
	return kv_write(w, kv_kind_type(KV_QSTA), layer, 4, spans, 2);
}

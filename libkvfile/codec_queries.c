/* codec_queries.c - the observation queries of a layer, oBSq (4.5), and the sinks of their softmax,
 * SINk (4.27) */

#include "codec.h"
#include "layout.h"
#include "reader.h"
#include "writer.h"

int
kv_load_queries(struct kv_reader *r, struct kv_queries *q)
{
	const struct kv_head *head = &r->head;
	const size_t row = head->model.head_width * kv_dtype_size(head->dtype);
	const uint8_t *p;
	const void *data;
	int code = kv_load_kind(r, KV_OBSQ, "kv_load_queries", &data);

	*q = (struct kv_queries){ 0 };
	if (code != KV_OK)
		return code;
	p = data;
	q->n = get32(p + QUERIES_COUNT);
	q->pos = (const void *)(p + QUERIES_POS);
	q->q = p + queries_data(q->n);
	q->own = (const char *)q->q + row * head->model.query_heads * q->n;
	while (q->n_own < q->n && get32(p + QUERIES_POS + 4 * (size_t)(q->n - 1 - q->n_own)) >=
	    head->next_position)
		q->n_own++;
	return KV_OK;
}

int
kv_write_queries(struct kv_writer *w, uint32_t layer, const struct kv_queries *q)
{
	const struct kv_head *head = kv_writer_head(w);
	const size_t element = kv_dtype_size(head->dtype), row = head->model.head_width * element;
	const uint8_t fill[64] = { 0 };
	uint8_t front[QUERIES_POS];
	const struct kv_span spans[] = { { front, sizeof front },
	    { q->pos, (size_t)q->n * sizeof *q->pos },
	    { fill, (size_t)(queries_data(q->n) - queries_pos_end(q->n)) },
	    { q->q, row * head->model.query_heads * q->n },
	    { q->own, row * head->model.kv_heads * q->n_own } };

	put32(front + QUERIES_SOURCE, q->n_own > 0 ? OBSERVED_RUN : OBSERVED_STORED);
	put32(front + QUERIES_COUNT, q->n);
	return kv_write(w, kv_kind_type(KV_OBSQ), layer, (unsigned)element, spans, 5);
}

int
kv_load_sinks(struct kv_reader *r, const float **sinks)
{
	const void *data;
	int code = kv_load_kind(r, KV_SINK, "kv_load_sinks", &data);

	*sinks = code == KV_OK ? data : NULL;
	return code;
}

int
kv_write_sinks(struct kv_writer *w, uint32_t layer, const float *sinks)
{
	const struct kv_span span = { sinks, kv_writer_head(w)->model.query_heads * sizeof *sinks };

	return kv_write(w, kv_kind_type(KV_SINK), layer, 4, &span, 1);
}

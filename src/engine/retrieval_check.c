/* retrieval_check.c - checks that a model and its layers have what retrieval needs */
#include "engine/retrieval_check.h"

int
low_rank_fit(const struct kv_model *m, struct engine_error *e)
{
	if (m->rope_skip == 0 && m->rope_width == 0)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EUNSUPPORTED, "keys of low rank (ShadowKV) are not supported "
	    "for this model: rotary embedding rotates %s", m->rope_width != 0 ?
	    "only some of the channels" : "only some of the layers");
}

int
retrieval_fit(const struct kv_model *m, const char *name, uint32_t l, struct engine_error *e)
{
	uint32_t whole = l;

	while (whole < m->layers && kv_layer_window(m, whole) != 0)
		whole++;
	if (whole < m->layers)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: all layers from %u on have a sliding "
	    "window, and only layers that see all rows retrieve", name, l);
}

int
retrieval_resolve(struct retrieval_options *o, const struct kv_model *m,
    const struct retrieval_head *head, struct engine_error *e)
{
	if (o->per == PER_MODEL)
		o->per = o->method == RETRIEVE_SPECONTEXT && m->latent_rank != 0 ?
		    PER_QUERY_HEAD : PER_KV_HEAD;
	if (o->per != PER_QUERY_HEAD)
		return ENGINE_OK;
	if (m->latent_rank == 0)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "per=query-head is for models with "
		    "latent attention: here the query heads of a KV head read the same rows");
	if (head != NULL && head->H % m->query_heads != 0)
		return engine_fail(e, ENGINE_EMODEL, "a retrieval head of %u query heads for the "
		    "%u query heads of %s: want a multiple, or per=kv-head", head->H,
		    m->query_heads, head->model->dir);
	return ENGINE_OK;
}

uint64_t
retrieval_demand(const struct retrieval_options *o, const struct model *m,
    const struct retrieval_head *head, uint64_t rows, uint64_t text)
{
	struct retrieval_options resolved;
	struct engine_error e;

	if (o == NULL)
		return 0;
	resolved = *o;
	if (retrieval_resolve(&resolved, &m->id, head, &e) != ENGINE_OK)
		return 0;               /* it is refused when a sequence is opened */
	return retrieval_list_bytes(&resolved, m->id.query_heads, m->id.kv_heads,
	    head != NULL ? head->H : 0, rows, text);
}

int
head_check(struct sequence *s, const char *name, const struct notice_hook *told,
    struct engine_error *e)
{
	const struct retrieval_head *h = s->head->head;
	const struct cache *c = s->cache;

	if (c->n_tokens != c->next_position)
		return engine_fail(e, ENGINE_EUNSUPPORTED,
		    "%s: it has %zu tokens, and the next one is at position %u: a retrieval head "
		    "needs rows at their positions in the text, not renumbered or selected ones",
		    name, c->n_tokens, c->next_position);
	if (h->has_features && s->head->keys.len[0] != c->n_tokens)
		return engine_fail(e, ENGINE_ERUN, "%s has no keys of %s retrieval head (rHDk), "
		    "and they are made while the prompt runs: make it with kv-prefill "
		    "--retrieval-head", name, s->head_other ? "this" : "a");
	if (s->head->id != h->id)
		notice(told, "%s: its fingerprint of the head is of samples only, as in "
		    "older versions", name);
	if (sequence_reserve_step(s, 1) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for the keys of a retrieval head");
	sequence_head_end(s);
	return ENGINE_OK;
}

int
low_rank_rows_fit(enum kv_row_type keys, const char *name, uint32_t l, struct engine_error *e)
{
	if (!kv_row_type_quantised(keys))
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: layer %u: its keys are %s, and ShadowKV "
	    "keeps keys as factors of keys that are not quantised: quantise values only",
	    name, l, kv_row_type_name(keys));
}

int
retrieval_check(const struct retrieval_options *o, const char *name,
    const struct kv_model *m, uint32_t l, const struct layer_rows *rows,
    const struct layer_index *x, struct engine_error *e)
{
	const enum kv_kind kind = retrieve_needs(o->method);

	if (l == o->dense && retrieval_fit(m, name, l, e) != ENGINE_OK)
		return e->code;
	if (kind == KV_LOWR && (low_rank_fit(m, e) != ENGINE_OK ||
	    low_rank_rows_fit(rows_k_type(rows), name, l, e) != ENGINE_OK))
		return e->code;
	if (kind == KV_UNKNOWN || l < o->dense || kv_layer_window(m, l) != 0 || index_has(x, kind))
		return ENGINE_OK;
	return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no %s (%s), "
	    "which --retrieve %s needs: add them with %s", name, l, index_words(kind),
	    kv_kind_type(kind), retrieve_name(o->method), index_command(kind));
}

/* info_json.c - a snapshot as a JSON object: what kv-info --json prints
 *
 * The same facts as the text; the keys are documented in kv-info(1) and stay. */
#include <stdio.h>
#include <string.h>

#include "cli/info_index.h"
#include "cli/info.h"
#include "cli/json.h"

static void
put_longrope(json_t *o, const struct kv_model *m)
{
	json_t *list = json_array();
	uint32_t i;

	for (i = 0; i < m->rope_n_factors; i++)
		json_array_append_new(list, json_real(m->rope_factors[i]));
	put_real(o, "attention_factor", m->rope_attention_factor);
	put_value(o, "factors", list);
	put_count(o, "original_max_position", m->rope_original_max_position);
}

static json_t *
rope_json(const struct kv_model *m)
{
	json_t *o = json_object();

	put_text(o, "type", kv_rope_name(m->rope_type));
	put_real(o, "theta", m->rope_theta);
	if (m->rope_type == KV_ROPE_LLAMA3) {
		put_real(o, "factor", m->rope_factor);
		put_real(o, "low_freq_factor", m->rope_low_freq_factor);
		put_real(o, "high_freq_factor", m->rope_high_freq_factor);
		put_count(o, "original_max_position", m->rope_original_max_position);
	}
	if (m->rope_type == KV_ROPE_LINEAR || m->rope_type == KV_ROPE_YARN)
		put_real(o, "factor", m->rope_factor);
	if (m->rope_type == KV_ROPE_LONGROPE)
		put_longrope(o, m);
	if (m->rope_type == KV_ROPE_YARN) {
		put_count(o, "original_max_position", m->rope_original_max_position);
		put_real(o, "beta_fast", m->rope_beta_fast);
		put_real(o, "beta_slow", m->rope_beta_slow);
		put_real(o, "attention_factor", m->rope_attention_factor);
		put_value(o, "truncate", json_boolean(m->rope_truncate));
	}
	if (m->rope_query_beta != 0)
		put_real(o, "query_beta", m->rope_query_beta);
	if (m->rope_width != 0)
		put_count(o, "width", m->rope_width);
	if (m->rope_skip != 0)
		put_count(o, "skip", m->rope_skip);
	if (m->rope_window_theta != 0)
		put_real(o, "window_theta", m->rope_window_theta);
	return o;
}

static void
put_multiplier(json_t *o, const char *key, double v)
{
	if (v != 0)
		put_real(o, key, v);
}

/* Writes the window, if some layers have one. */
static void
put_window(json_t *o, const struct kv_model *m)
{
	json_t *whole = json_array();
	uint32_t l;

	for (l = 0; l < m->layers; l++)
		if (kv_layer_window(m, l) == 0)
			json_array_append_new(whole, json_integer(l));
	put_count(o, "window", m->window);
	put_value(o, "whole_layers", whole);
}

static json_t *
model_json(const struct kv_model *m)
{
	json_t *o = json_object();

	put_text(o, "architecture", m->architecture);
	put_count(o, "layers", m->layers);
	put_count(o, "query_heads", m->query_heads);
	put_count(o, "kv_heads", m->kv_heads);
	put_count(o, "head_width", m->head_width);
	if (m->latent_rank != 0) {
		put_count(o, "latent_rank", m->latent_rank);
		put_count(o, "latent_nope", m->latent_nope);
		put_count(o, "latent_value", m->latent_value);
	}
	put_count(o, "hidden", m->hidden);
	put_count(o, "ffn", m->ffn);
	if (m->experts != 0) {
		put_count(o, "experts", m->experts);
		put_count(o, "experts_chosen", m->experts_chosen);
	}
	put_count(o, "vocabulary", m->vocabulary);
	put_real(o, "norm_eps", m->norm_eps);
	put_value(o, "attention_bias", json_boolean(m->attention_bias));
	put_value(o, "tied_embeddings", json_boolean(m->tied_embeddings));
	if (m->mlp_bias)
		put_value(o, "mlp_bias", json_true());
	put_multiplier(o, "attention_multiplier", m->attention_multiplier);
	put_multiplier(o, "embedding_multiplier", m->embedding_multiplier);
	put_multiplier(o, "residual_multiplier", m->residual_multiplier);
	put_multiplier(o, "logits_scaling", m->logits_scaling);
	if (m->attention_sinks)
		put_value(o, "attention_sinks", json_true());
	put_multiplier(o, "attention_softcap", m->attention_softcap);
	put_multiplier(o, "logits_softcap", m->logits_softcap);
	if (m->window != 0)
		put_window(o, m);
	put_value(o, "rope", rope_json(m));
	put_text(o, "weights_dtype", kv_dtype_name(m->weights_dtype));
	put_text(o, "weights", m->weights);
	if (m->weights_rule != 0)
		put_value(o, "weights_rule", json_integer(m->weights_rule));
	put_text(o, "tokenizer", m->tokenizer);
	return o;
}

static json_t *
query_stats_json(const struct layer_info *l)
{
	json_t *o;

	if (!l->has_query_stats)
		return json_null();
	o = json_object();
	put_count(o, "first", l->stats_first);
	put_count(o, "queries", l->stats_queries);
	return o;
}

static json_t *
layers_json(const struct layer_info *l, const struct index_info *index, uint32_t layers)
{
	json_t *list = json_array(), *o;
	uint32_t i;

	for (i = 0; i < layers; i++) {
		o = json_object();
		put_count(o, "rows", l[i].rows);
		put_count(o, "rows_min", l[i].least);
		put_count(o, "rows_max", l[i].most);
		put_count(o, "queries", l[i].queries);
		put_count(o, "own_keys", l[i].own_keys);
		put_value(o, "query_stats", query_stats_json(&l[i]));
		put_value(o, "mass", json_boolean(l[i].mass));
		put_value(o, "probe_mass", json_boolean(l[i].probe_mass));
		put_value(o, "value_norms", json_boolean(l[i].value_norms));
		put_value(o, "gate_scores", json_boolean(l[i].gate_scores));
		put_value(o, "noncausal", json_boolean(l[i].noncausal));
		put_value(o, "indexes", index_json(&index[i]));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *
log_json(const struct kv_log *log)
{
	json_t *o;

	if (kv_log_count(log, 0) == 0)
		return json_null();
	o = json_object();
	put_count(o, "prefill", kv_log_count(log, KV_EVENT_PREFILL));
	put_count(o, "decode", kv_log_count(log, KV_EVENT_DECODE));
	put_count(o, "evict", kv_log_count(log, KV_EVENT_EVICT));
	put_count(o, "run", kv_log_count(log, KV_EVENT_RUN));
	return o;
}

static json_t *
provenance_json(const char *line)
{
	json_t *list = json_array();
	const char *end;

	for (; (end = strchr(line, '\n')) != NULL; line = end + 1)
		json_array_append_new(list, json_loadb(line, (size_t)(end - line), 0, NULL));
	return list;
}

static json_t *
sections_json(const struct snapshot_info *info)
{
	json_t *list = json_array(), *o;
	const struct kv_section *s;
	size_t i;

	for (i = 0; i < info->n; i++) {
		s = &info->section[i];
		o = json_object();
		put_text(o, "type", s->type);
		put_value(o, "layer",
		    s->layer == KV_NO_LAYER ? json_null() : json_integer(s->layer));
		put_count(o, "offset", s->offset);
		put_count(o, "raw_bytes", s->raw_size);
		put_count(o, "stored_bytes", s->stored_size);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *
head_keys_json(const struct kv_head_keys *k)
{
	json_t *o;

	if (k->n == 0)
		return json_null();
	o = json_object();
	put_text(o, "head", k->id);
	put_count(o, "tokens", k->n);
	put_count(o, "kv_heads", k->heads);
	put_count(o, "width", k->width);
	put_count(o, "features", k->n_feature);
	return o;
}

/* Returns the type of the rows of each layer. */
static json_t *
types_json(const struct kv_head *head, enum kv_kind kind)
{
	json_t *types = json_array();
	uint32_t l;

	for (l = 0; l < head->model.layers; l++)
		json_array_append_new(types,
		    json_string(kv_row_type_name(kv_head_row_type(head, kind, l))));
	return types;
}

/* documents: where all of them begin, [0] for one text */
static void
put_documents(json_t *o, const struct kv_documents *d)
{
	json_t *starts = json_pack("[i]", 0);
	uint32_t i;

	for (i = 0; i < d->n; i++)
		json_array_append_new(starts, json_integer(d->start[i]));
	put_value(o, "documents", starts);
}

void
print_info_json(const struct snapshot_info *info, const struct kv_reader *r)
{
	const struct kv_head *head = kv_reader_head(r);
	json_t *o = json_object();

	put_text(o, "snapshot", kv_reader_name(r));
	put_value(o, "model", model_json(&head->model));
	put_text(o, "dtype", kv_dtype_name(head->dtype));
	if (kv_head_is_quantised(head)) {
		put_value(o, "key_types", types_json(head, KV_KEYS));
		put_value(o, "value_types", types_json(head, KV_VALS));
	}
	if (head->residual != 0)
		put_count(o, "residual", head->residual);
	put_count(o, "tokens", info->tokens);
	put_count(o, "next_position", head->next_position);
	put_documents(o, &head->documents);
	put_count(o, "rows", info->rows);
	put_real(o, "share_kept", snapshot_share_kept(info, &head->model));
	put_real(o, "share_bytes", snapshot_share_bytes(info, head));
	put_value(o, "layers", layers_json(info->layer, info->index, head->model.layers));
	put_count(o, "kv_bytes", info->tensor_bytes);
	put_count(o, "kv_stored_bytes", info->tensor_stored);
	put_count(o, "bytes", info->digests.size);
	if (info->scores[0] != '\0')
		put_text(o, "scores", info->scores);
	else
		put_value(o, "scores", json_null());
	put_value(o, "logits", json_boolean(info->logits));
	put_value(o, "head_keys", head_keys_json(&info->head_keys));
	put_value(o, "event_log", log_json(info->log));
	put_value(o, "provenance", provenance_json(kv_reader_provenance(r)));
	if (info->section != NULL) {
		put_value(o, "sections", sections_json(info));
		put_text(o, "stream_digest", info->digests.stream);
		put_text(o, "logical_digest", info->digests.logical);
	}
	print_json(o);
}

/* config.c - config.json and generation_config.json of a Hugging Face folder
 *
 * Everything in config.json that could change the arithmetic is either understood or refused by
 * name. That holds for keys that nobody has thought of yet, too: config_keys.c. */

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/config_internal.h"
#include "model/folder.h"

/* ---- special tokens ---- */

static int
read_token(struct config *c, const char *key, const json_t *v, uint32_t vocabulary, uint32_t *out)
{
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v) || n < 0 || n >= vocabulary)
		return BAD(c, "\"%s\" is not a token id below %u", key, vocabulary);
	*out = (uint32_t)n;
	return MODEL_OK;
}

/* bos_token_id and eos_token_id where they are given: an integer or, for eos, a list of them. */
static int
read_tokens(struct config *c, struct model *m)
{
	const json_t *bos = config_get(c->json, "bos_token_id");
	const json_t *eos = config_get(c->json, "eos_token_id"), *v;
	uint32_t V = m->id.vocabulary;
	size_t i, n;
	int rc;

	if (bos != NULL && (rc = read_token(c, "bos_token_id", bos, V, &m->bos)) != MODEL_OK)
		return rc;
	if (eos == NULL)
		return MODEL_OK;
	n = json_is_array(eos) ? json_array_size(eos) : 1;
	if (n > sizeof m->eos / sizeof m->eos[0])
		return UNSUPPORTED(c, "\"eos_token_id\": more than 8 tokens: %zu", n);
	for (i = 0; i < n; i++) {
		v = json_is_array(eos) ? json_array_get(eos, i) : eos;
		if ((rc = read_token(c, "eos_token_id", v, V, &m->eos[i])) != MODEL_OK)
			return rc;
	}
	m->n_eos = (uint32_t)n;
	return MODEL_OK;
}

/* ---- the files ---- */

/* The ranges are those of formats/kv-snapshot.md 4.1, the defaults those of LlamaConfig, or
 * of the family. */
static int
read_sizes(struct config *c, struct model *m)
{
	struct kv_model *id = &m->id;
	const struct { const char *key; uint32_t max, *out; } size[] = {
		{ "num_hidden_layers", 4096, &id->layers },
		{ "hidden_size", 1 << 24, &id->hidden },
		{ "intermediate_size", 1 << 24, &id->ffn },
		{ "vocab_size", 1 << 24, &id->vocabulary },
		{ "num_attention_heads", 4096, &id->query_heads },
	};
	size_t i;
	int rc;

	for (i = 0; i < sizeof size / sizeof size[0]; i++)
		if ((rc = config_count(c, c->json, size[i].key, size[i].max, REQUIRED,
		    size[i].out)) != MODEL_OK)
			return rc;
	if ((rc = config_count(c, c->json, "num_key_value_heads", 4096,
	    c->family->flags & FAMILY_NEEDS_KV_HEADS ? REQUIRED : id->query_heads,
	    &id->kv_heads)) != MODEL_OK)
		return rc;
	if (id->query_heads % id->kv_heads != 0)
		return BAD(c, "num_attention_heads %u is not a multiple of num_key_value_heads %u",
		    id->query_heads, id->kv_heads);
	return config_count(c, c->json, "max_position_embeddings", UINT32_MAX, 2048,
	    &m->max_position);
}

static int
read_head_width(struct config *c, struct kv_model *id)
{
	uint32_t fallback = id->hidden / id->query_heads;
	int rc;

	if (id->hidden % id->query_heads != 0 || fallback > 1024)
		fallback = REQUIRED;
	if (c->family->head_width != 0)
		fallback = c->family->head_width;
	if ((rc = config_count(c, c->json, "head_dim", 1024, fallback, &id->head_width)) != MODEL_OK)
		return rc;
	if (id->head_width % 2 != 0)
		return BAD(c, "head width %u is odd: rotary embedding turns pairs", id->head_width);
	return MODEL_OK;
}

void
model_end_at(struct model *m, uint32_t position, const char *why)
{
	if (position < m->position_end) {
		m->position_end = position;
		m->position_why = why;
	}
}

/* Layers whose attention is limited to a window are computed as far as the window has no effect:
 * a text that is no longer than it. */
static int
read_window(struct config *c, struct model *m)
{
	const json_t *types = config_get(c->json, "layer_types"), *v;
	uint32_t window = 0, first = 0, i;
	int on = !(c->family->flags & FAMILY_WINDOW_SWITCH), sliding = types == NULL, rc;
	char text[64];

	if ((rc = config_flag(c, c->json, "use_sliding_window", &on)) != MODEL_OK)
		return rc;
	for (i = 0; i < json_array_size(types); i++) {
		v = json_array_get(types, i);
		if (config_has(v, "\"sliding_attention\""))
			sliding = 1;
		else if (!config_has(v, "\"full_attention\""))
			return UNSUPPORTED(c, "layer_types: %s is not supported",
			    config_show(v, text, sizeof text));
	}
	if (!on || !sliding)
		return MODEL_OK;
	if (json_object_get(c->json, "sliding_window") == NULL)
		window = c->family->window;
	else if (config_get(c->json, "sliding_window") != NULL && (rc = config_count(c, c->json,
	    "sliding_window", UINT32_MAX - 1, REQUIRED, &window)) != MODEL_OK)
		return rc;
	v = config_get(c->json, "max_window_layers");
	if ((c->family->flags & FAMILY_WINDOW_SWITCH) && types == NULL && json_is_integer(v) &&
	    json_integer_value(v) >= 0)
		first = (uint32_t)json_integer_value(v);
	if (window != 0 && first < m->id.layers)
		model_end_at(m, window, "sliding-window attention is not supported beyond the "
		    "first window");
	return MODEL_OK;
}

/* A multiplier of the family; *id stays 0 where it is 1. */
static int
read_multiplier(struct config *c, const char *key, double *id, float *scale)
{
	double v = 1;
	int rc = config_real(c, c->json, key, 1e-6, 1e6, &v);

	*id = v == 1 ? 0 : v;
	*scale = (float)v;
	return rc;
}

/* Attention takes q.k/sqrt(E): another factor is multiplied into the queries. */
static int
read_multipliers(struct config *c, struct model *m)
{
	struct kv_model *id = &m->id;
	double attention = 1;
	int rc;

	m->embedding_scale = m->query_scale = m->residual_scale = m->logits_scale = 1;
	if (!(c->family->flags & FAMILY_MULTIPLIERS))
		return MODEL_OK;
	if ((rc = read_multiplier(c, "embedding_multiplier", &id->embedding_multiplier,
	    &m->embedding_scale)) != MODEL_OK ||
	    (rc = read_multiplier(c, "residual_multiplier", &id->residual_multiplier,
	    &m->residual_scale)) != MODEL_OK ||
	    (rc = read_multiplier(c, "logits_scaling", &id->logits_scaling, &m->logits_scale)) !=
	    MODEL_OK || (rc = config_real(c, c->json, "attention_multiplier", 1e-6, 1e6,
	    &attention)) != MODEL_OK)
		return rc;
	m->logits_scale = 1 / m->logits_scale;
	m->query_scale = (float)(attention * sqrt(id->head_width));
	if (m->query_scale != 1)
		id->attention_multiplier = attention;
	return MODEL_OK;
}

static int
read_biases(struct config *c, struct kv_model *id)
{
	const unsigned flags = c->family->flags;
	int rc;

	if ((rc = config_flag(c, c->json, "attention_bias", &id->attention_bias)) != MODEL_OK ||
	    (rc = config_flag(c, c->json, "mlp_bias", &id->mlp_bias)) != MODEL_OK)
		return rc;
	if (flags & FAMILY_QKV_BIAS)
		id->attention_bias = 1;
	return MODEL_OK;
}

static int
read_config(struct config *c, struct model *m)
{
	struct kv_model *id = &m->id;
	int rc;

	if ((rc = config_kind(c)) != MODEL_OK || (rc = config_check_keys(c)) != MODEL_OK)
		return rc;
	m->family = c->family;
	id->norm_eps = c->family->eps;
	id->tied_embeddings = c->family->tied;
	if ((rc = read_sizes(c, m)) != MODEL_OK || (rc = read_head_width(c, id)) != MODEL_OK ||
	    (rc = config_real(c, c->json, "rms_norm_eps", FLT_MIN, 1, &id->norm_eps)) != MODEL_OK ||
	    (rc = read_biases(c, id)) != MODEL_OK || (rc = read_multipliers(c, m)) != MODEL_OK ||
	    (rc = config_flag(c, c->json, "tie_word_embeddings", &id->tied_embeddings)) !=
	    MODEL_OK || (rc = config_rope(c, m)) != MODEL_OK || (rc = read_window(c, m)) != MODEL_OK)
		return rc;
	strcpy(id->architecture, c->family->type);
	return read_tokens(c, m);
}

static int
read_file(const char *dir, const char *name, int (*reader)(struct config *, struct model *),
    const struct config_keys *pass, struct model *m, char *err, size_t errlen)
{
	char *path = model_file_path(dir, name);
	struct config c = { .path = path, .err = err, .errlen = errlen };
	int rc;

	if (path == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	if ((rc = model_file_json(path, &c.json, err, errlen)) == MODEL_OK) {
		config_pass_over(&c, pass);
		rc = reader(&c, m);
		json_decref(c.json);
	}
	free(path);
	return rc;
}

static int
is_there(const char *dir, const char *name)
{
	char *path = model_file_path(dir, name);
	int there = path == NULL || access(path, F_OK) == 0 || errno != ENOENT;

	free(path);
	return there;
}

int
model_config(const char *dir, const struct config_keys *pass, struct model *m, char *err,
    size_t errlen)
{
	int rc;

	memset(&m->id, 0, sizeof m->id);
	m->bos = UINT32_MAX;
	m->n_eos = 0;
	m->position_end = UINT32_MAX;
	m->position_why = NULL;
	m->rope_switch = 0;
	memset(m->long_factors, 0, sizeof m->long_factors);
	if ((rc = model_folder_without_config(dir, err, errlen)) != MODEL_OK)
		return rc;
	if ((rc = read_file(dir, "config.json", read_config, pass, m, err, errlen)) != MODEL_OK ||
	    !is_there(dir, "generation_config.json"))
		return rc;
	return read_file(dir, "generation_config.json", read_tokens, pass, m, err, errlen);
}

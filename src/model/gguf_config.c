/* gguf_config.c - the configuration of a model in a GGUF file, as its config.json would have it
 *
 * llama.cpp looks at keys of the architecture only ("llama.block_count"). Each of them is
 * understood here, harmless, or refused by name, as config_keys.c does with those of config.json.
 * Whether there are biases and a head of its own no key says: the tensors do. Mixtures of experts
 * are read by gguf_experts.c, latent attention by gguf_latent.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/family.h"
#include "model/gguf_config.h"
#include "model/gguf_config_internal.h"

/* What we do with a key. */
enum rule {
	READ,           /* understood, by a function below or in another file */
	READ_IF,        /* in architectures with this flag, in others refused */
	WHOLE,          /* becomes a key of config.json, a whole number */
	REAL,           /* the same, a real number */
	IGNORE,         /* does not change what one forward pass computes */
	EXPERTS,        /* WHOLE in an architecture with experts, in others ZERO */
	ZERO,           /* refused unless it is 0 or false */
	TRUE            /* refused unless it is true */
};

/* flag: in architectures with this flag, 0: in all; the first row that fits counts */
static const struct key {
	const char *name;
	enum rule rule;
	const char *config;
	unsigned flag;
} keys[] = {
	{ "block_count", WHOLE, "num_hidden_layers", 0 },
	{ "embedding_length", WHOLE, "hidden_size", 0 },
	{ "feed_forward_length", WHOLE, "intermediate_size", 0 },
	{ "attention.head_count", WHOLE, "num_attention_heads", 0 },
	{ "attention.head_count_kv", WHOLE, "num_key_value_heads", 0 },
	{ "context_length", WHOLE, "max_position_embeddings", 0 },
	{ "vocab_size", READ, NULL, 0 },
	{ "attention.layer_norm_epsilon", REAL, "rms_norm_eps", GGUF_LAYER_NORM },
	{ "attention.layer_norm_epsilon", IGNORE, NULL, 0 },
	{ "attention.layer_norm_rms_epsilon", IGNORE, NULL, GGUF_LAYER_NORM },
	{ "attention.layer_norm_rms_epsilon", REAL, "rms_norm_eps", 0 },
	{ "attention.key_length", READ, NULL, 0 },
	{ "attention.value_length", READ, NULL, 0 },
	{ "attention.key_length_mla", READ_IF, NULL, GGUF_LATENT },
	{ "attention.value_length_mla", READ_IF, NULL, GGUF_LATENT },
	{ "attention.kv_lora_rank", READ_IF, NULL, GGUF_LATENT },
	{ "attention.q_lora_rank", READ_IF, NULL, GGUF_LATENT },
	{ "attention.sliding_window", READ_IF, NULL, GGUF_WINDOW },
	{ "attention.sliding_window_pattern", READ_IF, NULL, GGUF_WINDOW },
	{ "attn_logit_softcapping", REAL, "attn_logit_softcapping", GGUF_SOFTCAPS },
	{ "final_logit_softcapping", REAL, "final_logit_softcapping", GGUF_SOFTCAPS },
	{ "embedding_scale", REAL, "embedding_multiplier", GGUF_SCALES },
	{ "residual_scale", REAL, "residual_multiplier", GGUF_SCALES },
	{ "attention.scale", REAL, "attention_multiplier", GGUF_SCALES },
	{ "logit_scale", REAL, "logits_scaling", GGUF_SCALES },
	{ "logit_scale", REAL, "logit_scale", GGUF_LOGIT_SCALE },
	{ "attention.temperature_scale", READ_IF, NULL, GGUF_TEMPERATURE },
	{ "rope.dimension_count", READ, NULL, 0 },
	{ "rope.freq_base", READ, NULL, 0 },
	{ "rope.freq_base_swa", READ_IF, NULL, GGUF_QUERY_SCALAR },
	{ "rope.scale_linear", READ, NULL, 0 },
	{ "rope.scaling.type", READ, NULL, 0 },
	{ "rope.scaling.factor", READ, NULL, 0 },
	{ "rope.scaling.attn_factor", READ, NULL, 0 },
	{ "rope.scaling.original_context_length", READ, NULL, 0 },
	{ "rope.scaling.yarn_ext_factor", READ, NULL, 0 },
	{ "rope.scaling.yarn_attn_factor", READ, NULL, 0 },
	{ "rope.scaling.yarn_beta_fast", READ, NULL, 0 },
	{ "rope.scaling.yarn_beta_slow", READ, NULL, 0 },
	{ "rope.scaling.yarn_log_multiplier", READ_IF, NULL, GGUF_TEMPERATURE | GGUF_LATENT },
	{ "rope.scaling.finetuned", READ, NULL, 0 },
	{ "attention.causal", TRUE, NULL, 0 },
	{ "attention.clamp_kqv", ZERO, NULL, 0 },
	{ "attention.max_alibi_bias", ZERO, NULL, 0 },
	{ "expert_count", EXPERTS, "num_experts", 0 },
	{ "expert_used_count", EXPERTS, "num_experts_per_tok", 0 },
	{ "expert_feed_forward_length", READ_IF, NULL, GGUF_EXPERTS },
	{ "expert_shared_feed_forward_length", READ_IF, NULL, GGUF_EXPERTS },
	{ "expert_shared_count", READ, NULL, GGUF_DENSE_FIRST },
	{ "expert_shared_count", ZERO, NULL, 0 },
	{ "leading_dense_block_count", READ, NULL, GGUF_DENSE_FIRST },
	{ "leading_dense_block_count", ZERO, NULL, 0 },
	{ "interleave_moe_layer_step", READ_IF, NULL, GGUF_EVERY },
	{ "expert_gating_func", READ_IF, NULL, GGUF_ROUTED },
	{ "expert_weights_norm", READ_IF, NULL, GGUF_ROUTED },
	{ "expert_weights_scale", READ_IF, NULL, GGUF_ROUTED },
	{ "expert_group_count", READ_IF, NULL, GGUF_ROUTED },
	{ "expert_group_used_count", READ_IF, NULL, GGUF_ROUTED },
	{ "nextn_predict_layers", READ, NULL, GGUF_ROUTED },
	{ "nextn_predict_layers", ZERO, NULL, 0 },
	{ "use_parallel_residual", ZERO, NULL, 0 },
	{ "pooling_type", IGNORE, NULL, 0 },            /* of embeddings of texts */
	{ "tensor_data_layout", IGNORE, NULL, 0 },      /* where the file comes from */
};

const char *
gguf_key(struct gguf_reading *c, const char *name)
{
	snprintf(c->key, sizeof c->key, "%s.%s", c->arch->name, name);
	return c->key;
}

int
gguf_passed_over(struct gguf_reading *c, const char *name)
{
	return name_list_matches(&c->overrides->keys, gguf_key(c, name));
}

int
gguf_arch_whole(struct gguf_reading *c, const char *name, uint64_t *out)
{
	if (gguf_passed_over(c, name))
		return MODEL_OK;
	return gguf_whole(c->g, gguf_key(c, name), out, c->err, c->errlen);
}

int
gguf_arch_real(struct gguf_reading *c, const char *name, double *out)
{
	if (gguf_passed_over(c, name))
		return MODEL_OK;
	return gguf_real(c->g, gguf_key(c, name), out, c->err, c->errlen);
}

int
gguf_set(struct gguf_reading *c, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value) == 0)
		return MODEL_OK;
	return FAIL(c, MODEL_ENOMEM, "out of memory");
}

int
gguf_set_whole(struct gguf_reading *c, const char *key, uint64_t v)
{
	return gguf_set(c, c->json, key, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

/* ---- keys ---- */

static int
refuse(struct gguf_reading *c, const struct gguf_value *v, const char *why)
{
	return UNSUPPORTED(c, "key %s%s (--allow-config %s ignores it)", v->key, why, v->key);
}

/* The value as a number, neither 0 nor 1 where it is none */
static double
number_of(const struct gguf *g, const struct gguf_value *v)
{
	uint64_t whole = 0;
	double real = 0;
	char err[256];

	if (v->kind == GGUF_BOOL)
		return *v->data;
	if (gguf_whole(g, v->key, &whole, err, sizeof err) == MODEL_OK)
		return (double)whole;
	return gguf_real(g, v->key, &real, err, sizeof err) == MODEL_OK ? real : 0.5;
}

/* *other <- whether another architecture has it, where this one has not (NULL) */
static const struct key *
find_key(const struct gguf_reading *c, const char *name, int *other)
{
	const struct key *k, *end = keys + sizeof keys / sizeof keys[0];

	*other = 0;
	for (k = keys; k < end; k++) {
		if (strcmp(k->name, name) != 0)
			continue;
		if (k->flag == 0 || (c->arch->flags & k->flag))
			return k;
		*other = 1;
	}
	return NULL;
}

/* Copies the value, or judges it. name: without the architecture */
static int
take_key(struct gguf_reading *c, const struct gguf_value *v, const char *name)
{
	uint64_t whole = 0;
	double real = 0;
	int other, rc;
	const struct key *k = find_key(c, name, &other);

	if (k == NULL)
		return refuse(c, v, other ? " is not supported in this architecture" :
		    " is unknown: it may change the arithmetic");
	if ((k->rule == ZERO || (k->rule == EXPERTS && !(c->arch->flags & GGUF_EXPERTS))) &&
	    number_of(c->g, v) != 0)
		return refuse(c, v, strncmp(name, "expert", 6) == 0 ? ": a mixture of experts is "
		    "not supported" : " is not 0, which is not supported");
	if (k->rule == TRUE && number_of(c->g, v) != 1)
		return refuse(c, v, " is not true, which is not supported");
	if (k->rule == WHOLE || (k->rule == EXPERTS && (c->arch->flags & GGUF_EXPERTS))) {
		if ((rc = gguf_whole(c->g, v->key, &whole, c->err, c->errlen)) != MODEL_OK)
			return rc;
		return gguf_set_whole(c, k->config, whole);
	}
	if (k->rule == REAL) {
		if ((rc = gguf_real(c->g, v->key, &real, c->err, c->errlen)) != MODEL_OK)
			return rc;
		return gguf_set(c, c->json, k->config, json_real(real));
	}
	return MODEL_OK;
}

static int
take_keys(struct gguf_reading *c)
{
	const size_t n = strlen(c->arch->name);
	const struct gguf_value *v;
	size_t i;
	int rc = MODEL_OK;

	for (i = 0; rc == MODEL_OK && i < c->g->values; i++) {
		v = &c->g->value[i];
		if (strncmp(v->key, c->arch->name, n) == 0 && v->key[n] == '.' &&
		    !name_list_matches(&c->overrides->keys, v->key))
			rc = take_key(c, v, v->key + n + 1);
	}
	return rc;
}

/* ---- what follows from several ---- */

const struct gguf_tensor *
gguf_find_tensor(const struct gguf *g, const char *name)
{
	size_t i;

	for (i = 0; i < g->tensors; i++)
		if (strcmp(g->tensor[i].name, name) == 0)
			return &g->tensor[i];
	return NULL;
}

uint64_t
gguf_number(const struct gguf_reading *c, const char *key)
{
	const json_int_t v = json_integer_value(json_object_get(c->json, key));

	return v > 0 ? (uint64_t)v : 0;
}

/* *width <- of a head, 0: the file does not say. Heads of keys and values are alike. */
static int
take_width(struct gguf_reading *c, uint64_t *width)
{
	const uint64_t heads = gguf_number(c, "num_attention_heads");
	const uint64_t hidden = gguf_number(c, "hidden_size");
	uint64_t values;
	int rc;

	*width = heads > 0 && hidden % heads == 0 ? hidden / heads : 0;
	values = *width;
	if ((rc = gguf_arch_whole(c, "attention.key_length", width)) != MODEL_OK ||
	    (rc = gguf_arch_whole(c, "attention.value_length", &values)) != MODEL_OK)
		return rc;
	if (values != *width)
		return UNSUPPORTED(c, "heads of %" PRIu64 " channels of keys and %" PRIu64
		    " of values are not supported", *width, values);
	return *width > 0 ? gguf_set_whole(c, "head_dim", *width) : MODEL_OK;
}

/* Where no key says it, as many as there are tokens, or rows of the embedding */
static int
take_vocabulary(struct gguf_reading *c)
{
	const struct gguf_tensor *t = gguf_find_tensor(c->g, "token_embd.weight");
	const struct gguf_value *tokens;
	uint64_t n = t != NULL && t->ndim == 2 ? t->dim[1] : 0;
	int rc;

	if ((rc = gguf_array(c->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, c->err,
	    c->errlen)) != MODEL_OK)
		return rc;
	if (tokens != NULL && tokens->count > 0)
		n = tokens->count;
	if ((rc = gguf_arch_whole(c, "vocab_size", &n)) != MODEL_OK)
		return rc;
	return n > 0 ? gguf_set_whole(c, "vocab_size", n) : MODEL_OK;
}

/* A key that says whether there are biases, of a family that has it */
static int
take_biases(struct gguf_reading *c, unsigned flag, const char *key, int biased)
{
	const struct family *f = family_find(c->arch->model_type);

	return f->flags & flag ? gguf_set(c, c->json, key, json_boolean(biased)) : MODEL_OK;
}

/* Norms of queries and keys: some models of a family have them, and a key of config.json says so */
static int
take_norms(struct gguf_reading *c)
{
	const struct family *f = family_find(c->arch->model_type);

	if (f->switches == NULL || strcmp(f->switches->key, "use_qk_norm") != 0)
		return MODEL_OK;
	return gguf_set(c, c->json, "use_qk_norm",
	    json_boolean(gguf_find_tensor(c->g, "blk.0.attn_q_norm.weight") != NULL));
}

static int
take_parts(struct gguf_reading *c)
{
	const struct gguf *g = c->g;
	const int attention = gguf_find_tensor(g, "blk.0.attn_q.bias") != NULL;
	const int mlp = gguf_find_tensor(g, "blk.0.ffn_up.bias") != NULL;
	int rc;

	if ((rc = gguf_set(c, c->json, "tie_word_embeddings",
	    json_boolean(gguf_find_tensor(g, "output.weight") == NULL))) != MODEL_OK ||
	    (rc = take_biases(c, FAMILY_ATTENTION_BIAS, "attention_bias", attention)) != MODEL_OK ||
	    (rc = take_biases(c, FAMILY_USE_BIAS, "use_bias", attention)) != MODEL_OK ||
	    (rc = take_norms(c)) != MODEL_OK)
		return rc;
	return take_biases(c, FAMILY_MLP_BIAS, "mlp_bias", mlp);
}

/* sliding_window_pattern: a number, or a bool for each layer */
static int
take_pattern(struct gguf_reading *c)
{
	const char *const name = "attention.sliding_window_pattern";
	const struct gguf_value *v = gguf_find(c->g, gguf_key(c, name));
	json_t *types;
	uint64_t n, i;
	int rc;

	if (v == NULL || gguf_passed_over(c, name))
		return MODEL_OK;
	if (v->kind != GGUF_ARRAY || v->of != GGUF_BOOL) {
		if ((rc = gguf_arch_whole(c, name, &n)) != MODEL_OK)
			return rc;
		return gguf_set_whole(c, "sliding_window_pattern", n);
	}
	if ((types = json_array()) == NULL || gguf_set(c, c->json, "layer_types", types) !=
	    MODEL_OK)
		return FAIL(c, MODEL_ENOMEM, "out of memory");
	for (i = 0; i < v->count; i++)
		if (json_array_append_new(types, json_string(v->data[i] ? "sliding_attention" :
		    "full_attention")) != 0)
			return FAIL(c, MODEL_ENOMEM, "out of memory");
	return MODEL_OK;
}

static int
take_window(struct gguf_reading *c)
{
	uint64_t window = 0;
	int rc;

	if (!(c->arch->flags & GGUF_WINDOW))
		return MODEL_OK;
	if ((rc = gguf_arch_whole(c, "attention.sliding_window", &window)) != MODEL_OK ||
	    (rc = take_pattern(c)) != MODEL_OK)
		return rc;
	if (window > 0)
		return gguf_set_whole(c, "sliding_window", window);
	/* the family's own */
	if (!(c->arch->flags & GGUF_WINDOW_BY_LAYERS) ||
	    gguf_number(c, "num_hidden_layers") == c->arch->layers)
		return MODEL_OK;
	return gguf_set(c, c->json, "sliding_window", json_null());
}

/* Gemma's queries are divided by the root of a number that no key says: the width of a head, but
 * for the largest model of each generation (gemma_pytorch, config.py). */
static int
take_query_scalar(struct gguf_reading *c, uint64_t width)
{
	const uint64_t heads = gguf_number(c, "num_attention_heads");
	const uint64_t hidden = gguf_number(c, "hidden_size");

	if (!(c->arch->flags & GGUF_QUERY_SCALAR))
		return MODEL_OK;
	if (gguf_number(c, "num_hidden_layers") == c->arch->layers && heads > 0)
		width = hidden / heads;
	return gguf_set_whole(c, "query_pre_attn_scalar", width);
}

/* ---- tokens ---- */

/* What ends a turn of a conversation, in files whose converter did not say so */
static const char *const turn_ends[] = { "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>" };

/* gpt-oss ends each message of a turn with <|end|>, and goes on */
static const char *const harmony_ends[] = { "<|return|>", "<|call|>", "<|endoftext|>" };

/* *id <- the last token with one of n texts; unchanged: there is none */
static int
find_turn_end(struct gguf_reading *c, const char *const *texts, size_t n, uint64_t *id)
{
	const struct gguf_value *tokens;
	const uint8_t *at;
	const char *text;
	size_t len, j;
	uint64_t i;
	int rc = gguf_array(c->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, c->err, c->errlen);

	if (rc != MODEL_OK || tokens == NULL)
		return rc;
	for (i = 0, at = tokens->data; i < tokens->count; i++) {
		text = gguf_next_text(&at, &len);
		for (j = 0; j < n; j++)
			if (strlen(texts[j]) == len && memcmp(texts[j], text, len) == 0)
				*id = i;
	}
	return MODEL_OK;
}

static int
append_end(struct gguf_reading *c, json_t *ends, uint64_t id)
{
	size_t i;

	if (id > UINT32_MAX)
		return MODEL_OK;
	for (i = 0; i < json_array_size(ends); i++)
		if (json_integer_value(json_array_get(ends, i)) == (json_int_t)id)
			return MODEL_OK;
	if (json_array_append_new(ends, json_integer((json_int_t)id)) == 0)
		return MODEL_OK;
	return FAIL(c, MODEL_ENOMEM, "out of memory");
}

/* Appends what ends a turn by key or, where none says so, by text. */
static int
append_turn_ends(struct gguf_reading *c, json_t *ends)
{
	const int harmony = (c->arch->flags & GGUF_HARMONY) != 0;
	const size_t texts = harmony ? sizeof harmony_ends / sizeof harmony_ends[0] : 1;
	uint64_t end = UINT64_MAX;
	size_t i;
	int rc = MODEL_OK;

	if (!harmony && (rc = gguf_whole(c->g, "tokenizer.ggml.eot_token_id", &end, c->err,
	    c->errlen)) == MODEL_OK && end == UINT64_MAX)
		rc = find_turn_end(c, turn_ends, sizeof turn_ends / sizeof turn_ends[0], &end);
	for (i = 0; rc == MODEL_OK && i < texts; i++) {
		if (harmony)
			end = UINT64_MAX;
		if (harmony && (rc = find_turn_end(c, &harmony_ends[i], 1, &end)) != MODEL_OK)
			return rc;
		rc = append_end(c, ends, end);
	}
	return rc;
}

/* bos_token_id; eos_token_id: the ends of a text, of a turn, of a message */
static int
take_tokens(struct gguf_reading *c)
{
	uint64_t bos = UINT64_MAX, eos = UINT64_MAX, eom = UINT64_MAX;
	json_t *ends = json_array();
	int rc;

	if (ends == NULL)
		return FAIL(c, MODEL_ENOMEM, "out of memory");
	rc = gguf_whole(c->g, "tokenizer.ggml.bos_token_id", &bos, c->err, c->errlen);
	if (rc == MODEL_OK && bos <= UINT32_MAX)
		rc = gguf_set_whole(c, "bos_token_id", bos);
	if (rc == MODEL_OK && (rc = gguf_whole(c->g, "tokenizer.ggml.eos_token_id", &eos, c->err,
	    c->errlen)) == MODEL_OK && (rc = append_end(c, ends, eos)) == MODEL_OK &&
	    (rc = append_turn_ends(c, ends)) == MODEL_OK &&
	    (rc = gguf_whole(c->g, "tokenizer.ggml.eom_token_id", &eom, c->err, c->errlen)) ==
	    MODEL_OK)
		rc = append_end(c, ends, eom);
	if (rc == MODEL_OK && json_array_size(ends) > 0)
		return gguf_set(c, c->json, "eos_token_id", ends);
	json_decref(ends);
	return rc;
}

/* ---- all ---- */

static int
check_type(struct gguf_reading *c)
{
	const char *type = "model";
	size_t len = strlen(type);
	int rc = gguf_text(c->g, "general.type", &type, &len, c->err, c->errlen);

	if (rc == MODEL_OK && (len != strlen("model") || memcmp(type, "model", len) != 0))
		return UNSUPPORTED(c, "general.type is \"%.*s\", not \"model\"",
		    len < 64 ? (int)len : 64, type);
	return rc;
}

static int
read_all(struct gguf_reading *c)
{
	uint64_t width = 0;
	int rc;

	if ((rc = check_type(c)) != MODEL_OK ||
	    (rc = gguf_architecture(c->g, &c->arch, c->err, c->errlen)) != MODEL_OK ||
	    (rc = gguf_set(c, c->json, "model_type", json_string(c->arch->model_type))) !=
	    MODEL_OK || (rc = take_keys(c)) != MODEL_OK)
		return rc;
	if (json_object_get(c->json, "num_key_value_heads") == NULL &&
	    (rc = gguf_set_whole(c, "num_key_value_heads", gguf_number(c,
	    "num_attention_heads"))) != MODEL_OK)
		return rc;
	rc = c->arch->flags & GGUF_LATENT ? gguf_latent(c, &width) : take_width(c, &width);
	if (rc != MODEL_OK || (rc = take_vocabulary(c)) != MODEL_OK ||
	    (rc = take_parts(c)) != MODEL_OK || (rc = gguf_experts(c)) != MODEL_OK ||
	    (rc = take_window(c)) != MODEL_OK ||
	    (rc = take_query_scalar(c, width)) != MODEL_OK ||
	    (rc = gguf_rope(c, width, gguf_number(c, "max_position_embeddings"))) != MODEL_OK)
		return rc;
	return take_tokens(c);
}

int
gguf_config(const char *path, const struct overrides *overrides, json_t **out, char *err,
    size_t errlen)
{
	struct gguf_reading c = { .overrides = overrides, .err = err, .errlen = errlen };
	struct gguf *g;
	int rc = gguf_open_model(path, &g, err, errlen);

	*out = NULL;
	if (rc != MODEL_OK)
		return rc;
	c.g = g;
	c.json = json_object();
	rc = c.json != NULL ? read_all(&c) : FAIL(&c, MODEL_ENOMEM, "out of memory");
	gguf_close(g);
	if (rc == MODEL_OK)
		*out = c.json;
	else
		json_decref(c.json);
	return rc;
}

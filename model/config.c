/* config.c - config.json and generation_config.json of a Hugging Face Llama folder
 *
 * Everything in config.json that could change the arithmetic is either understood or refused by
 * name. That holds for keys that nobody has thought of yet, too: what is not in the table is
 * refused. */

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/model_files.h"
#include "model/model.h"

/* What we do with a key. */
enum rule {
	READ,           /* understood, below */
	IGNORE,         /* does not change what one forward pass computes */
	ONLY            /* refused unless it is null or has the one value that changes nothing */
};

static const struct key {
	const char *name;
	enum rule rule;
	const char *only;       /* JSON */
} keys[] = {
	{ "architectures", READ, NULL },
	{ "attention_bias", READ, NULL },
	{ "bos_token_id", READ, NULL },
	{ "eos_token_id", READ, NULL },
	{ "head_dim", READ, NULL },
	{ "hidden_size", READ, NULL },
	{ "intermediate_size", READ, NULL },
	{ "max_position_embeddings", READ, NULL },
	{ "model_type", READ, NULL },
	{ "num_attention_heads", READ, NULL },
	{ "num_hidden_layers", READ, NULL },
	{ "num_key_value_heads", READ, NULL },
	{ "rms_norm_eps", READ, NULL },
	{ "rope_parameters", READ, NULL },              /* transformers 5: both in one */
	{ "rope_scaling", READ, NULL },
	{ "rope_theta", READ, NULL },
	{ "tie_word_embeddings", READ, NULL },
	{ "vocab_size", READ, NULL },

	{ "hidden_act", ONLY, "\"silu\"" },
	{ "mlp_bias", ONLY, "false" },
	{ "pretraining_tp", ONLY, "1" },                /* more: sums in another order */
	{ "rope_interleaved", ONLY, "false" },          /* SmolLM's; true: pairs (2i, 2i+1) */
	{ "rope_traditional", ONLY, "false" },          /* MLX's word for the same */
	{ "partial_rotary_factor", ONLY, "1" },
	{ "sliding_window", ONLY, "null" },
	{ "use_sliding_window", ONLY, "false" },
	{ "attn_logit_softcapping", ONLY, "null" },     /* Gemma 2 */
	{ "final_logit_softcapping", ONLY, "null" },
	{ "embedding_multiplier", ONLY, "1" },          /* Granite */
	{ "residual_multiplier", ONLY, "1" },
	{ "attention_multiplier", ONLY, "null" },
	{ "logits_scaling", ONLY, "1" },
	{ "use_qk_norm", ONLY, "false" },
	{ "quantization_config", ONLY, "null" },
	{ "compression_config", ONLY, "null" },
	{ "quantization", ONLY, "null" },               /* MLX */
	{ "auto_map", ONLY, "null" },                   /* the model is code of its own */
	{ "add_cross_attention", ONLY, "false" },
	{ "cross_attention_hidden_size", ONLY, "null" },
	{ "is_encoder_decoder", ONLY, "false" },
	{ "pruned_heads", ONLY, "{}" },
	{ "per_layer_config", ONLY, "null" },

	/* where it comes from */
	{ "_name_or_path", IGNORE, NULL },
	{ "_commit_hash", IGNORE, NULL },
	{ "transformers_version", IGNORE, NULL },
	{ "transformers.js_config", IGNORE, NULL },
	{ "is_llama_config", IGNORE, NULL },
	{ "unsloth_fixed", IGNORE, NULL },
	{ "unsloth_version", IGNORE, NULL },
	/* how it runs there: the tensors say their own type */
	{ "torch_dtype", IGNORE, NULL },
	{ "dtype", IGNORE, NULL },
	{ "use_bfloat16", IGNORE, NULL },
	{ "use_cache", IGNORE, NULL },
	{ "torchscript", IGNORE, NULL },
	{ "return_dict", IGNORE, NULL },
	{ "output_attentions", IGNORE, NULL },
	{ "output_hidden_states", IGNORE, NULL },
	{ "chunk_size_feed_forward", IGNORE, NULL },    /* Llama does not look at it */
	{ "is_decoder", IGNORE, NULL },
	{ "_attn_implementation", IGNORE, NULL },
	{ "_attn_implementation_autoset", IGNORE, NULL },
	{ "attn_implementation", IGNORE, NULL },
	{ "_flash_attn_2_enabled", IGNORE, NULL },
	{ "max_sequence_length", IGNORE, NULL },        /* first Llama conversions */
	/* training */
	{ "initializer_range", IGNORE, NULL },
	{ "attention_dropout", IGNORE, NULL },
	{ "gradient_checkpointing", IGNORE, NULL },
	{ "tie_encoder_decoder", IGNORE, NULL },
	{ "tf_legacy_loss", IGNORE, NULL },
	/* other heads and tasks */
	{ "finetuning_task", IGNORE, NULL },
	{ "id2label", IGNORE, NULL },
	{ "label2id", IGNORE, NULL },
	{ "num_labels", IGNORE, NULL },
	{ "problem_type", IGNORE, NULL },
	{ "task_specific_params", IGNORE, NULL },
	/* tokenizer */
	{ "decoder_start_token_id", IGNORE, NULL },
	{ "pad_token_id", IGNORE, NULL },
	{ "prefix", IGNORE, NULL },
	{ "sep_token_id", IGNORE, NULL },
	{ "tokenizer_class", IGNORE, NULL },
	/* sampling defaults, which older versions wrote here */
	{ "bad_words_ids", IGNORE, NULL },
	{ "begin_suppress_tokens", IGNORE, NULL },
	{ "diversity_penalty", IGNORE, NULL },
	{ "do_sample", IGNORE, NULL },
	{ "early_stopping", IGNORE, NULL },
	{ "encoder_no_repeat_ngram_size", IGNORE, NULL },
	{ "exponential_decay_length_penalty", IGNORE, NULL },
	{ "forced_bos_token_id", IGNORE, NULL },
	{ "forced_eos_token_id", IGNORE, NULL },
	{ "length_penalty", IGNORE, NULL },
	{ "max_length", IGNORE, NULL },
	{ "max_new_tokens", IGNORE, NULL },
	{ "min_length", IGNORE, NULL },
	{ "no_repeat_ngram_size", IGNORE, NULL },
	{ "num_beam_groups", IGNORE, NULL },
	{ "num_beams", IGNORE, NULL },
	{ "num_return_sequences", IGNORE, NULL },
	{ "output_scores", IGNORE, NULL },
	{ "remove_invalid_values", IGNORE, NULL },
	{ "repetition_penalty", IGNORE, NULL },
	{ "return_dict_in_generate", IGNORE, NULL },
	{ "suppress_tokens", IGNORE, NULL },
	{ "temperature", IGNORE, NULL },
	{ "top_k", IGNORE, NULL },
	{ "top_p", IGNORE, NULL },
	{ "typical_p", IGNORE, NULL },
};

struct config {
	const char *path;       /* of the file at hand */
	json_t *json;
	char *err;
	size_t errlen;
};

#define FAIL(c, code, ...) model_file_fail((c)->err, (c)->errlen, code, (c)->path, __VA_ARGS__)
#define BAD(c, ...) FAIL(c, MODEL_EINVALID, __VA_ARGS__)
#define UNSUPPORTED(c, ...) FAIL(c, MODEL_EUNSUPPORTED, __VA_ARGS__)
#define REQUIRED UINT32_MAX             /* in place of a default */

/* ---- values; null is the same as absent, as in Hugging Face's configurations ---- */

static json_t *
get(const json_t *object, const char *key)
{
	json_t *v = json_object_get(object, key);

	return json_is_null(v) ? NULL : v;
}

static int
get_count(struct config *c, const json_t *object, const char *key, uint32_t max, uint32_t fallback,
    uint32_t *out)
{
	const json_t *v = get(object, key);
	json_int_t n;

	if (v == NULL && fallback == REQUIRED)
		return BAD(c, "no \"%s\"", key);
	if (v == NULL) {
		*out = fallback;
		return MODEL_OK;
	}
	if (!json_is_integer(v))
		return BAD(c, "\"%s\" is not an integer", key);
	if ((n = json_integer_value(v)) < 1 || n > max)
		return BAD(c, "\"%s\" is %" JSON_INTEGER_FORMAT ", not 1 to %u", key, n, max);
	*out = (uint32_t)n;
	return MODEL_OK;
}

/* A real number above 0, from min to max; *out stays as it is when there is none. */
static int
get_real(struct config *c, const json_t *object, const char *key, double min, double max, double *out)
{
	const json_t *v = get(object, key);
	const double x = json_number_value(v);  /* 0 for what is no number */

	if (v == NULL)
		return MODEL_OK;
	if (!(x > 0))
		return BAD(c, "\"%s\" is not a number above 0", key);
	if (x < min || x > max)
		return BAD(c, "\"%s\" is %g, not %g to %g", key, x, min, max);
	*out = x;
	return MODEL_OK;
}

/* 1: all pairs of channels turn alike. The greatest in use are some 10^10, for millions of tokens. */
static int
get_theta(struct config *c, const json_t *object, double *theta)
{
	return get_real(c, object, "rope_theta", 1, 1e15, theta);
}

/* Absent: false. */
static int
get_flag(struct config *c, const char *key, int *out)
{
	const json_t *v = get(c->json, key);

	if (v != NULL && !json_is_boolean(v))
		return BAD(c, "\"%s\" is neither true nor false", key);
	*out = json_is_true(v);
	return MODEL_OK;
}

/* ---- keys ---- */

/* v as JSON text for a message, cut to size. */
static const char *
show(const json_t *v, char *text, size_t size)
{
	size_t n = json_dumpb(v, text, size - 1, JSON_ENCODE_ANY | JSON_COMPACT);

	if (n == 0 || n > size - 1)
		n = n == 0 ? 0 : size - 1;
	text[n] = '\0';
	return text;
}

static int
has_value(const json_t *v, const char *only)
{
	json_t *want = json_loads(only, JSON_DECODE_ANY, NULL);
	int same;

	if (json_is_number(v) && json_is_number(want))         /* 1 and 1.0 */
		same = json_number_value(v) == json_number_value(want);
	else
		same = json_equal(v, want);
	json_decref(want);
	return same;
}

static int
check_key(struct config *c, const char *name, const json_t *v)
{
	char text[64];
	size_t i;

	for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (strcmp(keys[i].name, name) == 0)
			break;
	if (i == sizeof keys / sizeof keys[0])
		return UNSUPPORTED(c, "unknown key \"%s\": it may change the arithmetic", name);
	if (keys[i].rule != ONLY || json_is_null(v) || has_value(v, keys[i].only))
		return MODEL_OK;
	return UNSUPPORTED(c, "%s %s is not supported", name, show(v, text, sizeof text));
}

/* The kind comes first: a model of another kind is not to be refused for its first unknown key. */
static int
check_keys(struct config *c)
{
	const json_t *arch = get(c->json, "architectures"), *type = get(c->json, "model_type");
	const char *name;
	char text[64];
	json_t *v;
	int rc;

	if (type == NULL)
		return BAD(c, "no \"model_type\"");
	if (!has_value(type, "\"llama\""))
		return UNSUPPORTED(c, "model_type %s is not supported",
		    show(type, text, sizeof text));
	if (arch != NULL && !has_value(arch, "[\"LlamaForCausalLM\"]"))
		return UNSUPPORTED(c, "architectures %s is not supported",
		    show(arch, text, sizeof text));
	json_object_foreach(c->json, name, v)
		if ((rc = check_key(c, name, v)) != MODEL_OK)
			return rc;
	return MODEL_OK;
}

/* ---- rotary embedding ---- */

static int
read_llama3(struct config *c, const json_t *rope, const char *where, struct kv_model *id)
{
	const struct { const char *key; double *out; } real[] = {
		{ "factor", &id->rope_factor },
		{ "low_freq_factor", &id->rope_low_freq_factor },
		{ "high_freq_factor", &id->rope_high_freq_factor },
	};
	size_t i;
	int rc;

	for (i = 0; i < sizeof real / sizeof real[0]; i++) {
		if (get(rope, real[i].key) == NULL)
			return BAD(c, "%s: no \"%s\"", where, real[i].key);
		if ((rc = get_real(c, rope, real[i].key, 1e-6, 1e6, real[i].out)) != MODEL_OK)
			return rc;
	}
	if (id->rope_factor < 1)
		return BAD(c, "%s: factor %g is less than 1", where, id->rope_factor);
	if (id->rope_low_freq_factor >= id->rope_high_freq_factor)
		return BAD(c, "%s: low_freq_factor %g is not below high_freq_factor %g", where,
		    id->rope_low_freq_factor, id->rope_high_freq_factor);
	return get_count(c, rope, "original_max_position_embeddings", UINT32_MAX - 1, REQUIRED,
	    &id->rope_original_max_position);
}

/* A key that the type has no use for might be meant to change something. */
static int
check_rope_keys(struct config *c, json_t *rope, const char *where, enum kv_rope type)
{
	static const char *const known[] = {
		"type", "rope_type", "rope_theta", "partial_rotary_factor",     /* any type */
		"factor", "low_freq_factor", "high_freq_factor",                /* llama3 */
		"original_max_position_embeddings"
	};
	size_t i, n = type == KV_ROPE_LLAMA3 ? 8 : 4;
	const char *name;
	json_t *v;

	json_object_foreach(rope, name, v) {
		for (i = 0; i < n && strcmp(known[i], name) != 0; i++)
			;
		if (i == n && !json_is_null(v))
			return UNSUPPORTED(c, "%s: key \"%s\" is unknown for this type: it may "
			    "change the arithmetic", where, name);
	}
	v = get(rope, "partial_rotary_factor");
	if (v != NULL && !has_value(v, "1"))
		return UNSUPPORTED(c, "%s: partial_rotary_factor is not 1", where);
	return MODEL_OK;
}

/* One of the two objects that can hold it; sets the rope fields of id, which are zero before. */
static int
read_rope(struct config *c, const char *where, struct kv_model *id)
{
	json_t *rope = get(c->json, where), *type, *old;
	char text[64];
	int rc;

	if (rope == NULL)
		return MODEL_OK;
	if (!json_is_object(rope))
		return BAD(c, "%s is not an object", where);
	type = get(rope, "rope_type");
	old = get(rope, "type");
	if (type != NULL && old != NULL && !json_equal(type, old))
		return BAD(c, "%s: rope_type and type differ", where);
	if (type == NULL)
		type = old;
	if (type == NULL || has_value(type, "\"default\""))
		id->rope_type = KV_ROPE_DEFAULT;
	else if (has_value(type, "\"llama3\""))
		id->rope_type = KV_ROPE_LLAMA3;
	else
		return UNSUPPORTED(c, "%s type %s is not supported", where,
		    show(type, text, sizeof text));
	if ((rc = check_rope_keys(c, rope, where, id->rope_type)) != MODEL_OK ||
	    (rc = get_theta(c, rope, &id->rope_theta)) != MODEL_OK)
		return rc;
	return id->rope_type == KV_ROPE_LLAMA3 ? read_llama3(c, rope, where, id) : MODEL_OK;
}

static int
same_scaling(const struct kv_model *a, const struct kv_model *b)
{
	return a->rope_type == b->rope_type && a->rope_factor == b->rope_factor &&
	    a->rope_low_freq_factor == b->rope_low_freq_factor &&
	    a->rope_high_freq_factor == b->rope_high_freq_factor &&
	    a->rope_original_max_position == b->rope_original_max_position;
}

/* Some exporters write both the old form (rope_theta, rope_scaling) and the new (rope_parameters);
 * what is said twice must be the same. */
static int
read_ropes(struct config *c, struct kv_model *id)
{
	struct kv_model old, new;
	double theta[3];
	int i, rc;

	old = new = *id;                        /* theta 0: not said */
	theta[0] = 0;
	if ((rc = get_theta(c, c->json, &theta[0])) != MODEL_OK ||
	    (rc = read_rope(c, "rope_scaling", &old)) != MODEL_OK ||
	    (rc = read_rope(c, "rope_parameters", &new)) != MODEL_OK)
		return rc;
	theta[1] = old.rope_theta;
	theta[2] = new.rope_theta;
	if (get(c->json, "rope_parameters") == NULL)
		*id = old;
	else if (get(c->json, "rope_scaling") == NULL || same_scaling(&old, &new))
		*id = new;
	else
		return BAD(c, "rope_scaling and rope_parameters differ");
	id->rope_theta = 0;
	for (i = 0; i < 3; i++) {
		if (theta[i] != 0 && id->rope_theta != 0 && theta[i] != id->rope_theta)
			return BAD(c, "rope_theta is %g and %g", id->rope_theta, theta[i]);
		if (theta[i] != 0)
			id->rope_theta = theta[i];
	}
	if (id->rope_theta == 0)
		id->rope_theta = 10000;         /* LlamaConfig's; Llama 2 does not write it */
	return MODEL_OK;
}

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
	const json_t *bos = get(c->json, "bos_token_id"), *eos = get(c->json, "eos_token_id"), *v;
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

/* The ranges are those of formats/kv-snapshot.md 4.1, the defaults those of LlamaConfig. */
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
		if ((rc = get_count(c, c->json, size[i].key, size[i].max, REQUIRED, size[i].out)) !=
		    MODEL_OK)
			return rc;
	if ((rc = get_count(c, c->json, "num_key_value_heads", 4096, id->query_heads,
	    &id->kv_heads)) != MODEL_OK)
		return rc;
	if (id->query_heads % id->kv_heads != 0)
		return BAD(c, "num_attention_heads %u is not a multiple of num_key_value_heads %u",
		    id->query_heads, id->kv_heads);
	return get_count(c, c->json, "max_position_embeddings", UINT32_MAX, 2048, &m->max_position);
}

static int
read_head_width(struct config *c, struct kv_model *id)
{
	uint32_t fallback = id->hidden / id->query_heads;
	int rc;

	if (id->hidden % id->query_heads != 0 || fallback > 1024)
		fallback = REQUIRED;
	if ((rc = get_count(c, c->json, "head_dim", 1024, fallback, &id->head_width)) != MODEL_OK)
		return rc;
	if (id->head_width % 2 != 0)
		return BAD(c, "head width %u is odd: rotary embedding turns pairs", id->head_width);
	return MODEL_OK;
}

static int
read_config(struct config *c, struct model *m)
{
	struct kv_model *id = &m->id;
	int rc;

	id->norm_eps = 1e-6;
	if ((rc = check_keys(c)) != MODEL_OK || (rc = read_sizes(c, m)) != MODEL_OK ||
	    (rc = read_head_width(c, id)) != MODEL_OK ||
	    (rc = get_real(c, c->json, "rms_norm_eps", FLT_MIN, 1, &id->norm_eps)) != MODEL_OK ||
	    (rc = get_flag(c, "attention_bias", &id->attention_bias)) != MODEL_OK ||
	    (rc = get_flag(c, "tie_word_embeddings", &id->tied_embeddings)) != MODEL_OK ||
	    (rc = read_ropes(c, id)) != MODEL_OK)
		return rc;
	strcpy(id->architecture, "llama");
	return read_tokens(c, m);
}

static int
read_file(const char *dir, const char *name, int (*reader)(struct config *, struct model *),
    struct model *m, char *err, size_t errlen)
{
	char *path = model_file_path(dir, name);
	struct config c = { .path = path, .err = err, .errlen = errlen };
	int rc;

	if (path == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	if ((rc = model_file_json(path, &c.json, err, errlen)) == MODEL_OK) {
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
model_config(const char *dir, struct model *m, char *err, size_t errlen)
{
	int rc;

	memset(&m->id, 0, sizeof m->id);
	m->bos = UINT32_MAX;
	m->n_eos = 0;
	if ((rc = read_file(dir, "config.json", read_config, m, err, errlen)) != MODEL_OK ||
	    !is_there(dir, "generation_config.json"))
		return rc;
	return read_file(dir, "generation_config.json", read_tokens, m, err, errlen);
}

/* config.c - config.json and generation_config.json of a Hugging Face folder
 *
 * Everything in config.json that could change the arithmetic is either understood or refused by
 * name. That holds for keys that nobody has thought of yet, too: config_keys.c. */

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint_config.h"
#include "model/config_internal.h"
#include "model/file_kind.h"
#include "model/folder.h"
#include "model/gguf_config.h"
#include "model/gguf.h"

/* ---- special tokens ---- */

struct token_ids {
	uint32_t *id;           /* [n] those that can come, at most `most` */
	size_t n, most;
	size_t never;           /* how many others, of which this is one */
	json_int_t example;
};

/* Appends an id that can come; counts one that cannot. */
static int
read_token(struct config *c, const char *key, const json_t *v, struct token_ids *ids,
    uint32_t vocabulary)
{
	const json_int_t id = json_integer_value(v);

	if (!json_is_integer(v))
		return config_hint(c, key, BAD(c, "\"%s\" is not a token id below %u", key,
		    vocabulary));
	if (id < 0 || id >= vocabulary) {
		ids->never++;
		ids->example = id;
		return MODEL_OK;
	}
	if (ids->n == ids->most)
		return config_hint(c, key, UNSUPPORTED(c, "\"%s\": more than %zu tokens", key,
		    ids->most));
	ids->id[ids->n++] = (uint32_t)id;
	return MODEL_OK;
}

/* Reads an integer or a list of them; *n stays as it is where none of them can come. An id that no
 * token of the model has, as -1 or the first one behind the vocabulary, changes nothing. */
static int
read_ids(struct config *c, const char *key, const json_t *list, uint32_t vocabulary, uint32_t *out,
    uint32_t most, uint32_t *n)
{
	uint32_t id[MODEL_EOS_MAX];
	struct token_ids ids = { .id = id, .most = most };
	size_t i, all = json_is_array(list) ? json_array_size(list) : 1;
	int rc;

	for (i = 0; i < all; i++)
		if ((rc = read_token(c, key, json_is_array(list) ? json_array_get(list, i) : list,
		    &ids, vocabulary)) != MODEL_OK)
			return rc;
	if (ids.never > 0)
		notice(&c->overrides->notice, "%s: \"%s\": %" JSON_INTEGER_FORMAT " is not a token "
		    "id below %u: ignored%s", c->path, key, ids.example, vocabulary,
		    ids.never > 1 ? ", as are others" : "");
	if (ids.n == 0 && ids.never > 0)
		return MODEL_OK;
	memcpy(out, id, ids.n * sizeof *id);
	*n = (uint32_t)ids.n;
	return MODEL_OK;
}

/* bos_token_id and eos_token_id where they are given: an integer or, for eos, a list of them. */
static int
read_tokens(struct config *c, struct model *m)
{
	const json_t *bos = config_get(c->json, "bos_token_id");
	const json_t *eos = config_get(c->json, "eos_token_id");
	const uint32_t V = m->id.vocabulary;
	uint32_t one = 1;
	int rc;

	if (json_is_array(bos))
		return config_hint(c, "bos_token_id", BAD(c, "\"bos_token_id\" is not a token id "
		    "below %u", V));
	if (bos != NULL && (rc = read_ids(c, "bos_token_id", bos, V, &m->bos, 1, &one)) != MODEL_OK)
		return rc;
	if (eos == NULL)
		return MODEL_OK;
	return read_ids(c, "eos_token_id", eos, V, m->eos, MODEL_EOS_MAX, &m->n_eos);
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
		{ "vocab_size", 1 << 24, &id->vocabulary },
		{ "num_attention_heads", 4096, &id->query_heads },
	};
	size_t i;
	int rc;

	for (i = 0; i < sizeof size / sizeof size[0]; i++)
		if ((rc = config_count(c, c->json, size[i].key, size[i].max, REQUIRED,
		    size[i].out)) != MODEL_OK)
			return rc;
	if ((rc = config_count(c, c->json, "intermediate_size", 1 << 24,
	    c->family->ffn_times != 0 ? c->family->ffn_times * id->hidden : REQUIRED, &id->ffn)) !=
	    MODEL_OK)
		return rc;
	if ((rc = config_count(c, c->json, "num_key_value_heads", 4096,
	    c->family->flags & FAMILY_NEEDS_KV_HEADS ? REQUIRED : id->query_heads,
	    &id->kv_heads)) != MODEL_OK)
		return rc;
	if (c->family->kv_heads != 0)
		id->kv_heads = c->family->kv_heads;
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
	if ((rc = config_count(c, c->json, "head_dim", 1024, fallback, &id->head_width)) !=
	    MODEL_OK)
		return rc;
	if (id->head_width % 2 != 0)
		return BAD(c, "head width %u is odd: rotary embedding rotates pairs",
		    id->head_width);
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

static int
read_biases(struct config *c, struct kv_model *id)
{
	const unsigned flags = c->family->flags;
	int rc;

	id->attention_bias = c->family->biased;
	if ((rc = config_flag(c, c->json, "attention_bias", &id->attention_bias)) != MODEL_OK ||
	    (rc = config_flag(c, c->json, "mlp_bias", &id->mlp_bias)) != MODEL_OK)
		return rc;
	if (flags & FAMILY_QKV_BIAS)
		id->attention_bias = 1;
	if (flags & FAMILY_USE_BIAS) {
		id->attention_bias = c->family->biased;
		rc = config_flag(c, c->json, "use_bias", &id->attention_bias);
		id->mlp_bias = id->attention_bias;
	}
	if (flags & FAMILY_NETWORK_BIAS)
		id->mlp_bias = 1;
	return rc;
}

static int
read_config(struct config *c, struct model *m)
{
	struct kv_model *id = &m->id;
	int rc, latent;

	if ((rc = config_unwrap(c, &m->wrapped)) != MODEL_OK ||
	    (rc = config_kind(c)) != MODEL_OK || (rc = config_check_keys(c)) != MODEL_OK)
		return rc;
	if ((rc = checkpoint_config(c, &m->quantised)) != MODEL_OK)
		return rc;
	m->family = c->family;
	latent = (c->family->flags & FAMILY_LATENT) != 0;
	id->norm_eps = c->family->eps;
	id->tied_embeddings = c->family->tied;
	if ((rc = read_sizes(c, m)) != MODEL_OK ||
	    (rc = latent ? config_latent(c, m) : read_head_width(c, id)) != MODEL_OK ||
	    (rc = config_real(c, c->json, "rms_norm_eps", FLT_MIN, 1, &id->norm_eps)) != MODEL_OK ||
	    (rc = read_biases(c, id)) != MODEL_OK || (rc = config_multipliers(c, m)) != MODEL_OK ||
	    (rc = config_flag(c, c->json, "tie_word_embeddings", &id->tied_embeddings)) !=
	    MODEL_OK || (rc = config_rope(c, m)) != MODEL_OK ||
	    (latent && (rc = config_latent_scale(c, m)) != MODEL_OK) ||
	    (rc = config_window(c, m)) != MODEL_OK || (rc = config_experts(c, m)) != MODEL_OK)
		return rc;
	strcpy(id->architecture, c->family->type);
	return read_tokens(c, m);
}

static int
read_file(const char *dir, const char *name, int (*reader)(struct config *, struct model *),
    const struct overrides *overrides, struct model *m, char *err, size_t errlen)
{
	char *path = model_file_path(dir, name);
	struct config c = { .path = path, .overrides = overrides, .err = err, .errlen = errlen };
	int rc;

	if (path == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	if ((rc = model_file_json(path, &c.json, err, errlen)) == MODEL_OK) {
		config_pass_over(&c);
		rc = reader(&c, m);
		json_decref(c.json);
	}
	free(path);
	return rc;
}

/* As read_file(), of the metadata of a GGUF file, which has what a folder has in two files. */
static int
read_gguf(const char *path, int (*reader)(struct config *, struct model *),
    const struct overrides *overrides, struct model *m, char *err, size_t errlen)
{
	struct config c = { .path = path, .overrides = overrides, .err = err, .errlen = errlen };
	int rc = gguf_config(path, overrides, &c.json, err, errlen);

	if (rc == MODEL_OK) {
		config_pass_over(&c);
		rc = reader(&c, m);
		json_decref(c.json);
	}
	return rc;
}

static int
is_there(const char *dir, const char *name)
{
	char *path = model_file_path(dir, name);
	const int there = path == NULL || file_is_there(path);

	free(path);
	return there;
}

int
model_end_tokens(const char *dir, uint32_t *eos, uint32_t *n, char *err, size_t errlen)
{
	static const char *const files[] = { "config.json", "generation_config.json" };
	const int is_gguf = gguf_is(dir);
	struct model *m = calloc(1, sizeof *m);
	int rc = MODEL_OK;
	size_t i;

	*n = 0;
	if (m == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	m->id.vocabulary = 1 << 24;
	if (is_gguf)
		rc = read_gguf(dir, read_tokens, &no_overrides, m, err, errlen);
	for (i = 0; !is_gguf && rc == MODEL_OK && i < sizeof files / sizeof files[0]; i++)
		if (is_there(dir, files[i]))
			rc = read_file(dir, files[i], read_tokens, &no_overrides, m, err,
			    errlen);
	if (rc == MODEL_OK) {
		*n = m->n_eos;
		memcpy(eos, m->eos, sizeof m->eos);
	}
	free(m);
	return rc;
}

int
model_config(const char *dir, const struct overrides *overrides, struct model *m, char *err,
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
	if (gguf_is(dir))
		return read_gguf(dir, read_config, overrides, m, err, errlen);
	if ((rc = model_folder_without_config(dir, err, errlen)) != MODEL_OK)
		return rc;
	if ((rc = read_file(dir, "config.json", read_config, overrides, m, err, errlen)) !=
	    MODEL_OK || !is_there(dir, "generation_config.json"))
		return rc;
	return read_file(dir, "generation_config.json", read_tokens, overrides, m, err, errlen);
}

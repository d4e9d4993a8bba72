/* adapter_config.c - adapter_config.json: PEFT's LoRA configuration, and what kvpipe adds to it
 *
 * PEFT gets new keys with each version. One that is known to leave the arithmetic alone is ignored,
 * and so is any key whose value is null, false or empty: that is how PEFT says that a feature is
 * off. Any other may change the arithmetic, and is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/adapter_config.h"
#include "model/model.h"
#include "model/model_files.h"


enum { RANK_MAX = 4096, TOKENS_MAX = 4096 };

const char *const adapter_linears[ADAPTER_LINEARS] = {
	"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
};

/* Read below, or of no effect on what an adapter computes. */
static const char *const taken[] = {
	"peft_type", "r", "lora_alpha", "target_modules", "use_rslora", "bias", "lookahead",
	"auto_mapping", "base_model_name_or_path", "inference_mode", "init_lora_weights",
	"lora_dropout", "peft_version", "revision", "task_type"
};

struct reader {
	const char *path;
	json_t *json;
	const struct name_list *allowed;
	char *err;
	size_t errlen;
};

#define FAIL(r, code, ...) model_file_fail((r)->err, (r)->errlen, code, (r)->path, __VA_ARGS__)
#define BAD(r, ...) FAIL(r, MODEL_EINVALID, __VA_ARGS__)
#define UNSUPPORTED(r, ...) FAIL(r, MODEL_EUNSUPPORTED, __VA_ARGS__)

/* NULL where the key is missing or null */
static const json_t *
get_value(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	return json_is_null(v) ? NULL : v;
}

static int
is_off(const json_t *v)
{
	return json_is_null(v) || json_is_false(v) ||
	    (json_is_object(v) && json_object_size(v) == 0) ||
	    (json_is_array(v) && json_array_size(v) == 0);
}

/* Without those that are passed over */
static int
check_keys(struct reader *r)
{
	const char *name;
	json_t *v;
	size_t i;

	for (i = 0; i < r->allowed->n; i++)
		if (json_object_del(r->json, r->allowed->at[i]) == 0 && r->allowed->there != NULL)
			r->allowed->there[i] = 1;
	json_object_foreach(r->json, name, v) {
		for (i = 0; i < sizeof taken / sizeof *taken && strcmp(taken[i], name) != 0; i++)
			;
		if (i == sizeof taken / sizeof *taken && !is_off(v))
			return UNSUPPORTED(r, "key \"%s\" is set: it may change the arithmetic "
			    "(--allow-config %s ignores it)", name, name);
	}
	return MODEL_OK;
}

static int
is_text(const json_t *v, const char *only)
{
	return v == NULL || (json_is_string(v) && strcmp(json_string_value(v), only) == 0);
}

static int
get_count(struct reader *r, const json_t *object, const char *key, uint32_t least, uint32_t most,
    uint32_t *out)
{
	const json_t *v = get_value(object, key);
	const json_int_t n = json_integer_value(v);

	if (v == NULL)
		return BAD(r, "no \"%s\"", key);
	if (!json_is_integer(v) || n < least || n > most)
		return BAD(r, "\"%s\" is not a whole number from %u to %u", key, least, most);
	*out = (uint32_t)n;
	return MODEL_OK;
}

static int
add_linear(struct reader *r, const json_t *name, unsigned *linears)
{
	unsigned i;

	if (!json_is_string(name))
		return BAD(r, "\"target_modules\" has an element that is not a name");
	for (i = 0; i < ADAPTER_LINEARS; i++)
		if (strcmp(json_string_value(name), adapter_linears[i]) == 0) {
			*linears |= 1u << i;
			return MODEL_OK;
		}
	return UNSUPPORTED(r, "\"target_modules\": %s is not a linear of a layer",
	    json_string_value(name));
}

/* A list of names; "all-linear" is PEFT's word for all of them. */
static int
read_linears(struct reader *r, struct adapter_config *out)
{
	const json_t *v = get_value(r->json, "target_modules");
	size_t i;
	int rc = MODEL_OK;

	if (json_is_string(v) && strcmp(json_string_value(v), "all-linear") == 0) {
		out->linears = (1u << ADAPTER_LINEARS) - 1;
		return MODEL_OK;
	}
	if (!json_is_array(v))
		return UNSUPPORTED(r, "\"target_modules\" is not a list of names");
	for (i = 0; rc == MODEL_OK && i < json_array_size(v); i++)
		rc = add_linear(r, json_array_get(v, i), &out->linears);
	return rc;
}

static int
read_lora(struct reader *r, struct adapter_config *out)
{
	const json_t *alpha = get_value(r->json, "lora_alpha");
	const double a = json_number_value(alpha);
	int rc;

	if (!is_text(get_value(r->json, "peft_type"), "LORA"))
		return UNSUPPORTED(r, "\"peft_type\" is not \"LORA\"");
	if (!is_text(get_value(r->json, "bias"), "none"))
		return UNSUPPORTED(r, "\"bias\" is not \"none\"");
	if ((rc = read_linears(r, out)) != MODEL_OK)
		return rc;
	if (out->linears == 0)
		return MODEL_OK;
	if ((rc = get_count(r, r->json, "r", 1, RANK_MAX, &out->rank)) != MODEL_OK)
		return rc;
	if (!json_is_number(alpha) || !isfinite(a))
		return BAD(r, "no number \"lora_alpha\"");
	out->scale = a / (json_is_true(get_value(r->json, "use_rslora")) ? sqrt(out->rank) :
	    out->rank);
	return MODEL_OK;
}

/* What is ours: how many learned tokens, and the weights they were trained with. */
static int
read_lookahead(struct reader *r, struct adapter_config *out)
{
	const json_t *own = get_value(r->json, "lookahead");
	uint32_t version;
	int rc;

	if (!json_is_object(own))
		return UNSUPPORTED(r, "no object \"lookahead\": a LoRA without learned tokens");
	if ((rc = get_count(r, own, "version", 1, UINT32_MAX, &version)) != MODEL_OK ||
	    (rc = get_count(r, own, "tokens", 1, TOKENS_MAX, &out->tokens)) != MODEL_OK)
		return rc;
	if (version != 1)
		return UNSUPPORTED(r, "\"lookahead\" has version %u: only 1 is supported", version);
	out->weights = json_incref(json_object_get(own, ADAPTER_WEIGHTS));
	return MODEL_OK;
}

int
adapter_config_read(const char *dir, const struct overrides *overrides, struct adapter_config *out,
    char *err, size_t errlen)
{
	char *path = model_file_path(dir, ADAPTER_CONFIG);
	struct reader r = { .path = path, .allowed = &overrides->keys, .err = err,
	    .errlen = errlen };
	int rc;

	*out = (struct adapter_config){ .rank = 0 };
	if (path == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	if ((rc = model_file_json(path, &r.json, err, errlen)) == MODEL_OK) {
		if ((rc = check_keys(&r)) == MODEL_OK && (rc = read_lora(&r, out)) == MODEL_OK)
			rc = read_lookahead(&r, out);
		json_decref(r.json);
	}
	free(path);
	return rc;
}

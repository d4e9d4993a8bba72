/* config_rope.c - rotary embedding, as a configuration has it in one object or in two */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_internal.h"

/* 1: all pairs of channels rotate by the same angle. The greatest in use are some 10^10, for
 * millions of tokens. */
static int
get_theta(struct config *c, const json_t *object, double *theta)
{
	return config_real(c, object, "rope_theta", 1, 1e15, theta);
}

/* Of short and long texts, in place of an attention factor: Phi-3.5-MoE */
#define MSCALES "short_mscale", "long_mscale"

/* Of queries, by their position: Ministral 3 */
#define BETA "llama_4_scaling_beta"
#define MOST "max_position_embeddings"

/* A number that must be there. */
static int
need_real(struct config *c, const json_t *rope, const char *where, const char *key, double *out)
{
	if (config_get(rope, key) == NULL)
		return BAD(c, "%s: no \"%s\"", where, key);
	return config_real(c, rope, key, 1e-6, 1e6, out);
}

static int
read_factor(struct config *c, const json_t *rope, const char *where, struct kv_model *id)
{
	int rc = need_real(c, rope, where, "factor", &id->rope_factor);

	if (rc == MODEL_OK && id->rope_factor < 1)
		return BAD(c, "%s: factor %g is less than 1", where, id->rope_factor);
	return rc;
}

static int
read_llama3(struct config *c, const json_t *rope, const char *where, struct kv_model *id)
{
	int rc;

	if ((rc = read_factor(c, rope, where, id)) != MODEL_OK ||
	    (rc = need_real(c, rope, where, "low_freq_factor", &id->rope_low_freq_factor)) !=
	    MODEL_OK || (rc = need_real(c, rope, where, "high_freq_factor",
	    &id->rope_high_freq_factor)) != MODEL_OK)
		return rc;
	if (id->rope_low_freq_factor >= id->rope_high_freq_factor)
		return BAD(c, "%s: low_freq_factor %g is not below high_freq_factor %g", where,
		    id->rope_low_freq_factor, id->rope_high_freq_factor);
	return config_count(c, rope, "original_max_position_embeddings", UINT32_MAX - 1, REQUIRED,
	    &id->rope_original_max_position);
}

/* A number of which 0 says the same as none */
static int
real_or_0(struct config *c, const json_t *rope, const char *key, double *out)
{
	return config_has(json_object_get(rope, key), "0") ? MODEL_OK :
	    config_real(c, rope, key, 1e-6, 1e6, out);
}

/* The original context of yarn is that of max_position_embeddings where nothing else says so. */
static int
read_yarn(struct config *c, const json_t *rope, const char *where, struct kv_model *id)
{
	const json_t *from = config_get(rope, "original_max_position_embeddings") != NULL ? rope :
	    c->json;
	double by = 0, by_all = 0;
	int rc;

	id->rope_beta_fast = 32;
	id->rope_beta_slow = 1;
	id->rope_truncate = 1;
	if ((rc = read_factor(c, rope, where, id)) != MODEL_OK ||
	    (rc = config_real(c, rope, "beta_fast", 1e-6, 1e6, &id->rope_beta_fast)) != MODEL_OK ||
	    (rc = config_real(c, rope, "beta_slow", 1e-6, 1e6, &id->rope_beta_slow)) != MODEL_OK ||
	    (rc = real_or_0(c, rope, "mscale", &by)) != MODEL_OK ||
	    (rc = real_or_0(c, rope, "mscale_all_dim", &by_all)) != MODEL_OK ||
	    (rc = real_or_0(c, rope, BETA, &id->rope_query_beta)) != MODEL_OK ||
	    (rc = config_flag(c, rope, "truncate", &id->rope_truncate)) != MODEL_OK)
		return rc;
	if (id->rope_beta_fast < id->rope_beta_slow)
		return BAD(c, "%s: beta_fast %g is below beta_slow %g", where, id->rope_beta_fast,
		    id->rope_beta_slow);
	id->rope_attention_factor = model_yarn_attention_factor(id->rope_factor, by, by_all);
	if ((rc = config_real(c, rope, "attention_factor", 1e-6, 1e6,
	    &id->rope_attention_factor)) != MODEL_OK)
		return rc;
	if (from == c->json && config_get(from, "original_max_position_embeddings") == NULL)
		return config_count(c, from, "max_position_embeddings", UINT32_MAX - 1, REQUIRED,
		    &id->rope_original_max_position);
	return config_count(c, from, "original_max_position_embeddings", UINT32_MAX - 1, REQUIRED,
	    &id->rope_original_max_position);
}

/* A list of numbers above 0, one for each pair that is rotated. */
static int
read_factors(struct config *c, const json_t *rope, const char *where, const char *key,
    const struct kv_model *id, double *out)
{
	const uint32_t n = (id->rope_width != 0 ? id->rope_width : id->head_width) / 2;
	const json_t *list = config_get(rope, key), *v;
	uint32_t i;

	if (!json_is_array(list) || json_array_size(list) != n)
		return BAD(c, "%s: %s is not a list of %u numbers", where, key, n);
	for (i = 0; i < n; i++) {
		v = json_array_get(list, i);
		if (!json_is_number(v) || !(json_number_value(v) >= 1e-6) ||
		    json_number_value(v) > 1e6)
			return BAD(c, "%s: %s: element %u is not a number from 1e-06 to 1e+06",
			    where, key, i);
		out[i] = json_number_value(v);
	}
	return MODEL_OK;
}

/* One factor is for texts of any length here; published files have the same number twice. */
static int
read_mscales(struct config *c, const json_t *rope, const char *where, struct kv_model *id)
{
	static const char *const keys[] = { MSCALES };
	double of_short, of_long;
	int rc;

	if ((rc = need_real(c, rope, where, keys[0], &of_short)) != MODEL_OK ||
	    (rc = need_real(c, rope, where, keys[1], &of_long)) != MODEL_OK)
		return rc;
	if (of_short != of_long)
		return UNSUPPORTED(c, "%s: %s and %s differ", where, keys[0], keys[1]);
	id->rope_attention_factor = of_short;
	return MODEL_OK;
}

/* Phi-3: original_max_position_embeddings stands beside the object, and factor follows. */
static int
read_longrope(struct config *c, const json_t *rope, const char *where, struct model *m,
    struct kv_model *id)
{
	const char *const original = "original_max_position_embeddings";
	const json_t *from = config_get(c->json, original) != NULL ? c->json : rope;
	double factor;
	int rc;

	if ((rc = read_factors(c, rope, where, "short_factor", id, id->rope_factors)) != MODEL_OK ||
	    (rc = read_factors(c, rope, where, "long_factor", id, m->long_factors)) != MODEL_OK ||
	    (rc = config_count(c, from, original, UINT32_MAX - 1, REQUIRED,
	    &id->rope_original_max_position)) != MODEL_OK)
		return rc;
	factor = (double)m->max_position / id->rope_original_max_position;
	if ((rc = config_real(c, rope, "factor", 1e-6, 1e6, &factor)) != MODEL_OK)
		return rc;
	if (id->rope_original_max_position < 2)
		return BAD(c, "%s is less than 2", original);
	id->rope_attention_factor = factor <= 1 ? 1 :
	    sqrt(1 + log(factor) / log(id->rope_original_max_position));
	id->rope_n_factors = (id->rope_width != 0 ? id->rope_width : id->head_width) / 2;
	m->rope_switch = id->rope_original_max_position;
	if (strcmp(c->family->type, "phimoe") == 0)
		return read_mscales(c, rope, where, id);
	return config_real(c, rope, "attention_factor", 1e-6, 1e6, &id->rope_attention_factor);
}

/* Nothing else is to be read. */
static int
read_nothing(struct config *c, const json_t *rope, const char *where, struct kv_model *id)
{
	(void)c;
	(void)rope;
	(void)where;
	(void)id;
	return MODEL_OK;
}

/* The types of scaling, with their own keys. */
static const struct type {
	const char *name;
	enum kv_rope kind;
	int (*read)(struct config *, const json_t *rope, const char *where, struct kv_model *);
	const char *keys[11];           /* ends with NULL */
} types[] = {
	{ "default", KV_ROPE_DEFAULT, read_nothing, { NULL } },
	{ "dynamic", KV_ROPE_DEFAULT, read_nothing, { "factor" } },
	{ "linear", KV_ROPE_LINEAR, read_factor, { "factor" } },
	{ "llama3", KV_ROPE_LLAMA3, read_llama3, { "factor", "low_freq_factor",
	    "high_freq_factor", "original_max_position_embeddings" } },
	{ "longrope", KV_ROPE_LONGROPE, read_nothing, { "short_factor", "long_factor", "factor",
	    "attention_factor", "original_max_position_embeddings", MSCALES } },
	{ "su", KV_ROPE_LONGROPE, read_nothing, { "short_factor", "long_factor", "factor",
	    "attention_factor", "original_max_position_embeddings" } },
	{ "yarn", KV_ROPE_YARN, read_yarn, { "factor", "original_max_position_embeddings",
	    "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
	    "truncate", BETA } },
};

static int
is_among(const char *name, const char *const *list)
{
	while (*list != NULL && strcmp(*list, name) != 0)
		list++;
	return *list != NULL;
}

/* config_hint() for a key of an object */
static int
hint_within(struct config *c, const char *where, const char *key, int rc)
{
	char both[128];

	snprintf(both, sizeof both, "%s.%s", where, key);
	return config_hint(c, both, rc);
}

/* A key that the type has no use for might be meant to change something. */
static int
check_rope_keys(struct config *c, json_t *rope, const char *where, const struct type *type)
{
	static const char *const any[] = { "type", "rope_type", "rope_theta",
		"partial_rotary_factor", NULL };
	/* Ministral 3: a copy of what stands beside the object */
	const int copy = (c->family->flags & FAMILY_QUERY_BETA) != 0 &&
	    json_equal(json_object_get(rope, MOST), json_object_get(c->json, MOST));
	static const char *const mscales[] = { MSCALES };
	const char *name;
	json_t *v;
	size_t i;

	json_object_foreach(rope, name, v) {
		if (!is_among(name, any) && !is_among(name, type->keys) && !json_is_null(v) &&
		    !(copy && strcmp(name, MOST) == 0))
			return hint_within(c, where, name, UNSUPPORTED(c, "%s: key \"%s\" is "
			    "unknown for this type: it may change the arithmetic", where, name));
	}
	v = config_get(rope, "partial_rotary_factor");
	if (v != NULL && !config_has(v, "1") && !(c->family->flags & FAMILY_ROPE_WIDTH))
		return hint_within(c, where, "partial_rotary_factor", UNSUPPORTED(c,
		    "%s: partial_rotary_factor is not 1", where));
	for (i = 0; i < sizeof mscales / sizeof mscales[0]; i++)
		if (config_get(rope, mscales[i]) != NULL && strcmp(c->family->type, "phimoe") != 0)
			return hint_within(c, where, mscales[i], UNSUPPORTED(c, "%s: models of "
			    "type %s have no %s", where, c->family->type, mscales[i]));
	v = config_get(rope, BETA);
	if (v != NULL && !config_has(v, "0") && !(c->family->flags & FAMILY_QUERY_BETA))
		return hint_within(c, where, BETA, UNSUPPORTED(c, "%s: models of type %s have no "
		    BETA, where, c->family->type));
	return MODEL_OK;
}

/* *out <- the type of scaling that the object names; NULL: an unknown one */
static int
find_type(struct config *c, const json_t *rope, const char *where, const struct type **out)
{
	json_t *type = config_get(rope, "rope_type"), *old = config_get(rope, "type");
	char text[64];
	size_t i;

	if (type != NULL && old != NULL && !json_equal(type, old))
		return BAD(c, "%s: rope_type and type differ (--allow-config %s.type ignores the "
		    "second)", where, where);
	if (type == NULL)
		type = old;
	*out = &types[0];
	if (type == NULL)
		return MODEL_OK;
	for (i = 0; i < sizeof types / sizeof types[0]; i++)
		if (json_is_string(type) && strcmp(types[i].name, json_string_value(type)) == 0) {
			*out = &types[i];
			return MODEL_OK;
		}
	return UNSUPPORTED(c, "%s type %s is not supported", where,
	    config_show(type, text, sizeof text));
}

/* One of the two objects that can hold it, which can be passed over as a whole; sets the rope
 * fields of m->id, which are zero before. */
static int
read_object(struct config *c, const char *where, struct model *m, struct kv_model *id)
{
	json_t *rope = config_get(c->json, where);
	const struct type *type;
	int rc;

	if (rope == NULL)
		return MODEL_OK;
	if (!json_is_object(rope))
		return BAD(c, "%s is not an object", where);
	if ((rc = find_type(c, rope, where, &type)) != MODEL_OK ||
	    (rc = check_rope_keys(c, rope, where, type)) != MODEL_OK ||
	    (rc = get_theta(c, rope, &id->rope_theta)) != MODEL_OK)
		return rc;
	id->rope_type = type->kind;
	if (strcmp(type->name, "dynamic") == 0)
		model_end_at(m, m->max_position, "dynamic RoPE scaling changes the angles of all "
		    "tokens in a longer text");
	if (type->kind == KV_ROPE_LONGROPE)
		return read_longrope(c, rope, where, m, id);
	return type->read(c, rope, where, id);
}

static int
read_rope(struct config *c, const char *where, struct model *m, struct kv_model *id)
{
	return config_hint(c, where, read_object(c, where, m, id));
}

static int
same_scaling(const struct kv_model *a, const struct kv_model *b)
{
	struct kv_model x = *a, y = *b;
	char text[1];

	x.rope_theta = y.rope_theta = 0;                /* compared by itself */
	return kv_model_diff(&x, &y, "", "", text, sizeof text) == 0;
}

/* *width <- rotary_dim, MiniMax-M2's word for how many channels are rotated, where it is given */
static int
read_channels(struct config *c, const struct kv_model *id, uint32_t *width)
{
	const json_t *part = config_get(c->json, "partial_rotary_factor");
	const uint32_t otherwise = *width;
	int rc = config_count(c, c->json, "rotary_dim", id->head_width, otherwise, width);

	if (rc == MODEL_OK && part != NULL && *width != otherwise)
		return BAD(c, "rotary_dim is %u, and partial_rotary_factor says %u", *width,
		    otherwise);
	return rc;
}

/* partial_rotary_factor, in rope_parameters or beside it: the share of each head that is rotated */
static int
read_width(struct config *c, struct kv_model *id)
{
	const json_t *rope = config_get(c->json, "rope_parameters");
	double part = c->family->rope_part != 0 ? c->family->rope_part : 1;
	uint32_t width;
	int rc;

	if (c->family->flags & FAMILY_LATENT)
		return MODEL_OK;        /* config_latent() has read it */
	if ((rc = config_real(c, c->json, "partial_rotary_factor", 1e-3, 1, &part)) != MODEL_OK ||
	    (rc = config_real(c, rope, "partial_rotary_factor", 1e-3, 1, &part)) != MODEL_OK)
		return rc;
	width = (uint32_t)(id->head_width * part);
	if ((rc = read_channels(c, id, &width)) != MODEL_OK)
		return rc;
	if (width % 2 != 0 || width == 0)
		return BAD(c, "partial_rotary_factor %g of head width %u is %u channels: rotary "
		    "embedding rotates pairs", part, id->head_width, width);
	id->rope_width = width < id->head_width ? width : 0;
	return MODEL_OK;
}

/* Which layers have no rotary embedding: each so many-th, by no_rope_layers (1: it has) or an
 * interval. */
static int
read_skip(struct config *c, struct kv_model *id)
{
	const json_t *list = config_get(c->json, "no_rope_layers");
	uint32_t l, skip = 0;
	int rc;

	if (!(c->family->flags & FAMILY_ROPE_SKIP))
		return MODEL_OK;
	if (list == NULL || json_array_size(list) == 0) {
		rc = config_count(c, c->json, "no_rope_layer_interval", 4096, 4, &id->rope_skip);
		if (id->rope_skip > id->layers)
			id->rope_skip = 0;
		return rc;
	}
	if (json_array_size(list) != id->layers)
		return BAD(c, "no_rope_layers: %zu layers, not %u", json_array_size(list),
		    id->layers);
	for (l = 0; l < id->layers && skip == 0; l++)
		if (config_has(json_array_get(list, l), "0"))
			skip = l + 1;
	for (l = 0; l < id->layers; l++)
		if (!config_has(json_array_get(list, l),
		    skip != 0 && (l + 1) % skip == 0 ? "0" : "1"))
			return UNSUPPORTED(c, "no_rope_layers: only a regular interval is "
			    "supported (layer %u does not fit)", l);
	id->rope_skip = skip;
	return MODEL_OK;
}

/* transformers 5 has an object for each kind of layer. Takes that of layers with a window out of
 * rope_parameters; their theta stands in *theta, 0: nowhere. */
static int
read_window_theta(struct config *c, double *theta)
{
	json_t *both = config_get(c->json, "rope_parameters"), *local, *rest;

	*theta = 0;
	if (!(c->family->flags & (FAMILY_LOCAL_ROPE | FAMILY_PLAIN_WINDOW)))
		return MODEL_OK;
	if (json_object_get(both, "full_attention") != NULL) {
		local = json_object_get(both, "sliding_attention");
		rest = config_get(local, "rope_type");
		if (rest != NULL && !config_has(rest, "\"default\""))
			return config_hint(c, "rope_parameters",
			    UNSUPPORTED(c, "rope_parameters: the "
			    "type of sliding_attention is not \"default\""));
		if (config_hint(c, "rope_parameters", get_theta(c, local, theta)) != MODEL_OK)
			return MODEL_EINVALID;
		rest = json_incref(json_object_get(both, "full_attention"));
		json_object_set_new(c->json, "rope_parameters", rest);
	}
	if (!(c->family->flags & FAMILY_LOCAL_ROPE))
		return MODEL_OK;
	if (*theta == 0)
		*theta = 1e4;
	return config_real(c, c->json, "rope_local_base_freq", 1, 1e15, theta);
}

/* Some exporters write both the old form (rope_theta, rope_scaling) and the new (rope_parameters);
 * what is said twice must be the same. */
int
config_rope(struct config *c, struct model *m)
{
	struct kv_model old, new, *id = &m->id;
	double theta[3];
	int i, rc;

	if ((rc = read_window_theta(c, &id->rope_window_theta)) != MODEL_OK ||
	    (rc = config_hint(c, json_object_get(c->json, "partial_rotary_factor") != NULL ?
	    "partial_rotary_factor" : "rope_parameters.partial_rotary_factor",
	    read_width(c, id))) != MODEL_OK ||
	    (rc = config_hint(c, "no_rope_layers", read_skip(c, id))) != MODEL_OK)
		return rc;
	old = new = *id;                        /* theta 0: not said */
	theta[0] = 0;
	if ((rc = get_theta(c, c->json, &theta[0])) != MODEL_OK ||
	    (rc = read_rope(c, "rope_scaling", m, &old)) != MODEL_OK ||
	    (rc = read_rope(c, "rope_parameters", m, &new)) != MODEL_OK)
		return rc;
	theta[1] = old.rope_theta;
	theta[2] = new.rope_theta;
	if (config_get(c->json, "rope_parameters") == NULL)
		*id = old;
	else if (config_get(c->json, "rope_scaling") == NULL || same_scaling(&old, &new))
		*id = new;
	else
		return BAD(c, "rope_scaling and rope_parameters differ "
		    "(--allow-config ignores one)");
	id->rope_theta = 0;
	for (i = 0; i < 3; i++) {
		if (theta[i] != 0 && id->rope_theta != 0 && theta[i] != id->rope_theta)
			return BAD(c, "rope_theta is %g and %g (--allow-config %s ignores the "
			    "second)", id->rope_theta, theta[i], i == 1 ?
			    "rope_scaling.rope_theta" : "rope_parameters.rope_theta");
		if (theta[i] != 0)
			id->rope_theta = theta[i];
	}
	if (id->rope_theta == 0)
		id->rope_theta = c->family->theta;
	if ((c->family->flags & FAMILY_PLAIN_WINDOW) && id->rope_window_theta == 0)
		id->rope_window_theta = id->rope_theta;
	return MODEL_OK;
}

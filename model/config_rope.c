/* config_rope.c - rotary embedding, as a configuration has it in one object or in two */
#include <string.h>

#include "model/config_internal.h"

/* 1: all pairs of channels turn alike. The greatest in use are some 10^10, for millions of tokens. */
static int
get_theta(struct config *c, const json_t *object, double *theta)
{
	return config_real(c, object, "rope_theta", 1, 1e15, theta);
}

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
		if (config_get(rope, real[i].key) == NULL)
			return BAD(c, "%s: no \"%s\"", where, real[i].key);
		if ((rc = config_real(c, rope, real[i].key, 1e-6, 1e6, real[i].out)) != MODEL_OK)
			return rc;
	}
	if (id->rope_factor < 1)
		return BAD(c, "%s: factor %g is less than 1", where, id->rope_factor);
	if (id->rope_low_freq_factor >= id->rope_high_freq_factor)
		return BAD(c, "%s: low_freq_factor %g is not below high_freq_factor %g", where,
		    id->rope_low_freq_factor, id->rope_high_freq_factor);
	return config_count(c, rope, "original_max_position_embeddings", UINT32_MAX - 1, REQUIRED,
	    &id->rope_original_max_position);
}

/* The types of scaling, with their own keys. */
static const struct type {
	const char *name;
	enum kv_rope kind;
	const char *const *keys;        /* ends with NULL */
} types[] = {
	{ "default", KV_ROPE_DEFAULT, (const char *const []){ NULL } },
	{ "dynamic", KV_ROPE_DEFAULT, (const char *const []){ "factor", NULL } },
	{ "llama3", KV_ROPE_LLAMA3, (const char *const []){ "factor", "low_freq_factor",
	    "high_freq_factor", "original_max_position_embeddings", NULL } },
};

/* A key that the type has no use for might be meant to change something. */
static int
check_rope_keys(struct config *c, json_t *rope, const char *where, const struct type *type)
{
	static const char *const any[] = { "type", "rope_type", "rope_theta",
		"partial_rotary_factor", NULL };
	const char *name, *const *k;
	json_t *v;

	json_object_foreach(rope, name, v) {
		for (k = any; *k != NULL && strcmp(*k, name) != 0; k++)
			;
		for (k = *k != NULL ? k : type->keys; *k != NULL && strcmp(*k, name) != 0; k++)
			;
		if (*k == NULL && !json_is_null(v))
			return UNSUPPORTED(c, "%s: key \"%s\" is unknown for this type: it may "
			    "change the arithmetic (--allow-config %s.%s passes over it)", where,
			    name, where, name);
	}
	v = config_get(rope, "partial_rotary_factor");
	if (v != NULL && !config_has(v, "1"))
		return UNSUPPORTED(c, "%s: partial_rotary_factor is not 1", where);
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
		return BAD(c, "%s: rope_type and type differ", where);
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

/* One of the two objects that can hold it; sets the rope fields of m->id, which are zero before. */
static int
read_rope(struct config *c, const char *where, struct model *m, struct kv_model *id)
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
		model_end_at(m, m->max_position, "rotary embedding of type dynamic gives all tokens "
		    "other angles in a longer text");
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
int
config_rope(struct config *c, struct model *m)
{
	struct kv_model old, new, *id = &m->id;
	double theta[3];
	int i, rc;

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
		return BAD(c, "rope_scaling and rope_parameters differ");
	id->rope_theta = 0;
	for (i = 0; i < 3; i++) {
		if (theta[i] != 0 && id->rope_theta != 0 && theta[i] != id->rope_theta)
			return BAD(c, "rope_theta is %g and %g", id->rope_theta, theta[i]);
		if (theta[i] != 0)
			id->rope_theta = theta[i];
	}
	if (id->rope_theta == 0)
		id->rope_theta = c->family->theta;
	return MODEL_OK;
}

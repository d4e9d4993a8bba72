/* config_window.c - sliding-window attention: how far queries see, and in which layers */
#include <string.h>

#include "model/config_internal.h"

/* *window <- how many positions a query sees; 0: all */
static int
read_window_size(struct config *c, uint32_t *window)
{
	int on = !(c->family->flags & FAMILY_WINDOW_SWITCH);
	int rc = config_flag(c, c->json, "use_sliding_window", &on);

	*window = on ? c->family->window : 0;
	if (rc != MODEL_OK || !on || json_object_get(c->json, "sliding_window") == NULL)
		return rc;
	*window = 0;
	if (config_get(c->json, "sliding_window") == NULL)
		return MODEL_OK;
	return config_hint(c, "sliding_window", config_count(c, c->json, "sliding_window",
	    UINT32_MAX - 1, REQUIRED, window));
}

/* Does a query see all rows in layer l? *types: layer_types, or NULL */
static int
sees_all(const struct config *c, const struct kv_model *id, const json_t *types, uint32_t l)
{
	const json_t *pattern = config_get(c->json, "sliding_window_pattern");
	const json_int_t every = json_is_integer(pattern) ? json_integer_value(pattern) :
	    c->family->whole_every;
	const json_t *first = config_get(c->json, "max_window_layers");

	if (types != NULL)
		return config_has(json_array_get(types, l), "\"full_attention\"");
	/* EXAONE: "LLLG", and the last layer sees all */
	if (json_string_length(pattern) > 0)
		return l + 1 == id->layers || json_string_value(pattern)[
		    l % json_string_length(pattern)] == 'G';
	if (every > 0)
		return (l + 1) % every == 0;
	/* SmolLM3: the layers without rotary embedding */
	if (c->family->flags & FAMILY_ROPE_SKIP)
		return kv_rope_dims(id, l) != 0;
	return (c->family->flags & FAMILY_WINDOW_SWITCH) && json_is_integer(first) &&
	    json_integer_value(first) > l;
}

/* *limited <- how many layers of the list have a window */
static int
check_layer_types(struct config *c, const json_t *types, size_t *limited)
{
	char text[64];
	size_t i;

	*limited = 0;
	for (i = 0; i < json_array_size(types); i++) {
		const json_t *v = json_array_get(types, i);

		if (config_has(v, "\"sliding_attention\""))
			++*limited;
		else if (!config_has(v, "\"full_attention\""))
			return UNSUPPORTED(c, "layer_types: %s is not supported",
			    config_show(v, text, sizeof text));
	}
	return MODEL_OK;
}

/* The layers that are limited by id->window */
static int
find_layers(struct config *c, struct kv_model *id, const json_t *types, size_t limited)
{
	const size_t n = json_array_size(types);
	uint32_t l, whole = 0;

	if (types != NULL && !(c->family->flags & FAMILY_LAYER_TYPES) && limited != n)
		return UNSUPPORTED(c, "layer_types: models of type %s have the same window in all "
		    "layers", c->family->type);
	if (types != NULL && n != id->layers)
		return BAD(c, "layer_types: %zu layers, not %u", n, id->layers);
	for (l = 0; l < id->layers; l++)
		if (sees_all(c, id, types, l)) {
			id->whole[l / 8] |= (uint8_t)(1u << l % 8);
			whole++;
		}
	if (whole == id->layers) {
		memset(id->whole, 0, sizeof id->whole);
		id->window = 0;
	}
	return MODEL_OK;
}

/* Layers that see all have no rotary embedding where others have a window. */
static int
skip_rope(struct config *c, struct kv_model *id)
{
	uint32_t l, skip = 0;

	if (!(c->family->flags & FAMILY_WINDOW_ROPE))
		return MODEL_OK;
	for (l = 0; l < id->layers && skip == 0; l++)
		if (kv_layer_window(id, l) == 0)
			skip = l + 1;
	for (l = 0; l < id->layers; l++)
		if ((kv_layer_window(id, l) == 0) != (skip != 0 && (l + 1) % skip == 0))
			return UNSUPPORTED(c, "layer_types: only a regular interval of layers "
			    "that see all is supported (layer %u does not fit)", l);
	id->rope_skip = skip;
	return MODEL_OK;
}

/* In a family that does not know windows, a text ends where one would matter. */
int
config_window(struct config *c, struct model *m)
{
	const json_t *types = config_get(c->json, "layer_types");
	struct kv_model *id = &m->id;
	uint32_t size;
	size_t limited;
	int rc;

	if ((rc = config_hint(c, "layer_types", check_layer_types(c, types, &limited))) !=
	    MODEL_OK || (rc = read_window_size(c, &size)) != MODEL_OK)
		return rc;
	id->window = size;
	if (types != NULL && limited == 0)
		id->window = 0;
	if (id->window != 0 && !(c->family->flags & FAMILY_WINDOW)) {
		model_end_at(m, id->window, "config.json has a sliding window, which this type of "
		    "model does not support");
		id->window = 0;
	}
	if (id->window != 0 && (rc = config_hint(c, "layer_types", find_layers(c, id, types,
	    limited))) != MODEL_OK)
		return rc;
	if (size != 0 && (rc = config_hint(c, "layer_types", skip_rope(c, id))) != MODEL_OK)
		return rc;
	if (id->window == 0 || (id->rope_window_theta == id->rope_theta &&
	    id->rope_type == KV_ROPE_DEFAULT))
		id->rope_window_theta = 0;
	return MODEL_OK;
}

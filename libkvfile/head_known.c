/* head_known.c - finds in a HEAD what a later version of the format may have
 *
 * The section has its hash: these are the bytes that a writer wrote. So a key or text that is in
 * no table is looked for before anything else, whose range may have changed with it. */

#include "head_fields.h"
#include "jsontext.h"

#include <string.h>

static int
is_dtype(const char *text)
{
	return kv_dtype_size(kv_dtype_named(text)) != 0;
}

static int
is_row_type(const char *text)
{
	return kv_row_type_named(text) != 0;
}

static int
is_rope(const char *text)
{
	return strcmp(text, "rope") == 0;
}

static int
is_rope_type(const char *text)
{
	const char *name;
	int i;

	for (i = 0; (name = kv_rope_name((enum kv_rope)i)) != NULL; i++)
		if (strcmp(text, name) == 0)
			return 1;
	return 0;
}

/* v: a text, or something that is refused later */
static int
check_text(const json_t *v, const char *key, int (*known)(const char *), struct kv_message *why)
{
	if (!json_is_string(v) || known(json_string_value(v)))
		return KV_OK;
	return kv_say(why, KV_EVERSION, "%s \"%.40s\" is not known", key, json_string_value(v));
}

static int
check_texts(const json_t *list, const char *key, struct kv_message *why)
{
	size_t i;

	for (i = 0; i < json_array_size(list); i++)
		if (check_text(json_array_get(list, i), key, is_row_type, why) != KV_OK)
			return why->code;
	return KV_OK;
}

/* Looks for keys that are not among the fields, whatever the type of rotary embedding. */
static int
check_keys(json_t *o, const struct head_field *fields, const char *name, struct kv_message *why)
{
	const struct head_field *f;
	const char *key;
	json_t *v;

	json_object_foreach(o, key, v) {
		for (f = fields; f->key != NULL && strcmp(key, f->key) != 0; f++)
			;
		if (f->key == NULL)
			return kv_say(why, KV_EVERSION, "%s.%.60s is not known", name, key);
	}
	return KV_OK;
}

int
kv_head_known(const json_t *o, struct kv_message *why)
{
	static const struct head_field type_fields[] = { { .key = "keys" }, { .key = "residual" },
		{ .key = "values" }, { .key = NULL } };
	json_t *model = json_object_get(o, "model"), *rope = json_object_get(model, "rope");
	json_t *types = json_object_get(o, "row_types");

	if (check_text(json_object_get(o, "dtype"), "dtype", is_dtype, why) != KV_OK ||
	    check_text(json_object_get(o, "keys"), "keys", is_rope, why) != KV_OK ||
	    check_text(json_object_get(model, "weights_dtype"), "weights_dtype", is_dtype, why) !=
	    KV_OK || check_text(json_object_get(rope, "type"), "rope.type", is_rope_type, why) !=
	    KV_OK || check_keys(model, kv_model_fields, "model", why) != KV_OK ||
	    check_keys(rope, kv_rope_fields, "rope", why) != KV_OK ||
	    check_keys(types, type_fields, "row_types", why) != KV_OK ||
	    check_texts(json_object_get(types, "keys"), "row_types.keys", why) != KV_OK ||
	    check_texts(json_object_get(types, "values"), "row_types.values", why) != KV_OK)
		return why->code;
	return KV_OK;
}

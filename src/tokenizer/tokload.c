/* tokload.c - what the parts that read tokenizer.json share: messages, and values of the right
 * type */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/tokload.h"
#include "tokenizer/utf8.h"

int
load_fail(struct load *l, int code, const char *fmt, ...)
{
	va_list ap;
	int n;

	n = snprintf(l->err, l->errlen, "%s: ", l->path);
	if (n >= 0 && (size_t)n < l->errlen) {
		va_start(ap, fmt);
		vsnprintf(l->err + n, l->errlen - (size_t)n, fmt, ap);
		va_end(ap);
	}
	return code;
}

int
load_no_memory(struct load *l)
{
	return load_fail(l, TOKENIZER_ENOMEM, "no memory");
}

int
load_is_off(const json_t *v)
{
	if (v == NULL)
		return 1;
	switch (json_typeof(v)) {
	case JSON_NULL: case JSON_FALSE:
		return 1;
	case JSON_STRING:
		return json_string_length(v) == 0;
	case JSON_INTEGER: case JSON_REAL:
		return json_number_value(v) == 0;
	case JSON_ARRAY:
		return json_array_size(v) == 0;
	case JSON_OBJECT:
		return json_object_size(v) == 0;
	default:
		return 0;
	}
}

int
load_only(struct load *l, const char *place, json_t *object, const char *known)
{
	const char *key, *p;
	json_t *value;
	size_t n;

	if (!json_is_object(object))
		return load_fail(l, TOKENIZER_EINVALID, "%s is not an object", place);
	json_object_foreach(object, key, value) {
		n = strlen(key);
		for (p = n > 0 ? strstr(known, key) : NULL; p != NULL; p = strstr(p + 1, key))
			if (p > known && p[-1] == ' ' && p[n] == ' ')
				break;
		if (p == NULL && !load_is_off(value))
			return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s.%s is set, and not "
			    "supported", place, key);
	}
	return 0;
}

int
load_bool(struct load *l, const char *place, json_t *object, const char *key, int *value)
{
	json_t *v = json_object_get(object, key);

	if (!json_is_boolean(v))
		return load_fail(l, TOKENIZER_EINVALID, "%s.%s is %s", place, key,
		    v == NULL ? "missing" : "not true or false");
	*value = json_is_true(v);
	return 0;
}

int
load_string(struct load *l, const char *place, json_t *object, const char *key,
    const char **value)
{
	json_t *v = json_object_get(object, key);

	if (!json_is_string(v))
		return load_fail(l, TOKENIZER_EINVALID, "%s.%s is %s", place, key,
		    v == NULL ? "missing" : "not a string");
	*value = json_string_value(v);
	return 0;
}

int
load_each(struct load *l, const char *place, json_t *component, const char *list, load_reader *read)
{
	char inner[96];
	const char *type;
	json_t *parts, *part;
	size_t i;
	int rc;

	if (!json_is_object(component))
		return load_fail(l, TOKENIZER_EINVALID, "%s is not an object", place);
	if ((rc = load_string(l, place, component, "type", &type)) != 0)
		return rc;
	if (strcmp(type, "Sequence") != 0)
		return read(l, place, component, type, 1);
	if ((rc = load_only(l, place, component,
		 " type normalizers pretokenizers processors decoders ")) != 0)
		return rc;
	parts = json_object_get(component, list);
	if (!json_is_array(parts))
		return load_fail(l, TOKENIZER_EINVALID, "%s.%s is %s", place, list,
		    parts == NULL ? "missing" : "not an array");
	json_array_foreach(parts, i, part) {
		snprintf(inner, sizeof(inner), "%s.%s[%zu]", place, list, i);
		if (!json_is_object(part))
			return load_fail(l, TOKENIZER_EINVALID, "%s is not an object", inner);
		if ((rc = load_string(l, inner, part, "type", &type)) != 0 ||
		    (rc = read(l, inner, part, type, i + 1 == json_array_size(parts))) != 0)
			return rc;
	}
	return 0;
}

int
load_not_supported(struct load *l, const char *place, const char *type)
{
	return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: %s is not supported", place, type);
}

int
load_character(struct load *l, const char *place, json_t *object, const char *key,
    const char **value)
{
	unsigned used;
	int rc;

	if ((rc = load_string(l, place, object, key, value)) != 0)
		return rc;
	if (**value != '\0')
		utf8_get(*value, &used);
	if (**value == '\0' || (*value)[used] != '\0')
		return load_fail(l, TOKENIZER_EINVALID, "%s.%s is not one character", place, key);
	return 0;
}

int
load_pattern(struct load *l, const char *place, json_t *component, const char **string,
    const char **regex)
{
	json_t *pattern = json_object_get(component, "pattern");

	*regex = json_string_value(json_object_get(pattern, "Regex"));
	*string = json_string_value(json_object_get(pattern, "String"));
	if (*regex == NULL && *string == NULL)
		return load_fail(l, TOKENIZER_EINVALID, "%s.pattern is neither a Regex nor a "
		    "String", place);
	return 0;
}

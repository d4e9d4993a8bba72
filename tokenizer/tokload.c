/* tokload.c - what all parts of reading tokenizer.json use: messages, and values of the right
 * type */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/tokload.h"

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
		for (p = strstr(known, key); p != NULL; p = strstr(p + 1, key))
			if (n > 0 && p[-1] == ' ' && p[n] == ' ')
				break;
		if (p == NULL && !load_is_off(value))
			return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s.%s is set, and not supported",
			    place, key);
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

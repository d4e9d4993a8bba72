/* jsontext.c - JSON text of a snapshot
 *
 * Parsers differ in what they accept, so the specification says what every reader accepts.
 * jansson always refuses integers beyond 64 bits, reals beyond f64, U+0000 and lone surrogates,
 * and repeated keys with a flag. It allows deeper nesting than others, and a zero byte after a
 * number. */

#include "jsontext.h"

#include <string.h>

#define DEPTH_MOST 64

/* Returns the depth of nested objects and lists, in text that may not be JSON. */
static size_t
depth(const char *text, size_t size)
{
	size_t i, open = 0, most = 0;
	int quoted = 0;

	for (i = 0; i < size; i++) {
		if (text[i] == '"')
			quoted = !quoted;
		else if (quoted)
			i += text[i] == '\\';
		else if (text[i] == '{' || text[i] == '[')
			most = ++open > most ? open : most;
		else if ((text[i] == '}' || text[i] == ']') && open > 0)
			open--;
	}
	return most;
}

json_t *
kv_json_object(const char *text, size_t size, struct kv_message *why)
{
	const char *zero = memchr(text, '\0', size);
	json_error_t error;
	json_t *o;

	if (zero != NULL) {
		kv_bad(why, "not JSON: byte %zu is zero", (size_t)(zero - text));
		return NULL;
	}
	if (depth(text, size) > DEPTH_MOST) {
		kv_bad(why, "more than %d JSON objects and lists inside each other", DEPTH_MOST);
		return NULL;
	}
	o = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
	if (o == NULL)
		kv_bad(why, "not JSON: byte %d: %s", error.position,
		    json_error_code(&error) == json_error_null_byte_in_key ||
		    json_error_code(&error) == json_error_null_character ?
		    "a zero character (\\u0000)" : error.text);
	else if (!json_is_object(o)) {
		kv_bad(why, "not a JSON object");
		json_decref(o);
		o = NULL;
	}
	return o;
}

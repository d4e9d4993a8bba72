/* json_text.c - texts from outside in JSON: file names, generated text
 *
 * Apart from json.c, so that programs without such texts are not linked with tokenizer/'s
 * UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/tool.h"
#include "tokenizer/tokenizer.h"

void
put_bytes(json_t *o, const char *key, const char *text, size_t n)
{
	struct utf8_stream utf8 = { .n = 0 };
	char *whole = must_alloc(3 * n + 12, 1);
	size_t len = utf8_push(&utf8, text, n, whole);

	len += utf8_flush(&utf8, whole + len);
	put_value(o, key, json_stringn(whole, len));
	free(whole);
}

void
put_text(json_t *o, const char *key, const char *text)
{
	put_bytes(o, key, text, strlen(text));
}

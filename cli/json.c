/* json.c - memory of the JSON library, JSON on standard output */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/json.h"
#include "cli/tool.h"

/* Other threads may be at work: die() does not care. */
static void *
allocate(size_t size)
{
	void *p = malloc(size);

	if (p == NULL)
		die(EXIT_RUN, "out of memory (JSON, %zu bytes)", size);
	return p;
}

void
json_must_allocate(void)
{
	json_set_alloc_funcs(allocate, free);
}

void
put(json_t *o, const char *key, json_t *value)
{
	if (json_object_set_new(o, key, value) != 0)
		die(EXIT_RUN, "JSON: '%s': out of memory, or not UTF-8", key);
}

void
put_count(json_t *o, const char *key, uint64_t n)
{
	put(o, key, json_integer((json_int_t)n));
}

void
put_real(json_t *o, const char *key, double x)
{
	put(o, key, isfinite(x) ? json_real(x) : json_null());
}

/* A part of the text. jansson escapes control characters below U+0020; U+007F to U+009F, which
 * stand in strings only, are escaped here. A character of several bytes is in one part. */
static int
write_part(const char *text, size_t n, void *with)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + n;
	FILE *f = with;

	for (; p < end; p++) {
		if (*p == 0x7f || (*p == 0xc2 && p + 1 < end && p[1] <= 0x9f)) {
			p += *p == 0xc2;
			fprintf(f, "\\u%04x", *p);
		} else
			putc(*p, f);
	}
	return ferror(f) ? -1 : 0;
}

void
print_json(json_t *o)
{
	if (json_dump_callback(o, write_part, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0)
		die(EXIT_RUN, "stdout:");
	putchar('\n');
	json_decref(o);
}

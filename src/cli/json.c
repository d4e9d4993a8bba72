/* json.c - memory of the JSON library, JSON on standard output */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

/* die() is safe while other threads run. */
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
put_value(json_t *o, const char *key, json_t *value)
{
	if (json_object_set_new(o, key, value) != 0)
		die(EXIT_RUN, "JSON: '%s': out of memory, or not UTF-8", key);
}

void
put_count(json_t *o, const char *key, uint64_t n)
{
	put_value(o, key, json_integer((json_int_t)n));
}

void
put_real(json_t *o, const char *key, double x)
{
	put_value(o, key, isfinite(x) ? json_real(x) : json_null());
}

/* Writes a part of the text; with: int, columns of indentation after a newline. jansson escapes
 * control characters below U+0020; U+007F to U+009F, which occur in strings only, are escaped
 * here. A multibyte character is never split between parts. */
static int
write_part(const char *text, size_t n, void *with)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + n, *from = p;
	const int *columns = with;

	for (; p < end; p++)
		if (*p == '\n' && *columns > 0) {
			fwrite(from, 1, (size_t)(p + 1 - from), stdout);
			printf("%*s", *columns, "");
			from = p + 1;
		} else if (*p == 0x7f || (*p == 0xc2 && p + 1 < end && p[1] <= 0x9f)) {
			fwrite(from, 1, (size_t)(p - from), stdout);
			p += *p == 0xc2;
			printf("\\u%04x", *p);
			from = p + 1;
		}
	fwrite(from, 1, (size_t)(end - from), stdout);
	return ferror(stdout) ? -1 : 0;
}

static const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(17);

/* Prints o, and drops it. */
static void
print_as(json_t *o, int columns, size_t how)
{
	if (json_dump_callback(o, write_part, &columns, how) != 0)
		stdout_failed(NULL);
	json_decref(o);
}

static void
print_at(json_t *o, int columns)
{
	print_as(o, columns, flags);
}

void
print_json(json_t *o)
{
	print_at(o, 0);
	putchar('\n');
}

void
print_json_line(json_t *o)
{
	print_as(o, 0, JSON_REAL_PRECISION(17));
	if (putchar('\n') == EOF || fflush(stdout) != 0)
		stdout_failed(NULL);
}

static size_t printed;          /* elements printed of the current list */

void
print_json_begin(json_t *o, const char *key)
{
	char *text = json_dumps(o, flags);
	int columns = 0;

	if (text == NULL)
		die(EXIT_RUN, "JSON: out of memory");
	write_part(text, strlen(text) - strlen("\n}"), &columns);
	printf(",\n  \"%s\": [", key);
	printed = 0;
	free(text);
	json_decref(o);
}

void
print_json_element(json_t *element)
{
	fputs(printed++ > 0 ? ",\n    " : "\n    ", stdout);
	print_at(element, 4);
}

void
print_json_end(void)
{
	puts(printed > 0 ? "\n  ]\n}" : "]\n}");
}

void
write_json(const char *path, json_t *o)
{
	FILE *f = text_create(path);

	if (json_dumpf(o, f, flags) != 0 || fputc('\n', f) == EOF)
		die(EXIT_RUN, "%s:", path);
	text_commit(f);
	json_decref(o);
}

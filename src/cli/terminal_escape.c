/* terminal_escape.c - escapes control characters in texts */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal_escape.h"

enum { TEXTS = 8 };

static int
continues(unsigned char byte)
{
	return (byte & 0xc0) == 0x80;
}

/* Returns the length of the UTF-8 character at p by its first byte; 0: none. */
static int
letter(const unsigned char *p)
{
	const int n = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : *p >= 0xc0 ? 2 : 0;
	int i;

	for (i = 1; i < n; i++)
		if (!continues(p[i]))
			return 0;
	return n;
}

/* Returns the length of the control character at p; 0: none. U+0080 to U+009F have two bytes in
 * UTF-8; a terminal without UTF-8 takes such a single byte, which is no valid character. */
static int
control(const unsigned char *p)
{
	if (*p < 0x20 || *p == 0x7f || (*p >= 0x80 && *p <= 0x9f))
		return 1;
	return *p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f ? 2 : 0;
}

static char *
escape(char *to, const unsigned char *p, int n)
{
	if (*p == '\n' || *p == '\t')
		return to + sprintf(to, "\\%c", *p == '\n' ? 'n' : 't');
	while (n-- > 0)
		to += sprintf(to, "\\x%02x", *p++);
	return to;
}

const char *
shown(const char *text)
{
	static char *texts[TEXTS];
	static unsigned next;
	const unsigned char *p = (const unsigned char *)text;
	char *to;
	int n;

	for (; *p != '\0' && control(p) == 0; p += letter(p) > 0 ? letter(p) : 1)
		;
	if (*p == '\0')
		return text;
	free(texts[next]);
	if ((texts[next] = to = malloc(4 * strlen(text) + 1)) == NULL)
		return "(out of memory)";
	for (p = (const unsigned char *)text; *p != '\0'; p += n)
		if ((n = control(p)) > 0) {
			to = escape(to, p, n);
		} else {
			n = letter(p) > 0 ? letter(p) : 1;
			memcpy(to, p, (size_t)n);
			to += n;
		}
	*to = '\0';
	to = texts[next];
	next = (next + 1) % TEXTS;
	return to;
}

/* Returns whether the byte at p of text up to `end` begins a control character to escape. *n <-
 * its bytes, or those of the character */
static int
is_unfit(const unsigned char *p, const unsigned char *end, int *n)
{
	unsigned char c[5] = { 0 };

	memcpy(c, p, end - p < 4 ? (size_t)(end - p) : 4);
	if (*c == 0) {
		*n = 1;
		return 1;
	}
	if (*c != '\n' && *c != '\t' && (*n = control(c)) > 0)
		return 1;
	*n = letter(c) > 0 ? letter(c) : 1;
	return 0;
}

int
write_shown(FILE *to, const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + n, *from = p;
	char escaped[16];
	int used;

	if (!isatty(fileno(to)))
		return fwrite(text, 1, n, to) == n ? 0 : -1;
	for (; p < end; p += used) {
		if (!is_unfit(p, end, &used))
			continue;
		fwrite(from, 1, (size_t)(p - from), to);
		fwrite(escaped, 1, (size_t)(escape(escaped, p, used) - escaped), to);
		from = p + used;
	}
	fwrite(from, 1, (size_t)(end - from), to);
	return ferror(to) ? -1 : 0;
}

/* escape.c - control characters in texts that are shown */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/escape.h"

enum { TEXTS = 8 };

/* How many bytes at p are a control character; 0: none. U+0080 to U+009F are two. */
static int
control(const unsigned char *p)
{
	if (*p < 0x20 || *p == 0x7f)
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

	for (; *p != '\0' && control(p) == 0; p++)
		;
	if (*p == '\0')
		return text;
	free(texts[next]);
	if ((texts[next] = to = malloc(4 * strlen(text) + 1)) == NULL)
		return "(out of memory)";
	for (p = (const unsigned char *)text; *p != '\0'; p += n > 0 ? n : 1)
		if ((n = control(p)) > 0)
			to = escape(to, p, n);
		else
			*to++ = (char)*p;
	*to = '\0';
	to = texts[next];
	next = (next + 1) % TEXTS;
	return to;
}

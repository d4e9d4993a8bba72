/* headtable.c - text with a line for each layer and an item for each KV head
 *
 * Items are separated by blanks, tabs or commas; # begins a comment, empty lines are ignored. What
 * an item may be, its reader knows (headmask.c, headbudget.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/headtable.h"

enum { MOST = 4096 };           /* layers and KV heads, kv-snapshot(5), 4.1 */

static int
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

/* line[] <- the items of one line. Returns how many, or -1 with why. */
static int
parse_line(const struct head_table *table, char *line, const char *p, const char *end, char *why,
    size_t size)
{
	char word[64];
	size_t length;
	int n = 0;

	for (;; p += length) {
		while (p < end && is_blank(*p))
			p++;
		if (p == end || *p == '#')
			return n;
		if (n == MOST) {
			snprintf(why, size, "column %d: no layer has so many heads", n + 1);
			return -1;
		}
		for (length = 0; p + length < end && !is_blank(p[length]) && p[length] != '#';)
			length++;
		snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length :
		    sizeof word), p);
		n++;
		if (length >= sizeof word || !table->read(line + (n - 1) * table->size, word)) {
			snprintf(why, size, "column %d: '%s' is %s", n, word, table->wanted);
			return -1;
		}
	}
}

/* Adds a line of n items. */
static int
add_line(struct head_table *table, const char *line, uint32_t n, char *why, size_t size)
{
	char *item;

	if (table->layers > 0 && n != table->heads) {
		snprintf(why, size, "column %u: the lines before have %u numbers, this one %u",
		    (n < table->heads ? n : table->heads) + 1, table->heads, n);
		return TABLE_ETEXT;
	}
	if (table->layers == MOST) {
		snprintf(why, size, "column 1: more lines than a model has layers");
		return TABLE_ETEXT;
	}
	table->heads = n;
	item = realloc(table->item, ((size_t)table->layers + 1) * n * table->size);
	if (item == NULL)
		return TABLE_ENOMEM;
	memcpy(item + (size_t)table->layers++ * n * table->size, line, n * table->size);
	table->item = item;
	return TABLE_OK;
}

int
head_table_parse(struct head_table *table, const char *text, size_t len, char *why, size_t size)
{
	const char *p = text, *end;
	char *line = malloc(MOST * table->size);
	char what[160] = "column 1: there are no numbers";
	unsigned number = 1;
	int n, code = line != NULL ? TABLE_OK : TABLE_ENOMEM;

	for (; code == TABLE_OK && p < text + len; p = end + 1, number++) {
		if ((end = memchr(p, '\n', (size_t)(text + len - p))) == NULL)
			end = text + len;
		if ((n = parse_line(table, line, p, end, what, sizeof what)) < 0)
			code = TABLE_ETEXT;
		else if (n > 0)
			code = add_line(table, line, (uint32_t)n, what, sizeof what);
		if (code == TABLE_ETEXT)
			snprintf(why, size, "line %u %s", number, what);
	}
	if (code == TABLE_OK && table->layers == 0) {
		snprintf(why, size, "line 1 %s", what);
		code = TABLE_ETEXT;
	}
	if (code != TABLE_OK) {
		free(table->item);
		table->item = NULL;
	}
	free(line);
	return code;
}

/* option_words.c - options of another program as words in the value of one option: --evict
 * "heads='my mask.tsv' sink=4"
 *
 * White space separates words. Quotes and backslashes make characters literal, as in sh, so
 * that a value can be any file name; nothing is expanded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/nearest_name.h"
#include "cli/old_options.h"
#include "cli/tool_internal.h"

#define BLANK " \t\n"

static const struct opt *
with_name(const struct opt *table, const char *name)
{
	while (table->name != NULL && strcmp(table->name, name) != 0)
		table++;
	return table;
}

/* Returns ": did you mean NAME?"; if no name is near, ", only " and all names. */
static const char *
which_words(const struct opt *table, const char *word)
{
	static char all[512];
	struct nearest_name g;
	const char *near;
	size_t n = 0;

	nearest_name_start(&g, word);
	n += (size_t)snprintf(all, sizeof all, ", only");
	for (; table->name != NULL; table++) {
		nearest_name_try(&g, table->name, "");
		if (n < sizeof all)
			n += (size_t)snprintf(all + n, sizeof all - n, " %s", table->name);
	}
	near = nearest_name_text(&g, "");
	return *near != '\0' ? near : all;
}

/* Sets one word, "name=value", or "name" for a flag; cuts the text in two. */
static void
set_word(const char *option, char *word, const struct opt *table)
{
	char *value = strchr(word, '='), where[128];
	const struct opt *o;
	const char *now;

	if (value != NULL)
		*value++ = '\0';
	o = with_name(table, word);
	snprintf(where, sizeof where, "--%s", option);
	if (o->name == NULL && (now = old_option(where, word)) != NULL)
		die(EXIT_USAGE, "%s: %s= is now %s", where, word, now);
	snprintf(where, sizeof where, "--%s: %s", option, word);
	if (o->name == NULL)
		die(EXIT_USAGE, "--%s: there is no option '%s'%s", option, word,
		    which_words(table, word));
	if (o->kind != OPT_FLAG && (value == NULL || *value == '\0'))
		die(EXIT_USAGE, "%s needs a value: %s=%s", where, word, o->arg);
	if (o->kind == OPT_FLAG && value != NULL && strcmp(value, "0") != 0 &&
	    strcmp(value, "1") != 0)
		die(EXIT_USAGE, "%s takes no value but 0 or 1", where);
	if (o->kind != OPT_FLAG || value == NULL || *value == '1')
		option_set(o, where, value);
}

/* Returns a word without its quotes, in memory that is never freed, since it may become an
 * option's value. NULL if the text has none. *rest <- the text after it. */
static char *
take_word(const char *option, const char *text, const char **rest)
{
	static struct strings words;
	const char *p = text + strspn(text, BLANK);
	char *word, *to, quote = '\0';

	*rest = p;
	if (*p == '\0')
		return NULL;
	to = word = must_alloc(strlen(p) + 1, 1);
	option_append(&words, word);
	for (; *p != '\0' && (quote != '\0' || strchr(BLANK, *p) == NULL); p++)
		if (quote == '\0' && (*p == '\'' || *p == '"'))
			quote = *p;
		else if (*p == quote)
			quote = '\0';
		else if (*p == '\\' && p[1] != '\0' &&
		    (quote == '\0' || (quote == '"' && strchr("\"\\", p[1]) != NULL)))
			*to++ = *++p;
		else
			*to++ = *p;
	if (quote != '\0')
		die(EXIT_USAGE, "--%s: the quote %c is not closed", option, quote);
	*rest = p;
	return word;
}

const char *
option_word(const char *option, const char *text, const char **rest)
{
	const char *word = take_word(option, text, rest);

	return word != NULL ? word : "";
}

void
options_words(const char *option, const char *text, const struct opt *table)
{
	char *word;

	while ((word = take_word(option, text, &text)) != NULL)
		set_word(option, word, table);
}

char *
option_reworded(const char *option, const char *text, const char *name, const char *value)
{
	const char *from = text, *to = text, *at = text, *word;
	const size_t n = strlen(name);
	char *own = must_alloc(strlen(text) + n + strlen(value) + 2, 1);

	while ((word = take_word(option, at, &at)) != NULL)
		if (strncmp(word, name, n) == 0 && word[n] == '=')
			to = at;
	/* finds the start of the last word: where the previous one ended */
	for (at = text; at < to; take_word(option, at, &at))
		from = at;
	from += strspn(from, BLANK);
	sprintf(own, "%.*s%s=%s%s", (int)(from - text), text, name, value, to);
	return own;
}

/* method.c - the table of methods, made from list.h */
#include <string.h>
#include <strings.h>

#include "methods/scorers.h"

const struct method methods[] = {
#define LISTS(n) lists_##n
#define OP(n) NULL
#define NO_OP NULL
#define METHOD(n, needed, used, op, others, text, ...) { \
	.name = #n, .needs = (needed), .score = score_##n, .lists = op, .aliases = (others), \
	.about = (text), .defaults = { __VA_ARGS__ }, .uses = (used) },
#include "methods/list.h"
#undef METHOD
#undef NO_OP
#undef OP
#undef LISTS
	{ .name = NULL }
};

const struct method *
method_named(const char *name)
{
	const struct method *m;

	for (m = methods; m->name != NULL; m++)
		if (strcasecmp(m->name, name) == 0 || names_word(m->aliases, name))
			return m;
	return NULL;
}

int
names_word(const char *words, const char *word)
{
	size_t n = strlen(word);
	const char *at = words;

	if (n == 0 || strchr(word, ' ') != NULL)
		return 0;
	while ((at = strcasestr(at, word)) != NULL) {
		if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
			return 1;
		at += n;
	}
	return 0;
}

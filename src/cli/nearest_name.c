/* nearest_name.c - finds the known name that is nearest to an unknown word
 *
 * The distance is that of Damerau and Levenshtein in its restricted form (optimal string
 * alignment): the number of letters to insert, drop, change, or exchange with their neighbour,
 * each place once. Case is ignored. A name is near if the distance is at most a third of its
 * length. A name that begins with the word is preferred if it is the only one. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/nearest_name.h"

enum { LONGEST = 63 };          /* letters of a name */

static int
same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t
least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* a and b have at most LONGEST letters. */
static size_t
edit_distance(const char *a, size_t n, const char *b, size_t m)
{
	size_t d[3][LONGEST + 1], *two = d[0], *one = d[1], *now = d[2], *t, i, j;

	for (j = 0; j <= m; j++)
		one[j] = j;
	for (i = 1; i <= n; i++) {
		now[0] = i;
		for (j = 1; j <= m; j++) {
			now[j] = least(least(one[j], now[j - 1]) + 1,
			    one[j - 1] + !same(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
				now[j] = least(now[j], two[j - 2] + 1);
		}
		t = two;
		two = one;
		one = now;
		now = t;
	}
	return one[m];
}

void
nearest_name_start(struct nearest_name *g, const char *word)
{
	*g = (struct nearest_name){ .word = word };
}

/* Returns whether name[len] begins with the word. */
static int
begins_with(const char *name, size_t len, const char *word)
{
	for (; *word != '\0' && len > 0 && same(*word, *name); word++, name++, len--)
		;
	return *word == '\0';
}

static void
try_near(struct nearest_name *g, const char *name, size_t len)
{
	const size_t n = strlen(g->word);
	size_t distance;

	if (n > LONGEST || len > LONGEST)
		return;
	distance = edit_distance(g->word, n, name, len);
	if (distance * 3 <= len && (g->near == NULL || distance < g->distance)) {
		g->near = name;
		g->near_len = len;
		g->distance = distance;
	}
}

/* Returns 1 if one of the names begins with the word. */
static int
try_all(struct nearest_name *g, const char *names)
{
	int begins = 0;
	size_t n;

	for (; *names != '\0'; names += n + (names[n] != '\0')) {
		n = strcspn(names, " ");
		try_near(g, names, n);
		if (!begins_with(names, n, g->word))
			continue;
		begins = 1;
		if (g->begins == NULL) {
			g->begins = names;
			g->begins_len = n;
		}
	}
	return begins;
}

void
nearest_name_try(struct nearest_name *g, const char *name, const char *aliases)
{
	int begins;

	if (*g->word == '\0')
		return;
	begins = try_all(g, name);
	g->n_begin += try_all(g, aliases) || begins;
}

const char *
nearest_name_text(const struct nearest_name *g, const char *prefix)
{
	static char text[LONGEST + 64];

	if (g->n_begin == 1)
		snprintf(text, sizeof text, ": did you mean %s%.*s?", prefix, (int)g->begins_len,
		    g->begins);
	else if (g->near != NULL)
		snprintf(text, sizeof text, ": did you mean %s%.*s?", prefix, (int)g->near_len,
		    g->near);
	else
		*text = '\0';
	return text;
}

const char *
did_you_mean(const char *prefix, const char *word, const char *const *names)
{
	struct nearest_name g;

	nearest_name_start(&g, word);
	for (; *names != NULL; names++)
		nearest_name_try(&g, *names, "");
	return nearest_name_text(&g, prefix);
}

/* score_table.c - tables of scores at footprints, see score_table.h */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/score_table.h"
#include "cli/text_input.h"
#include "cli/tool.h"

static double
number(const struct score_table *t, size_t line, const char *text)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(text, &end);
	if (end == text || *end != '\0' || !isfinite(v))
		die(EXIT_DAMAGED, "%s: line %zu: '%s' is not a number", t->name, line, text);
	return v;
}

/* Cuts off trailing blanks. */
static void
trim(char *text)
{
	size_t n = strlen(text);

	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	text[n] = '\0';
}

/* Cuts off the last field of a line. NULL if it is the only one. */
static char *
last_field(char *text)
{
	size_t n;

	trim(text);
	for (n = strlen(text); n > 0 && !isspace((unsigned char)text[n - 1]); n--)
		continue;
	if (n == 0)
		return NULL;
	text[n - 1] = '\0';
	return text + n;
}

static void
take_full(struct score_table *t, size_t line, double score)
{
	if (!isnan(t->full))
		die(EXIT_DAMAGED, "%s: line %zu: the score of the full cache is given twice",
		    t->name, line);
	t->full = score;
}

static void
take_line(struct score_table *t, size_t line, char *text)
{
	char *score = last_field(text), *footprint = last_field(text);
	char *method = text + strspn(text, " \t");
	struct score_line *to = &t->line[t->n];

	trim(method);
	if (score == NULL || footprint == NULL || method[0] == '\0')
		die(EXIT_DAMAGED, "%s: line %zu: want method, footprint and score", t->name, line);
	to->method = method;
	to->at = (struct point){ number(t, line, footprint), number(t, line, score) };
	if (strcmp(method, "full") == 0)
		take_full(t, line, to->at.score);
	else
		t->n++;
}

void
score_table_read(struct score_table *t, const char *path, double full)
{
	size_t len, i, line, lines = 1;
	char *at, *rest;

	*t = (struct score_table){ .name = path_name(path), .full = full };
	must_read_list(path, &t->text, &len);
	for (i = 0; i < len; i++)
		lines += t->text[i] == '\n';
	t->line = must_alloc(lines, sizeof *t->line);
	t->points = must_alloc(lines, sizeof *t->points);
	for (line = 1, rest = t->text; (at = strsep(&rest, "\n")) != NULL; line++)
		if (at[strspn(at, " \t\r")] != '\0' && at[0] != '#')
			take_line(t, line, at);
	if (isnan(t->full))
		die(EXIT_DAMAGED, "%s: there is no method 'full' with the score of the full cache: "
		    "add one, or give --full", t->name);
	if (t->full <= 0)
		die(EXIT_DAMAGED, "%s: the score of the full cache is %g, must be above 0",
		    t->name, t->full);
	if (t->n == 0)
		die(EXIT_DAMAGED, "%s: there is no method but 'full'", t->name);
}

void
score_table_free(struct score_table *t)
{
	free(t->line);
	free(t->points);
	free(t->text);
}

int
score_table_next(struct score_table *t, double want, struct verdict *v)
{
	size_t i, n = 0;

	while (t->next < t->n && t->line[t->next].done)
		t->next++;
	if (t->next == t->n)
		return 0;
	v->method = t->line[t->next].method;
	for (i = t->next; i < t->n; i++)
		if (strcmp(t->line[i].method, v->method) == 0) {
			t->points[n++] = t->line[i].at;
			t->line[i].done = 1;
		}
	v->at = footprint_critical(t->points, n, want);
	for (i = 1; i < n; i++)
		if (t->points[i].footprint == t->points[i - 1].footprint)
			die(EXIT_DAMAGED, "%s: method '%s' has two scores at footprint %g",
			    t->name, v->method, t->points[i].footprint);
	return 1;
}

const char *
verdict_word(const struct verdict *v)
{
	const struct critical *c = &v->at;

	if (c->first.kind == ABOVE_GREATEST)
		return "never";
	if (c->stays.kind == BELOW_LEAST)
		return "always";
	if (c->stays.kind != c->first.kind || c->stays.at > c->first.at)
		return "non-monotone";
	return "once";
}

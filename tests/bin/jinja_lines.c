/* jinja_lines.c - renders a template with the variables of each line of standard input, a JSON
 * object; prints a JSON object for each: "text", "contents", the ranges of its bytes that come from
 * contents of messages, and "steps", the work that it took; or "code" and "error".
 *
 * usage: jinja_lines TEMPLATE [DATE] <LINES */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja.h"

static void
mark_contents(const void *with, const char *variable, const char *key, const json_t *value,
    unsigned char *mark, size_t n)
{
	(void)with;
	if (strcmp(variable, "messages") == 0 && !(json_is_string(value) &&
	    strcmp(key, "role") == 0))
		memset(mark, 1, n);
}

static json_t *
ranges(const struct marked_text *t)
{
	json_t *all = json_array();
	size_t i, from;

	for (i = 0; i < t->n; i++) {
		if (!t->mark[i])
			continue;
		for (from = i; i < t->n && t->mark[i]; i++)
			;
		json_array_append_new(all, json_pack("[I, I]", (json_int_t)from, (json_int_t)i));
	}
	return all;
}

static void
print(json_t *o)
{
	json_dumpf(o, stdout, 0);
	putchar('\n');
	json_decref(o);
}

static char *
read_all(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	char *p = malloc(1 << 24);

	if (f == NULL || p == NULL)
		exit(1);
	*n = fread(p, 1, 1 << 24, f);
	fclose(f);
	return p;
}

int
main(int argc, char **argv)
{
	struct jinja_context c = { .mark = mark_contents, .date = argc > 2 ? argv[2] : NULL };
	struct marked_text out;
	struct jinja *template;
	json_t *variables;
	json_error_t e;
	char err[512], *text, *line = NULL;
	size_t n, cap = 0;
	uint64_t steps;
	int rc;

	c.steps = &steps;
	if (argc < 2)
		return 2;
	text = read_all(argv[1], &n);
	rc = jinja_read("template", text, n, &template, err, sizeof(err));
	while (getline(&line, &cap, stdin) > 0) {
		variables = rc == 0 ? json_loads(line, 0, &e) : NULL;
		if (rc == 0 && variables == NULL)
			return 1;
		c.variables = variables;
		if (rc != 0 || (rc = jinja_render(template, &c, &out, err, sizeof(err))) != 0) {
			print(json_pack("{s:i, s:s}", "code", rc, "error", err));
			if (template != NULL)
				rc = 0;
		} else {
			print(json_pack("{s:s%, s:o, s:I}", "text", out.text, out.n, "contents",
			    ranges(&out), "steps", (json_int_t)steps));
			free(out.text);
			free(out.mark);
		}
		json_decref(variables);
	}
	jinja_free(template);
	free(line);
	free(text);
	return 0;
}

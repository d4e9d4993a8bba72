/* questions.c - what is asked of one snapshot again and again: lines of text, or JSON objects */
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/questions.h"
#include "cli/tool.h"

/* A line, and where it stands */
struct line {
	const char *name;
	size_t number;
	const char *text;
	size_t size;
};

static json_t *
parse(const struct line *l)
{
	json_error_t error;
	json_t *o;

	if (l->text[0] != '{') {
		if ((o = json_pack("{s:s%}", "question", l->text, l->size)) == NULL)
			die(EXIT_DAMAGED, "%s: line %zu: it is not UTF-8", l->name, l->number);
		return o;
	}
	o = json_loadb(l->text, l->size, JSON_REJECT_DUPLICATES, &error);
	if (o == NULL)
		die(EXIT_DAMAGED, "%s: line %zu: byte %d: %s", l->name, l->number, error.position,
		    error.text);
	if (!json_is_string(json_object_get(o, "question")))
		die(EXIT_DAMAGED, "%s: line %zu: want a text \"question\"", l->name, l->number);
	return o;
}

void
questions_each(const char *path, void (*each)(void *with, const char *name, size_t line,
    json_t *asked), void *with)
{
	struct line l = { .name = strcmp(path, "-") == 0 ? "stdin" : path };
	const char *end, *next;
	char *all;
	size_t size;

	must_read_all(path, &all, &size);
	for (l.text = all; l.text < all + size; l.text = next) {
		end = memchr(l.text, '\n', (size_t)(all + size - l.text));
		next = end != NULL ? end + 1 : all + size;
		l.size = (size_t)((end != NULL ? end : next) - l.text);
		l.number++;
		each(with, l.name, l.number, parse(&l));
	}
	if (l.number == 0)
		die(EXIT_DAMAGED, "%s: there is no question", l.name);
	free(all);
}

/* What questions_read() goes on with */
struct reading {
	struct questions *q;
	const struct tokenizer *tokenizer;
	unsigned flags;
	uint32_t vocabulary;
};

static void
take_ids(struct ids *out, const json_t *ids, uint32_t vocabulary, const char *name, size_t line)
{
	const json_t *id;
	size_t i;

	if (!json_is_array(ids))
		die(EXIT_DAMAGED, "%s: line %zu: \"ids\" is not a list", name, line);
	out->cap = json_array_size(ids);
	out->ids = must_alloc(out->cap, sizeof *out->ids);
	for (i = 0; i < out->cap; i++) {
		id = json_array_get(ids, i);
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) >= vocabulary)
			die(EXIT_DAMAGED, "%s: line %zu: \"ids\": element %zu is not a token id "
			    "below %u", name, line, i + 1, vocabulary);
		out->ids[out->n++] = (uint32_t)json_integer_value(id);
	}
}

static void
add(void *with, const char *name, size_t line, json_t *asked)
{
	const struct reading *r = with;
	struct questions *q = r->q;
	const json_t *text = json_object_get(asked, "question"), *ids = json_object_get(asked,
	    "ids");
	struct question *one;
	char err[512];
	int rc = 0;

	if ((q->n & (q->n - 1)) == 0)
		q->at = realloc(q->at, (q->n != 0 ? 2 * q->n : 1) * sizeof *q->at);
	if (q->at == NULL)
		die(EXIT_RUN, "no memory for %zu questions", q->n);
	one = &q->at[q->n++];
	*one = (struct question){ .asked = asked };
	if (ids != NULL)
		take_ids(&one->ids, ids, r->vocabulary, name, line);
	else
		rc = tokenizer_encode(r->tokenizer, json_string_value(text),
		    json_string_length(text), r->flags, &one->ids, err, sizeof err);
	if (rc != 0)
		die(rc == TOKENIZER_ENOMEM ? EXIT_RUN : EXIT_DAMAGED, "%s: line %zu: %s", name,
		    line, err);
	if (one->ids.n == 0)
		die(EXIT_DAMAGED, "%s: line %zu: the question is empty", name, line);
	if (one->ids.n > q->longest)
		q->longest = one->ids.n;
}

void
questions_read(struct questions *q, const char *path, const struct tokenizer *t, unsigned flags,
    uint32_t vocabulary)
{
	struct reading r = { q, t, flags, vocabulary };

	*q = (struct questions){ .n = 0 };
	questions_each(path, add, &r);
}

void
questions_free(struct questions *q)
{
	size_t i;

	for (i = 0; i < q->n; i++) {
		json_decref(q->at[i].asked);
		free(q->at[i].ids.ids);
	}
	free(q->at);
}

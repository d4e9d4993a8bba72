/* decode_questions.c - reads the questions to one snapshot: lines of text or JSON */
#include <stdlib.h>
#include <string.h>

#include "cli/decode_questions.h"
#include "cli/json.h"
#include "cli/text_input.h"
#include "cli/tool.h"
#include "model/file_kind.h"

/* Checks a text, or an object with one; place: "asked: line 3" */
static json_t *
check(json_t *asked, const char *place)
{
	json_t *o = asked;

	if (json_is_string(asked) && (o = json_object()) != NULL)
		put_value(o, "question", asked);
	if (!json_is_string(json_object_get(o, "question")))
		die(EXIT_DAMAGED, "%s: want a text \"question\"", place);
	return o;
}

/* Skips byte order marks also inside a file, where files were concatenated. */
static json_t *
parse_line(const char *text, size_t size, const char *place)
{
	json_error_t error;
	json_t *o;

	if (size > 0 && text[size - 1] == '\r')
		size--;
	if (size >= strlen(TEXT_MARK) && memcmp(text, TEXT_MARK, strlen(TEXT_MARK)) == 0) {
		text += strlen(TEXT_MARK);
		size -= strlen(TEXT_MARK);
	}
	if (size > 0 && memchr(text, '\r', size) != NULL)
		die(EXIT_DAMAGED,
		    "%s: a CR within the line: want LF, or CR LF, at the end of lines", place);
	if (size > 0 && text[strspn(text, " \t")] == '{') {
		o = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
		if (o == NULL)
			die(EXIT_DAMAGED, "%s: byte %d: %s", place, error.position,
			    json_words(&error));
	} else if ((o = json_stringn(text, size)) == NULL)
		die(EXIT_DAMAGED, "%s: it is not UTF-8", place);
	return check(o, place);
}

/* Returns the number of questions. */
static size_t
each_line(const char *name, const char *text, size_t size, questions_take *each, void *with)
{
	const char *end, *next, *all_end = text + size;
	char place[512];
	size_t line = 0;

	for (; text < all_end; text = next) {
		end = memchr(text, '\n', (size_t)(all_end - text));
		next = end != NULL ? end + 1 : all_end;
		end = end != NULL ? end : all_end;
		snprintf(place, sizeof place, "%.400s: line %zu", name, ++line);
		each(with, place, parse_line(text, (size_t)(end - text), place));
	}
	return line;
}

/* Returns whether the file holds a JSON list. A line of text may begin with [ too: "[INST]
 * Who?" */
static int
is_list(const char *text)
{
	const char *const blanks = " \t\r\n";

	text += strspn(text, blanks);
	if (*text != '[')
		return 0;
	text++;
	text += strspn(text, blanks);
	return *text == '{' || *text == '"' || *text == ']' || *text == '\0';
}

static size_t
each_element(const char *name, const char *text, size_t size, questions_take *each, void *with)
{
	json_error_t error;
	json_t *list = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
	char place[512];
	size_t i;

	if (list == NULL)
		die(EXIT_DAMAGED, "%s: line %d, column %d: %s", name, error.line, error.column,
		    json_words(&error));
	for (i = 0; i < json_array_size(list); i++) {
		snprintf(place, sizeof place, "%.400s: element %zu", name, i + 1);
		each(with, place, check(json_incref(json_array_get(list, i)), place));
	}
	json_decref(list);
	return i;
}

void
questions_each(const char *path, questions_take *each, void *with)
{
	char *text;
	size_t size;

	must_read_list(path, &text, &size);
	if ((is_list(text) ? each_element : each_line)(path_name(path), text, size, each, with) ==
	    0)
		die(EXIT_DAMAGED, "%s: there is no question", path_name(path));
	free(text);
}

/* Context of questions_read()'s callback */
struct reading {
	struct questions *q;
	const struct tokenizer *tokenizer;
	unsigned flags;
	uint32_t vocabulary;
};

static void
take_ids(struct ids *out, const json_t *ids, uint32_t vocabulary, const char *place)
{
	const json_t *id;
	size_t i;

	if (!json_is_array(ids))
		die(EXIT_DAMAGED, "%s: \"ids\" is not a list", place);
	out->cap = json_array_size(ids);
	out->ids = must_alloc(out->cap, sizeof *out->ids);
	for (i = 0; i < out->cap; i++) {
		id = json_array_get(ids, i);
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) >= vocabulary)
			die(EXIT_DAMAGED, "%s: \"ids\": element %zu is not a token id below %u",
			    place, i + 1, vocabulary);
		out->ids[out->n++] = (uint32_t)json_integer_value(id);
	}
}

static void
add(void *with, const char *place, json_t *asked)
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
		take_ids(&one->ids, ids, r->vocabulary, place);
	else
		rc = tokenizer_encode(r->tokenizer, json_string_value(text),
		    json_string_length(text), r->flags, &one->ids, err, sizeof err);
	if (rc != 0)
		die(rc == TOKENIZER_ENOMEM ? EXIT_RUN : EXIT_DAMAGED, "%s: %s", place, err);
	if (one->ids.n == 0)
		die(EXIT_DAMAGED, "%s: the question is empty", place);
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

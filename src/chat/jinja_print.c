/* jinja_print.c - values as text: what {{ }} prints, Python's repr(), JSON */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_run.h"

static void
sink_room(struct run *r, struct sink *s, size_t n)
{
	char *at;
	unsigned char *mark;

	if (n <= s->cap - s->n)
		return;
	s->cap = s->cap + s->cap / 2 + n + 64;
	at = run_alloc(r, s->cap);
	mark = run_alloc(r, s->cap);
	if (s->n > 0) {
		memcpy(at, s->at, s->n);
		memcpy(mark, s->mark, s->n);
	}
	s->at = at;
	s->mark = mark;
}

void
sink_put(struct run *r, struct sink *s, const struct text *t)
{
	if (t->n == 0)
		return;
	sink_room(r, s, t->n);
	memcpy(s->at + s->n, t->at, t->n);
	if (t->mark != NULL)
		memcpy(s->mark + s->n, t->mark, t->n);
	else
		memset(s->mark + s->n, 0, t->n);
	s->n += t->n;
}

void
sink_bytes(struct run *r, struct sink *s, const char *at, size_t n)
{
	const struct text t = { .at = at, .n = n };

	sink_put(r, s, &t);
}

struct value
sink_value(struct run *r, const struct sink *s)
{
	return s->n == 0 ? value_text(r, "", NULL, 0) : value_text(r, s->at, s->mark, s->n);
}

static void
put_word(struct run *r, struct sink *s, const char *word)
{
	sink_bytes(r, s, word, strlen(word));
}

/* Prints the shortest decimal that reads back as the same number, as Python does. */
static void
put_real(struct run *r, struct sink *s, double x)
{
	char digits[40];
	int precision;

	run_charge(r, CHARGED_REAL, 0);
	if (!isfinite(x))
		run_fail(r, CHAT_EUNSUPPORTED, "a number is not finite");
	for (precision = 1; precision < 17; precision++) {
		snprintf(digits, sizeof(digits), "%.*g", precision, x);
		if (strtod(digits, NULL) == x)
			break;
	}
	if (fabs(x) >= 1e16 || (x != 0 && fabs(x) < 1e-4))
		run_fail(r, CHAT_EUNSUPPORTED, "the number %g is too large or too small to print",
		    x);
	snprintf(digits, sizeof(digits), "%.*g", precision, x);
	if (strchr(digits, 'e') != NULL)
		snprintf(digits, sizeof(digits), "%.1f", x);
	else if (strchr(digits, '.') == NULL)
		strcat(digits, ".0");
	put_word(r, s, digits);
}

static void
put_int(struct run *r, struct sink *s, int64_t i)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%" PRId64, i);
	put_word(r, s, digits);
}

/* ---- JSON and Python ---- */

/* Writes one byte of a text; its escape inherits its mark. */
static void
put_marked(struct run *r, struct sink *s, const char *at, size_t n, const struct text *of, size_t i)
{
	const size_t from = s->n;

	sink_bytes(r, s, at, n);
	if (of->mark != NULL)
		memset(s->mark + from, of->mark[i], n);
}

static void
put_json_text(struct run *r, struct sink *s, const struct text *t)
{
	static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
	char escape[8] = "\\";
	const char *p;
	size_t i;

	put_word(r, s, "\"");
	for (i = 0; i < t->n; i++) {
		p = t->at[i] != '\0' ? strchr(from, t->at[i]) : NULL;
		if (p != NULL) {
			escape[1] = to[p - from];
			put_marked(r, s, escape, 2, t, i);
		} else if ((unsigned char)t->at[i] < 0x20) {
			snprintf(escape, sizeof(escape), "\\u%04x",
			    (unsigned)(unsigned char)t->at[i]);
			put_marked(r, s, escape, 6, t, i);
		} else {
			put_marked(r, s, t->at + i, 1, t, i);
		}
	}
	put_word(r, s, "\"");
}

static void
put_repr_text(struct run *r, struct sink *s, const struct text *t)
{
	static const char from[] = "\\\n\r\t", to[] = "\\nrt";
	const char quote = memchr(t->at, '\'', t->n) != NULL && memchr(t->at, '"', t->n) == NULL ?
	    '"' : '\'';
	char escape[8] = "\\";
	const char *p;
	size_t i;

	sink_bytes(r, s, &quote, 1);
	for (i = 0; i < t->n; i++) {
		p = t->at[i] != '\0' ? strchr(from, t->at[i]) : NULL;
		escape[1] = p != NULL ? to[p - from] : t->at[i];
		if (p != NULL || t->at[i] == quote) {
			put_marked(r, s, escape, 2, t, i);
		} else if ((unsigned char)t->at[i] < 0x20 || t->at[i] == 0x7f) {
			snprintf(escape, sizeof(escape), "\\x%02x",
			    (unsigned)(unsigned char)t->at[i]);
			put_marked(r, s, escape, 4, t, i);
		} else {
			put_marked(r, s, t->at + i, 1, t, i);
		}
	}
	sink_bytes(r, s, &quote, 1);
}

/* The notation of values in JSON and in Python's repr(). */
struct notation {
	const char *none, *truth[2];    /* truth: false, true */
	void (*put_text)(struct run *, struct sink *, const struct text *);
	int undefined;          /* 1: prints an undefined value as nothing; 0: refuses it */
	int code;               /* error code and message for a value without notation */
	const char *refused;
};

static const struct notation json_notation = { "null", { "false", "true" }, put_json_text, 0,
    CHAT_EINVALID, "cannot be JSON" };
static const struct notation repr_notation = { "None", { "False", "True" }, put_repr_text, 1,
    CHAT_EUNSUPPORTED, "is printed" };

static void put_value(struct run *, struct sink *, struct value, const struct notation *,
    int indent, int level);

static void
new_line(struct run *r, struct sink *s, int indent, int level)
{
	int i;

	if (indent < 0)
		return;
	put_word(r, s, "\n");
	for (i = 0; i < indent * level; i++)
		put_word(r, s, " ");
}

static void
put_elements(struct run *r, struct sink *s, struct value v, const struct notation *f, int indent,
    int level)
{
	const size_t n = v.kind == V_LIST ? v.u.list->n : v.u.dict->n;
	size_t i;

	put_word(r, s, v.kind == V_LIST ? "[" : "{");
	for (i = 0; i < n; i++) {
		if (i > 0)
			put_word(r, s, indent < 0 ? ", " : ",");
		new_line(r, s, indent, level + 1);
		if (v.kind == V_DICT) {
			f->put_text(r, s, v.u.dict->key[i]);
			put_word(r, s, ": ");
		}
		put_value(r, s, v.kind == V_LIST ? v.u.list->at[i] : v.u.dict->at[i], f, indent,
		    level + 1);
	}
	if (n > 0)
		new_line(r, s, indent, level);
	put_word(r, s, v.kind == V_LIST ? "]" : "}");
}

/* Sets the mark of the bytes from `from` on to that of v, a number or a word. */
static void
mark_from(struct sink *s, size_t from, struct value v)
{
	if (v.mark != 0)
		memset(s->mark + from, v.mark, s->n - from);
}

/* indent: blanks for each level, with each element on its own line; -1: on one line. */
static void
put_value(struct run *r, struct sink *s, struct value v, const struct notation *f, int indent,
    int level)
{
	const size_t from = s->n;

	run_enter(r);
	switch (v.kind) {
	case V_NONE:
		put_word(r, s, f->none);
		break;
	case V_BOOL:
		put_word(r, s, f->truth[v.u.i != 0]);
		break;
	case V_INT:
		put_int(r, s, v.u.i);
		break;
	case V_REAL:
		put_real(r, s, v.u.r);
		break;
	case V_TEXT:
		f->put_text(r, s, v.u.text);
		break;
	case V_LIST: case V_DICT:
		put_elements(r, s, v, f, indent, level);
		break;
	default:
		if (v.kind != V_UNDEFINED || !f->undefined)
			run_fail(r, f->code, "%s %s", kind_name(v), f->refused);
	}
	mark_from(s, from, v);
	run_leave(r);
}

void
put_json(struct run *r, struct sink *s, struct value v, int indent)
{
	put_value(r, s, v, &json_notation, indent, 0);
}

void
put_repr(struct run *r, struct sink *s, struct value v)
{
	put_value(r, s, v, &repr_notation, -1, 0);
}

const struct text *
as_text(struct run *r, struct value v)
{
	struct sink s = { .n = 0 };

	if (v.kind == V_TEXT)
		return v.u.text;
	put_repr(r, &s, v);
	return sink_value(r, &s).u.text;
}

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

/* The shortest decimal that is the same number, as Python prints it */
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

/* ---- JSON ---- */

/* One byte of a text with its mark, which escapes inherit */
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
put_json_list(struct run *r, struct sink *s, struct value v, int indent, int level)
{
	const size_t n = v.kind == V_LIST ? v.u.list->n : v.u.dict->n;
	size_t i;

	put_word(r, s, v.kind == V_LIST ? "[" : "{");
	for (i = 0; i < n; i++) {
		if (i > 0)
			put_word(r, s, indent < 0 ? ", " : ",");
		new_line(r, s, indent, level + 1);
		if (v.kind == V_DICT) {
			put_json_text(r, s, v.u.dict->key[i]);
			put_word(r, s, ": ");
		}
		put_json(r, s, v.kind == V_LIST ? v.u.list->at[i] : v.u.dict->at[i], indent,
		    level + 1);
	}
	if (n > 0)
		new_line(r, s, indent, level);
	put_word(r, s, v.kind == V_LIST ? "]" : "}");
}

/* What was put behind `from` is that of a number, or of a word, with a mark. */
static void
mark_from(struct sink *s, size_t from, struct value v)
{
	if (v.mark != 0)
		memset(s->mark + from, v.mark, s->n - from);
}

void
put_json(struct run *r, struct sink *s, struct value v, int indent, int level)
{
	const size_t from = s->n;

	run_enter(r);
	switch (v.kind) {
	case V_NONE:
		put_word(r, s, "null");
		break;
	case V_BOOL:
		put_word(r, s, v.u.i ? "true" : "false");
		break;
	case V_INT:
		put_int(r, s, v.u.i);
		break;
	case V_REAL:
		put_real(r, s, v.u.r);
		break;
	case V_TEXT:
		put_json_text(r, s, v.u.text);
		break;
	case V_LIST: case V_DICT:
		put_json_list(r, s, v, indent, level);
		break;
	default:
		run_fail(r, CHAT_EINVALID, "%s cannot be JSON", kind_name(v));
	}
	mark_from(s, from, v);
	run_leave(r);
}

/* ---- Python ---- */

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

static void
put_repr_list(struct run *r, struct sink *s, struct value v)
{
	const size_t n = v.kind == V_LIST ? v.u.list->n : v.u.dict->n;
	size_t i;

	put_word(r, s, v.kind == V_LIST ? "[" : "{");
	for (i = 0; i < n; i++) {
		if (i > 0)
			put_word(r, s, ", ");
		if (v.kind == V_DICT) {
			put_repr_text(r, s, v.u.dict->key[i]);
			put_word(r, s, ": ");
		}
		put_repr(r, s, v.kind == V_LIST ? v.u.list->at[i] : v.u.dict->at[i]);
	}
	put_word(r, s, v.kind == V_LIST ? "]" : "}");
}

void
put_repr(struct run *r, struct sink *s, struct value v)
{
	const size_t from = s->n;

	run_enter(r);
	switch (v.kind) {
	case V_UNDEFINED:
		break;
	case V_NONE:
		put_word(r, s, "None");
		break;
	case V_BOOL:
		put_word(r, s, v.u.i ? "True" : "False");
		break;
	case V_INT:
		put_int(r, s, v.u.i);
		break;
	case V_REAL:
		put_real(r, s, v.u.r);
		break;
	case V_TEXT:
		put_repr_text(r, s, v.u.text);
		break;
	case V_LIST: case V_DICT:
		put_repr_list(r, s, v);
		break;
	default:
		run_fail(r, CHAT_EUNSUPPORTED, "%s is printed", kind_name(v));
	}
	mark_from(s, from, v);
	run_leave(r);
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

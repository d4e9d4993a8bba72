/* jinja_builtin.c - tests (value is name), methods (value.name()) and functions of templates */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chat/jinja_run.h"

/* ---- tests ---- */

enum test_kind {
	IS_DEFINED, IS_UNDEFINED, IS_NONE, IS_TRUE, IS_FALSE, IS_BOOLEAN, IS_STRING, IS_NUMBER,
	IS_INTEGER, IS_FLOAT, IS_MAPPING, IS_ITERABLE, IS_SEQUENCE, IS_CALLABLE, IS_ODD, IS_EVEN,
	IS_DIVISIBLE, IS_EQUAL, IS_UNEQUAL, IS_LESS, IS_LESS_EQUAL, IS_GREATER, IS_GREATER_EQUAL,
	IS_IN
};

static const struct {
	const char *name;
	enum test_kind kind;
} tests[] = {
	{ "boolean", IS_BOOLEAN }, { "callable", IS_CALLABLE }, { "defined", IS_DEFINED },
	{ "divisibleby", IS_DIVISIBLE }, { "eq", IS_EQUAL }, { "equalto", IS_EQUAL },
	{ "even", IS_EVEN }, { "false", IS_FALSE }, { "float", IS_FLOAT },
	{ "ge", IS_GREATER_EQUAL },
	{ "greaterthan", IS_GREATER }, { "gt", IS_GREATER }, { "in", IS_IN },
	{ "integer", IS_INTEGER }, { "iterable", IS_ITERABLE }, { "le", IS_LESS_EQUAL },
	{ "lessthan", IS_LESS }, { "lt", IS_LESS }, { "mapping", IS_MAPPING }, { "ne", IS_UNEQUAL },
	{ "none", IS_NONE }, { "number", IS_NUMBER }, { "odd", IS_ODD },
	{ "sequence", IS_SEQUENCE }, { "string", IS_STRING }, { "true", IS_TRUE },
	{ "undefined", IS_UNDEFINED },
};

static enum test_kind
find_test(struct run *r, const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (strcmp(tests[i].name, name) == 0)
			return tests[i].kind;
	run_fail(r, CHAT_EUNSUPPORTED, "test \"%s\" is not supported", name);
}

/* The tests that depend on the value alone */
static int
test_kind(enum test_kind kind, struct value v)
{
	switch (kind) {
	case IS_DEFINED:
		return v.kind != V_UNDEFINED;
	case IS_UNDEFINED:
		return v.kind == V_UNDEFINED;
	case IS_NONE:
		return v.kind == V_NONE;
	case IS_TRUE:
		return v.kind == V_BOOL && v.u.i;
	case IS_FALSE:
		return v.kind == V_BOOL && !v.u.i;
	case IS_BOOLEAN:
		return v.kind == V_BOOL;
	case IS_STRING:
		return v.kind == V_TEXT;
	case IS_NUMBER:
		return is_number(v);
	case IS_INTEGER:
		return v.kind == V_INT;
	case IS_FLOAT:
		return v.kind == V_REAL;
	case IS_MAPPING:
		return v.kind == V_DICT && !v.u.dict->is_namespace;
	case IS_ITERABLE: case IS_SEQUENCE:
		return v.kind == V_TEXT || v.kind == V_LIST || v.kind == V_UNDEFINED ||
		    (v.kind == V_DICT && !v.u.dict->is_namespace);
	default:
		return v.kind == V_CALLABLE;
	}
}

int
test(struct run *r, const char *name, struct value v, struct args *a)
{
	const enum test_kind kind = find_test(r, name);
	struct value *other;
	int64_t by;

	run_charge(r, 1, 0);
	if (kind == IS_ODD || kind == IS_EVEN)
		return (want_int(r, v, name) % 2 == 0) == (kind == IS_EVEN);
	if (kind < IS_DIVISIBLE) {
		args_done(r, a, "test", name);
		return test_kind(kind, v);
	}
	if ((other = arg(a, 0, "other")) == NULL)
		run_fail(r, CHAT_EINVALID, "test \"%s\" wants an argument", name);
	args_done(r, a, "test", name);
	switch (kind) {
	case IS_DIVISIBLE:
		by = want_int(r, *other, name);
		if (by == 0 || by == -1)
			run_fail(r, CHAT_EINVALID, "divisibleby(%d)", (int)by);
		return want_int(r, v, name) % by == 0;
	case IS_EQUAL:
		return equal(r, v, *other);
	case IS_UNEQUAL:
		return !equal(r, v, *other);
	case IS_LESS:
		return compare_values(r, v, *other) < 0;
	case IS_LESS_EQUAL:
		return compare_values(r, v, *other) <= 0;
	case IS_GREATER:
		return compare_values(r, v, *other) > 0;
	case IS_GREATER_EQUAL:
		return compare_values(r, v, *other) >= 0;
	default:
		return contains(r, *other, v);
	}
}

/* ---- methods of texts ---- */

static struct value
strip(struct run *r, const struct callable *c, struct args *a, int sides)
{
	const struct value *of = arg(a, 0, "chars");

	return text_strip(r, c->self.u.text,
	    of != NULL && of->kind != V_NONE ? want_text(r, *of, c->name) : NULL, sides);
}

static struct value
m_strip(struct run *r, const struct callable *c, struct args *a)
{
	return strip(r, c, a, STRIP_LEFT | STRIP_RIGHT);
}

static struct value
m_lstrip(struct run *r, const struct callable *c, struct args *a)
{
	return strip(r, c, a, STRIP_LEFT);
}

static struct value
m_rstrip(struct run *r, const struct callable *c, struct args *a)
{
	return strip(r, c, a, STRIP_RIGHT);
}

static struct value
m_split(struct run *r, const struct callable *c, struct args *a)
{
	const struct value *at = arg(a, 0, "sep"), *most = arg(a, 1, "maxsplit");

	if (at == NULL || at->kind == V_NONE) {
		if (most != NULL)
			run_fail(r, CHAT_EUNSUPPORTED,
			    "split() into a number of words is not supported");
		return text_words(r, c->self.u.text);
	}
	return text_split(r, c->self.u.text, want_text(r, *at, "split()"),
	    most != NULL ? want_int(r, *most, "split()") : -1);
}

/* Returns whether a text begins or ends with a text, or with one of a list. */
static struct value
has_end(struct run *r, const struct callable *c, struct args *a, int at_end)
{
	const struct text *t = c->self.u.text, *part;
	const struct value *with = arg(a, 0, "prefix");
	const struct list *all;
	size_t i;

	if (with == NULL)
		run_fail(r, CHAT_EINVALID, "%s() wants a text", c->name);
	if (with->kind == V_LIST) {
		all = with->u.list;
	} else {
		struct value one = value_list(r);

		list_push(r, one.u.list, *with);
		all = one.u.list;
	}
	for (i = 0; i < all->n; i++) {
		part = want_text(r, all->at[i], c->name);
		run_charge(r, 1, part->n);
		if (part->n <= t->n &&
		    memcmp(t->at + (at_end ? t->n - part->n : 0), part->at, part->n) == 0)
			return value_bool(1);
	}
	return value_bool(0);
}

static struct value
m_startswith(struct run *r, const struct callable *c, struct args *a)
{
	return has_end(r, c, a, 0);
}

static struct value
m_endswith(struct run *r, const struct callable *c, struct args *a)
{
	return has_end(r, c, a, 1);
}

static struct value
m_case(struct run *r, const struct callable *c, struct args *a)
{
	(void)a;
	return text_case(r, c->self.u.text, strcmp(c->name, "upper") == 0 ? CASE_UPPER :
	    strcmp(c->name, "lower") == 0 ? CASE_LOWER :
	    strcmp(c->name, "title") == 0 ? CASE_TITLE : CASE_CAPITALIZE);
}

static struct value
m_replace(struct run *r, const struct callable *c, struct args *a)
{
	const struct value *from = arg(a, 0, "old"), *to = arg(a, 1, "new"),
	    *most = arg(a, 2, "count");

	if (from == NULL || to == NULL)
		run_fail(r, CHAT_EINVALID, "replace() wants two texts");
	return text_replace(r, c->self.u.text, want_text(r, *from, "replace()"),
	    want_text(r, *to, "replace()"), most != NULL ? want_int(r, *most, "replace()") : -1);
}

static struct value
m_join(struct run *r, const struct callable *c, struct args *a)
{
	const struct value *all = arg(a, 0, "iterable");
	const struct list *l;
	struct sink s = { .n = 0 };
	size_t i;

	if (all == NULL)
		run_fail(r, CHAT_EINVALID, "join() wants a list");
	l = elements(r, *all, "join()");
	run_charge(r, l->n, 0);
	for (i = 0; i < l->n; i++) {
		if (i > 0)
			sink_put(r, &s, c->self.u.text);
		sink_put(r, &s, want_text(r, l->at[i], "join()"));
	}
	return sink_value(r, &s);
}

static struct value
m_find(struct run *r, const struct callable *c, struct args *a)
{
	const struct text *t = c->self.u.text, *part;
	const struct value *v = arg(a, 0, "sub");
	struct text before = *t;
	const char *p;

	if (v == NULL)
		run_fail(r, CHAT_EINVALID, "find() wants a text");
	part = want_text(r, *v, "find()");
	p = text_find(r, t, part);
	if (p == NULL)
		return value_int(-1);
	before.n = (size_t)(p - t->at);
	return value_int((int64_t)characters(r, &before));
}

/* ---- methods of mappings ---- */

struct value
dict_items(struct run *r, struct value v)
{
	struct value all = value_list(r), pair;
	size_t i;

	if (v.kind != V_DICT)
		run_fail(r, CHAT_EINVALID, "%s has no items", kind_name(v));
	for (i = 0; i < v.u.dict->n; i++) {
		pair = value_list(r);
		list_push(r, pair.u.list, (struct value){ .kind = V_TEXT,
		    .u.text = v.u.dict->key[i] });
		list_push(r, pair.u.list, v.u.dict->at[i]);
		list_push(r, all.u.list, pair);
	}
	return all;
}

static struct value
m_items(struct run *r, const struct callable *c, struct args *a)
{
	(void)a;
	return dict_items(r, c->self);
}

static struct value
m_keys(struct run *r, const struct callable *c, struct args *a)
{
	struct value all = value_list(r);
	size_t i;

	(void)a;
	for (i = 0; i < c->self.u.dict->n; i++)
		list_push(r, all.u.list,
		    (struct value){ .kind = V_TEXT, .u.text = c->self.u.dict->key[i] });
	return all;
}

static struct value
m_values(struct run *r, const struct callable *c, struct args *a)
{
	struct value all = value_list(r);
	size_t i;

	(void)a;
	for (i = 0; i < c->self.u.dict->n; i++)
		list_push(r, all.u.list, c->self.u.dict->at[i]);
	return all;
}

static struct value
m_get(struct run *r, const struct callable *c, struct args *a)
{
	const struct value *key = arg(a, 0, "key"), *otherwise = arg(a, 1, "default"),
	    *there = NULL;

	if (key == NULL)
		run_fail(r, CHAT_EINVALID, "get() wants a key");
	if (key->kind == V_TEXT)
		there = dict_get(r, c->self.u.dict, key->u.text->at, key->u.text->n);
	return there != NULL ? *there : otherwise != NULL ? *otherwise : value_none();
}

static struct value
make_callable(struct run *r, const char *name, struct value self,
    struct value (*call)(struct run *, const struct callable *, struct args *))
{
	struct callable *c = run_zalloc(r, sizeof(*c));

	c->name = name;
	c->self = self;
	c->call = call;
	return (struct value){ .kind = V_CALLABLE, .u.callable = c };
}

struct value
method(struct run *r, struct value self, const char *name)
{
	static const struct {
		enum value_kind of;
		const char *name;
		struct value (*call)(struct run *, const struct callable *, struct args *);
	} all[] = {
		{ V_TEXT, "strip", m_strip }, { V_TEXT, "lstrip", m_lstrip },
		{ V_TEXT, "rstrip", m_rstrip }, { V_TEXT, "split", m_split },
		{ V_TEXT, "startswith", m_startswith }, { V_TEXT, "endswith", m_endswith },
		{ V_TEXT, "upper", m_case }, { V_TEXT, "lower", m_case },
		{ V_TEXT, "title", m_case }, { V_TEXT, "capitalize", m_case },
		{ V_TEXT, "replace", m_replace }, { V_TEXT, "join", m_join },
		{ V_TEXT, "find", m_find }, { V_DICT, "items", m_items },
		{ V_DICT, "keys", m_keys },
		{ V_DICT, "values", m_values }, { V_DICT, "get", m_get } };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].of == self.kind && strcmp(all[i].name, name) == 0)
			return make_callable(r, all[i].name, self, all[i].call);
	return value_undefined(name);
}

/* ---- functions ---- */

static struct value
g_raise(struct run *r, const struct callable *c, struct args *a)
{
	const struct value *why = arg(a, 0, "message");

	(void)c;
	run_fail(r, CHAT_EREFUSED, "the template refuses the messages: %s",
	    why != NULL ? terminated(r, as_text(r, *why)) : "");
}

static struct value
g_range(struct run *r, const struct callable *c, struct args *a)
{
	const struct value *first = arg(a, 0, "start"), *second = arg(a, 1, "stop");
	const struct value *third = arg(a, 2, "step");
	struct value all = value_list(r);
	int64_t i, from, to, by;

	(void)c;
	if (first == NULL)
		run_fail(r, CHAT_EINVALID, "range() wants a number");
	from = second != NULL ? want_int(r, *first, "range()") : 0;
	to = want_int(r, second != NULL ? *second : *first, "range()");
	by = third != NULL ? want_int(r, *third, "range()") : 1;
	if (by == 0 || by > INT32_MAX || by < INT32_MIN || from > INT32_MAX || from < INT32_MIN ||
	    to > INT32_MAX || to < INT32_MIN)
		run_fail(r, CHAT_EINVALID, "range() of numbers that are too large, or with step 0");
	for (i = from; by > 0 ? i < to : i > to; i += by)
		list_push(r, all.u.list, value_int(i));
	return all;
}

static struct value
named_dict(struct run *r, struct args *a, const char *what)
{
	struct value v = value_dict(r);
	unsigned i;

	if (a->n > 0)
		run_fail(r, CHAT_EUNSUPPORTED, "%s() of something without a name is not supported",
		    what);
	for (i = 0; i < a->n_named; i++) {
		dict_set(r, v.u.dict, value_word(r, a->name[i]).u.text, a->named[i]);
		a->used_named |= 1u << i;
	}
	return v;
}

static struct value
g_namespace(struct run *r, const struct callable *c, struct args *a)
{
	struct value v = named_dict(r, a, c->name);

	v.u.dict->is_namespace = 1;
	return v;
}

static struct value
g_dict(struct run *r, const struct callable *c, struct args *a)
{
	return named_dict(r, a, c->name);
}

/* NULL for mark 0 */
static const unsigned char *
same_marks(struct run *r, size_t n, unsigned char mark)
{
	unsigned char *all;

	if (mark == 0)
		return NULL;
	all = run_alloc(r, n + 1);
	memset(all, mark, n);
	return all;
}

/* In the C locale, whatever the user's: no program here calls setlocale(). */
static struct value
g_strftime_now(struct run *r, const struct callable *c, struct args *a)
{
	const struct value *how = arg(a, 0, "format");
	const char *date = terminated(r, c->self.u.text), *format;
	struct tm t = { .tm_isdst = -1 };
	struct value day;
	char out[256];
	size_t i;

	if (how == NULL)
		run_fail(r, CHAT_EINVALID, "strftime_now() wants a format");
	format = terminated(r, want_text(r, *how, "strftime_now()"));
	for (i = 0; format[i] != '\0'; i++)
		if (format[i] == '%' && (format[++i] == '\0' ||
		    strchr("YmdBbAajyeF%", format[i]) == NULL))
			run_fail(r, CHAT_EUNSUPPORTED, "strftime_now(): %%%c is not of a date",
			    format[i]);
	t.tm_year = atoi(date) - 1900;
	t.tm_mon = atoi(date + 5) - 1;
	t.tm_mday = atoi(date + 8);
	t.tm_hour = 12;
	t.tm_isdst = 0;
	(void)timegm(&t);                       /* sets day of the week and of the year */
	i = strftime(out, sizeof(out), format, &t);
	if (i == 0 && format[0] != '\0')
		run_fail(r, CHAT_EUNSUPPORTED, "strftime_now(): the format is too long");
	out[i] = '\0';
	day = value_word(r, out);
	return value_text(r, day.u.text->at, same_marks(r, i, mark_of(r, how->u.text)), i);
}

struct value
global(struct run *r, const char *name, const char *date)
{
	const struct value none = value_undefined(NULL);

	if (strcmp(name, "raise_exception") == 0)
		return make_callable(r, "raise_exception", none, g_raise);
	if (strcmp(name, "range") == 0)
		return make_callable(r, "range", none, g_range);
	if (strcmp(name, "namespace") == 0)
		return make_callable(r, "namespace", none, g_namespace);
	if (strcmp(name, "dict") == 0)
		return make_callable(r, "dict", none, g_dict);
	if (strcmp(name, "strftime_now") == 0 && date != NULL)
		return make_callable(r, "strftime_now", value_word(r, date), g_strftime_now);
	return value_undefined(terminated(r, value_word(r, name).u.text));
}

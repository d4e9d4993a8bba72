/* jinja_value.c - values of templates: what they are, and how they compare, as in Python */
#include <string.h>

#include "chat/jinja_run.h"

/* ---- making ---- */

struct value
value_bool(int b)
{
	return (struct value){ .kind = V_BOOL, .u.i = b != 0 };
}

struct value
value_int(int64_t i)
{
	return (struct value){ .kind = V_INT, .u.i = i };
}

struct value
value_none(void)
{
	return (struct value){ .kind = V_NONE };
}

struct value
value_undefined(const char *name)
{
	return (struct value){ .kind = V_UNDEFINED, .u.name = name };
}

struct value
value_text(struct run *r, const char *at, const unsigned char *mark, size_t n)
{
	struct text *t = run_alloc(r, sizeof(*t));

	t->at = at;
	t->mark = mark;
	t->n = n;
	return (struct value){ .kind = V_TEXT, .u.text = t };
}

struct value
value_word(struct run *r, const char *s)
{
	const size_t n = strlen(s);
	char *p = run_alloc(r, n + 1);

	memcpy(p, s, n + 1);
	return value_text(r, p, NULL, n);
}

struct value
value_list(struct run *r)
{
	return (struct value){ .kind = V_LIST, .u.list = run_zalloc(r, sizeof(struct list)) };
}

struct value
value_dict(struct run *r)
{
	return (struct value){ .kind = V_DICT, .u.dict = run_zalloc(r, sizeof(struct dict)) };
}

void
list_push(struct run *r, struct list *l, struct value v)
{
	struct value *p;

	if (l->n == l->cap) {
		l->cap = 2 * l->cap + 4;
		p = run_alloc(r, l->cap * sizeof(*p));
		if (l->n > 0)
			memcpy(p, l->at, l->n * sizeof(*p));
		l->at = p;
	}
	l->at[l->n++] = v;
}

struct value *
dict_get(const struct dict *d, const char *key, size_t n)
{
	size_t i;

	for (i = 0; i < d->n; i++)
		if (d->key[i]->n == n && memcmp(d->key[i]->at, key, n) == 0)
			return &d->at[i];
	return NULL;
}

void
dict_set(struct run *r, struct dict *d, const struct text *key, struct value v)
{
	struct value *there = dict_get(d, key->at, key->n), *at;
	const struct text **keys;

	if (there != NULL) {
		*there = v;
		return;
	}
	if (d->n == d->cap) {
		d->cap = 2 * d->cap + 4;
		at = run_alloc(r, d->cap * sizeof(*at));
		keys = run_alloc(r, d->cap * sizeof(*keys));
		if (d->n > 0) {
			memcpy(at, d->at, d->n * sizeof(*at));
			memcpy(keys, d->key, d->n * sizeof(*keys));
		}
		d->at = at;
		d->key = keys;
	}
	d->key[d->n] = key;
	d->at[d->n++] = v;
}

static struct value
text_of_json(struct run *r, const json_t *j, const struct jinja_context *c, const char *variable,
    const char *key)
{
	const size_t n = json_string_length(j);
	unsigned char *mark = NULL;

	if (c->mark != NULL) {
		mark = run_zalloc(r, n + 1);
		c->mark(c->with, variable, key, j, mark);
	}
	return value_text(r, json_string_value(j), mark, n);
}

struct value
value_of_json(struct run *r, const json_t *j, const struct jinja_context *c, const char *variable,
    const char *key)
{
	struct value v = value_none();
	json_t *object = (json_t *)(uintptr_t)j, *one;
	const char *member;
	size_t i;

	run_enter(r);
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		v = value_dict(r);
		json_object_foreach(object, member, one)
			dict_set(r, v.u.dict, value_word(r, member).u.text,
			    value_of_json(r, one, c, variable, member));
		break;
	case JSON_ARRAY:
		v = value_list(r);
		for (i = 0; i < json_array_size(j); i++)
			list_push(r, v.u.list,
			    value_of_json(r, json_array_get(j, i), c, variable, key));
		break;
	case JSON_STRING:
		v = text_of_json(r, j, c, variable, key);
		break;
	case JSON_INTEGER:
		v = value_int(json_integer_value(j));
		break;
	case JSON_REAL:
		v.kind = V_REAL;
		v.u.r = json_real_value(j);
		break;
	case JSON_TRUE: case JSON_FALSE:
		v = value_bool(json_is_true(j));
		break;
	case JSON_NULL:
		break;
	}
	run_leave(r);
	return v;
}

const char *
terminated(struct run *r, const struct text *t)
{
	char *p = run_alloc(r, t->n + 1);

	memcpy(p, t->at, t->n);
	p[t->n] = '\0';
	return p;
}

/* ---- asking ---- */

int
text_is(const struct text *t, const char *word)
{
	return t->n == strlen(word) && memcmp(t->at, word, t->n) == 0;
}

int
is_text(struct value v, const char *word)
{
	return v.kind == V_TEXT && text_is(v.u.text, word);
}

const char *
kind_name(struct value v)
{
	static const char *const names[] = { [V_UNDEFINED] = "undefined", [V_NONE] = "none",
		[V_BOOL] = "a truth value", [V_INT] = "an integer", [V_REAL] = "a number",
		[V_TEXT] = "a text", [V_LIST] = "a list", [V_DICT] = "a mapping",
		[V_LOOP] = "a loop", [V_CALLABLE] = "a function" };

	return names[v.kind];
}

int
truth(struct value v)
{
	switch (v.kind) {
	case V_UNDEFINED: case V_NONE:
		return 0;
	case V_BOOL: case V_INT:
		return v.u.i != 0;
	case V_REAL:
		return v.u.r != 0;
	case V_TEXT:
		return v.u.text->n > 0;
	case V_LIST:
		return v.u.list->n > 0;
	case V_DICT:
		return v.u.dict->is_namespace || v.u.dict->n > 0;
	case V_LOOP: case V_CALLABLE:
		break;
	}
	return 1;
}

static int
is_number(struct value v)
{
	return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_REAL;
}

static double
number(struct value v)
{
	return v.kind == V_REAL ? v.u.r : (double)v.u.i;
}

/* <0, 0, >0 */
static int
compare_numbers(struct value a, struct value b)
{
	if (a.kind != V_REAL && b.kind != V_REAL)
		return (a.u.i > b.u.i) - (a.u.i < b.u.i);
	return (number(a) > number(b)) - (number(a) < number(b));
}

static int
same_dict(struct run *r, const struct dict *a, const struct dict *b)
{
	const struct value *other;
	size_t i;

	if (a->is_namespace || b->is_namespace || a->n != b->n)
		return a == b;
	for (i = 0; i < a->n; i++) {
		other = dict_get(b, a->key[i]->at, a->key[i]->n);
		if (other == NULL || !equal(r, a->at[i], *other))
			return 0;
	}
	return 1;
}

static int
same_list(struct run *r, const struct list *a, const struct list *b)
{
	size_t i;

	if (a->n != b->n)
		return 0;
	for (i = 0; i < a->n; i++)
		if (!equal(r, a->at[i], b->at[i]))
			return 0;
	return 1;
}

int
equal(struct run *r, struct value a, struct value b)
{
	int same = 1;

	if (is_number(a) && is_number(b))
		return compare_numbers(a, b) == 0;
	if (a.kind != b.kind)
		return 0;
	run_enter(r);
	switch (a.kind) {
	case V_TEXT:
		same = a.u.text->n == b.u.text->n &&
		    memcmp(a.u.text->at, b.u.text->at, a.u.text->n) == 0;
		break;
	case V_LIST:
		same = same_list(r, a.u.list, b.u.list);
		break;
	case V_DICT:
		same = same_dict(r, a.u.dict, b.u.dict);
		break;
	case V_LOOP:
		same = a.u.loop == b.u.loop;
		break;
	case V_CALLABLE:
		same = a.u.callable == b.u.callable;
		break;
	default:
		break;
	}
	run_leave(r);
	return same;
}

int
compare_values(struct run *r, struct value a, struct value b)
{
	const struct text *x = a.u.text, *y = b.u.text;
	int c;

	if (is_number(a) && is_number(b))
		return compare_numbers(a, b);
	if (a.kind != V_TEXT || b.kind != V_TEXT)
		run_fail(r, CHAT_EINVALID, "%s and %s have no order", kind_name(a), kind_name(b));
	/* bytes of UTF-8 have the order of their characters */
	c = memcmp(x->at, y->at, x->n < y->n ? x->n : y->n);
	return c != 0 ? c : (x->n > y->n) - (x->n < y->n);
}

int
contains(struct run *r, struct value whole, struct value part)
{
	size_t i;

	switch (whole.kind) {
	case V_TEXT:
		part.u.text = want_text(r, part, "\"in\" a text");
		return memmem(whole.u.text->at, whole.u.text->n, part.u.text->at,
		    part.u.text->n) != NULL;
	case V_LIST:
		for (i = 0; i < whole.u.list->n; i++)
			if (equal(r, whole.u.list->at[i], part))
				return 1;
		return 0;
	case V_DICT:
		return part.kind == V_TEXT &&
		    dict_get(whole.u.dict, part.u.text->at, part.u.text->n) != NULL;
	case V_UNDEFINED:
		return 0;
	default:
		run_fail(r, CHAT_EINVALID, "\"in\" is for texts, lists and mappings, not for %s",
		    kind_name(whole));
	}
}

const struct text *
want_text(struct run *r, struct value v, const char *what)
{
	if (v.kind == V_UNDEFINED && v.u.name != NULL)
		run_fail(r, CHAT_EINVALID, "%s wants a text, and \"%s\" is undefined", what,
		    v.u.name);
	if (v.kind != V_TEXT)
		run_fail(r, CHAT_EINVALID, "%s wants a text, not %s", what, kind_name(v));
	return v.u.text;
}

int64_t
want_int(struct run *r, struct value v, const char *what)
{
	if (v.kind != V_INT && v.kind != V_BOOL)
		run_fail(r, CHAT_EINVALID, "%s wants an integer, not %s", what, kind_name(v));
	return v.u.i;
}

const struct list *
elements(struct run *r, struct value v, const char *what)
{
	struct value all;
	size_t i, next;

	if (v.kind == V_LIST)
		return v.u.list;
	all = value_list(r);
	switch (v.kind) {
	case V_UNDEFINED:
		break;
	case V_DICT:
		for (i = 0; i < v.u.dict->n; i++)
			list_push(r, all.u.list,
			    (struct value){ .kind = V_TEXT, .u.text = v.u.dict->key[i] });
		break;
	case V_TEXT:
		for (i = 0; i < v.u.text->n; i = next) {
			for (next = i + 1; next < v.u.text->n &&
			    ((unsigned char)v.u.text->at[next] & 0xc0) == 0x80; next++)
				;
			list_push(r, all.u.list, text_part(r, v.u.text, i, next));
		}
		break;
	default:
		/* Jinja's filters are lazy: some of them may take what is never gone through */
		run_fail(r, CHAT_EUNSUPPORTED, "%s cannot go through %s", what, kind_name(v));
	}
	return all.u.list;
}

/* ---- parts ---- */

size_t
characters(const struct text *t)
{
	size_t i, n = 0;

	for (i = 0; i < t->n; i++)
		n += ((unsigned char)t->at[i] & 0xc0) != 0x80;
	return n;
}

size_t
character_at(const struct text *t, size_t i)
{
	size_t at;

	for (at = 0; at < t->n; at++)
		if (((unsigned char)t->at[at] & 0xc0) != 0x80 && i-- == 0)
			return at;
	return t->n;
}

struct value
text_part(struct run *r, const struct text *t, size_t from, size_t to)
{
	return value_text(r, t->at + from, t->mark != NULL ? t->mark + from : NULL, to - from);
}

/* A bound of a slice of n elements, as Python has it */
static int64_t
bound(struct run *r, const struct value *v, int64_t n, int64_t otherwise, int backwards)
{
	int64_t i;

	if (v == NULL || v->kind == V_NONE)
		return otherwise;
	i = want_int(r, *v, "a slice");
	if (i < 0)
		i = i < -n ? -1 : i + n;
	if (i < 0)
		return backwards ? -1 : 0;
	return i < n ? i : backwards ? n - 1 : n;
}

struct value
slice(struct run *r, struct value v, const struct value *from, const struct value *to,
    const struct value *step)
{
	const int64_t by = step == NULL || step->kind == V_NONE ? 1 : want_int(r, *step, "a slice");
	const struct list *all;
	int64_t n, i, end;
	struct value out;

	if (by != 1 && by != -1)
		run_fail(r, CHAT_EUNSUPPORTED,
		    "a slice with another step than 1 or -1 is not supported");
	if (v.kind == V_TEXT && by == 1) {
		n = (int64_t)characters(v.u.text);
		i = bound(r, from, n, 0, 0);
		end = bound(r, to, n, n, 0);
		return text_part(r, v.u.text, character_at(v.u.text, (size_t)i), i < end ?
		    character_at(v.u.text, (size_t)end) : character_at(v.u.text, (size_t)i));
	}
	if (v.kind != V_LIST)
		run_fail(r, CHAT_EUNSUPPORTED, "a slice of %s is not supported", kind_name(v));
	all = v.u.list;
	n = (int64_t)all->n;
	i = bound(r, from, n, by > 0 ? 0 : n - 1, by < 0);
	end = bound(r, to, n, by > 0 ? n : -1, by < 0);
	out = value_list(r);
	for (; by > 0 ? i < end : i > end; i += by)
		list_push(r, out.u.list, all->at[i]);
	return out;
}

static struct value
element(struct run *r, struct value v, int64_t i)
{
	const int64_t n = v.kind == V_TEXT ? (int64_t)characters(v.u.text) : (int64_t)v.u.list->n;
	size_t at;

	if (i < 0)
		i += n;
	if (i < 0 || i >= n)
		return value_undefined("an element");
	if (v.kind == V_LIST)
		return v.u.list->at[i];
	at = character_at(v.u.text, (size_t)i);
	return text_part(r, v.u.text, at, character_at(v.u.text, (size_t)i + 1));
}

/* A property of loop, or V_UNDEFINED. */
static struct value
loop_property(const struct loop *l, const char *name)
{
	const int64_t i = (int64_t)l->i, n = (int64_t)l->all->n;
	const struct { const char *name; struct value value; } all[] = {
		{ "index", value_int(i + 1) }, { "index0", value_int(i) },
		{ "revindex", value_int(n - i) }, { "revindex0", value_int(n - i - 1) },
		{ "first", value_bool(i == 0) }, { "last", value_bool(i + 1 == n) },
		{ "length", value_int(n) } };
	size_t k;

	for (k = 0; k < sizeof(all) / sizeof(all[0]); k++)
		if (strcmp(all[k].name, name) == 0)
			return all[k].value;
	if (strcmp(name, "previtem") == 0 && i > 0)
		return l->all->at[i - 1];
	if (strcmp(name, "nextitem") == 0 && i + 1 < n)
		return l->all->at[i + 1];
	return value_undefined(name);
}

static void
refuse_undefined(struct run *r, struct value v, const char *what)
{
	if (v.kind == V_UNDEFINED)
		run_fail(r, CHAT_EINVALID, "%s of \"%s\", which is undefined", what,
		    v.u.name != NULL ? v.u.name : "");
}

struct value
attribute(struct run *r, struct value v, const char *name)
{
	struct value *there, m;

	refuse_undefined(r, v, name);
	if (v.kind == V_LOOP)
		return loop_property(v.u.loop, name);
	if (v.kind != V_DICT || !v.u.dict->is_namespace) {
		m = method(r, v, name);
		if (m.kind != V_UNDEFINED)
			return m;
	}
	if (v.kind == V_DICT && (there = dict_get(v.u.dict, name, strlen(name))) != NULL)
		return *there;
	return value_undefined(name);
}

struct value
item(struct run *r, struct value v, struct value key)
{
	struct value *there;

	refuse_undefined(r, v, "an item");
	if (v.kind == V_DICT && key.kind == V_TEXT) {
		there = dict_get(v.u.dict, key.u.text->at, key.u.text->n);
		if (there != NULL)
			return *there;
	}
	if ((v.kind == V_LIST || v.kind == V_TEXT) && (key.kind == V_INT || key.kind == V_BOOL))
		return element(r, v, key.u.i);
	return value_undefined(key.kind == V_TEXT ? terminated(r, key.u.text) : "an item");
}

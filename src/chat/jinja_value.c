/* jinja_value.c - makes values of templates, and takes their parts, as in Python */
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
dict_get(struct run *r, const struct dict *d, const char *key, size_t n)
{
	size_t i, bytes = 0;

	for (i = 0; i < d->n; i++) {
		if (d->key[i]->n != n)
			continue;
		bytes += n;
		if (memcmp(d->key[i]->at, key, n) == 0)
			break;
	}
	run_charge(r, i / CHARGED_NAMES, bytes);
	return i < d->n ? &d->at[i] : NULL;
}

/* Adds a key that is not in the mapping. */
static void
dict_add(struct run *r, struct dict *d, const struct text *key, struct value v)
{
	const struct text **keys;
	struct value *at;

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

void
dict_set(struct run *r, struct dict *d, const struct text *key, struct value v)
{
	struct value *there = dict_get(r, d, key->at, key->n);

	if (there != NULL)
		*there = v;
	else
		dict_add(r, d, key, v);
}

/* ---- from JSON ---- */

/* at: the text of j, or, if j is not a text, the key before it */
static struct value
marked(struct run *r, const struct origin *o, const json_t *j, const char *at, size_t n)
{
	unsigned char *mark = NULL;

	if (o->context->mark != NULL) {
		mark = run_zalloc(r, n + 1);
		o->context->mark(o->context->with, o->variable, o->key, j, mark, n);
	}
	return value_text(r, at, mark, n);
}

static struct value
dict_of_json(struct run *r, json_t *object, const struct origin *o)
{
	struct value v = value_dict(r);
	const char *member;
	json_t *one;

	/* keys are unique: jansson has checked */
	json_object_foreach(object, member, one) {
		const struct origin inside = { o->context, o->variable, member };
		const struct text *key = marked(r, &inside, NULL, member, strlen(member)).u.text;

		dict_add(r, v.u.dict, key, value_of_json(r, one, &inside));
	}
	return v;
}

struct value
value_of_json(struct run *r, const json_t *j, const struct origin *o)
{
	struct value v = value_none();
	size_t i;

	run_enter(r);
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		v = dict_of_json(r, (json_t *)(uintptr_t)j, o);
		break;
	case JSON_ARRAY:
		v = value_list(r);
		for (i = 0; i < json_array_size(j); i++)
			list_push(r, v.u.list, value_of_json(r, json_array_get(j, i), o));
		break;
	case JSON_STRING:
		v = marked(r, o, j, json_string_value(j), json_string_length(j));
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
	if (v.kind != V_TEXT && v.kind != V_LIST && v.kind != V_DICT && o->context->mark != NULL)
		o->context->mark(o->context->with, o->variable, o->key, j, &v.mark, 1);
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

unsigned char
mark_of(struct run *r, const struct text *t)
{
	size_t i;

	run_charge(r, 0, t->n);
	for (i = 0; t->mark != NULL && i < t->n; i++)
		if (t->mark[i] != 0)
			return t->mark[i];
	return 0;
}

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
		/* Jinja's filters are lazy: some accept values that are never iterated */
		run_fail(r, CHAT_EUNSUPPORTED, "%s cannot go through %s", what, kind_name(v));
	}
	return all.u.list;
}

/* ---- parts ---- */

size_t
characters(struct run *r, const struct text *t)
{
	size_t i, n = 0;

	run_charge(r, 0, t->n);

	for (i = 0; i < t->n; i++)
		n += ((unsigned char)t->at[i] & 0xc0) != 0x80;
	return n;
}

size_t
character_at(struct run *r, const struct text *t, size_t i)
{
	size_t at;

	for (at = 0; at < t->n; at++)
		if (((unsigned char)t->at[at] & 0xc0) != 0x80 && i-- == 0)
			break;
	run_charge(r, 0, at);
	return at;
}

struct value
text_part(struct run *r, const struct text *t, size_t from, size_t to)
{
	return value_text(r, t->at + from, t->mark != NULL ? t->mark + from : NULL, to - from);
}

/* Returns a bound of a slice of n elements, as in Python. */
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
	size_t begins;

	if (by != 1 && by != -1)
		run_fail(r, CHAT_EUNSUPPORTED,
		    "a slice with another step than 1 or -1 is not supported");
	if (v.kind == V_TEXT && by == 1) {
		n = (int64_t)characters(r, v.u.text);
		i = bound(r, from, n, 0, 0);
		end = bound(r, to, n, n, 0);
		begins = character_at(r, v.u.text, (size_t)i);
		return text_part(r, v.u.text, begins,
		    i < end ? character_at(r, v.u.text, (size_t)end) : begins);
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
	const int64_t n = v.kind == V_TEXT ? (int64_t)characters(r, v.u.text) :
	    (int64_t)v.u.list->n;
	size_t at;

	if (i < 0)
		i += n;
	if (i < 0 || i >= n)
		return value_undefined("an element");
	if (v.kind == V_LIST)
		return v.u.list->at[i];
	at = character_at(r, v.u.text, (size_t)i);
	return text_part(r, v.u.text, at, character_at(r, v.u.text, (size_t)i + 1));
}

/* Returns a property of loop, or V_UNDEFINED. */
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
	if (v.kind == V_DICT && (there = dict_get(r, v.u.dict, name, strlen(name))) != NULL)
		return *there;
	return value_undefined(name);
}

struct value
item(struct run *r, struct value v, struct value key)
{
	struct value *there;

	refuse_undefined(r, v, "an item");
	if (v.kind == V_DICT && key.kind == V_TEXT) {
		there = dict_get(r, v.u.dict, key.u.text->at, key.u.text->n);
		if (there != NULL)
			return *there;
	}
	if ((v.kind == V_LIST || v.kind == V_TEXT) && (key.kind == V_INT || key.kind == V_BOOL))
		return element(r, v, key.u.i);
	return value_undefined(key.kind == V_TEXT ? terminated(r, key.u.text) : "an item");
}

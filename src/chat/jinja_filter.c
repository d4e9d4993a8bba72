/* jinja_filter.c - filters: value|name(arguments) */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_run.h"

struct value *
arg(struct args *a, unsigned i, const char *name)
{
	unsigned k;

	if (i < a->n) {
		a->used |= 1u << i;
		return &a->at[i];
	}
	for (k = 0; k < a->n_named; k++)
		if (strcmp(a->name[k], name) == 0) {
			a->used_named |= 1u << k;
			return &a->named[k];
		}
	return NULL;
}

void
args_done(struct run *r, const struct args *a, const char *kind, const char *name)
{
	unsigned i;

	if (a->used != (1u << a->n) - 1)
		run_fail(r, CHAT_EUNSUPPORTED, "%s \"%s\" has more arguments than are supported",
		    kind, name);
	for (i = 0; i < a->n_named; i++)
		if ((a->used_named >> i & 1) == 0)
			run_fail(r, CHAT_EUNSUPPORTED,
			    "%s \"%s\": argument \"%s\" is not supported",
			    kind, name, a->name[i]);
}

static struct value *
need(struct run *r, struct args *a, unsigned i, const char *name, const char *what)
{
	struct value *v = arg(a, i, name);

	if (v == NULL)
		run_fail(r, CHAT_EINVALID, "%s wants %s", what, name);
	return v;
}

/* ---- texts ---- */

static struct value
f_trim(struct run *r, struct value v, struct args *a)
{
	const struct value *of = arg(a, 0, "chars");

	return text_strip(r, as_text(r, v), of != NULL ? want_text(r, *of, "trim") : NULL,
	    STRIP_LEFT | STRIP_RIGHT);
}

static struct value
f_upper(struct run *r, struct value v, struct args *a)
{
	(void)a;
	return text_case(r, as_text(r, v), CASE_UPPER);
}

static struct value
f_lower(struct run *r, struct value v, struct args *a)
{
	(void)a;
	return text_case(r, as_text(r, v), CASE_LOWER);
}

static struct value
f_title(struct run *r, struct value v, struct args *a)
{
	(void)a;
	return text_case(r, as_text(r, v), CASE_TITLE);
}

static struct value
f_capitalize(struct run *r, struct value v, struct args *a)
{
	(void)a;
	return text_case(r, as_text(r, v), CASE_CAPITALIZE);
}

static struct value
f_replace(struct run *r, struct value v, struct args *a)
{
	const struct text *from = want_text(r, *need(r, a, 0, "old", "replace"), "replace");
	const struct text *to = want_text(r, *need(r, a, 1, "new", "replace"), "replace");
	const struct value *most = arg(a, 2, "count");

	return text_replace(r, as_text(r, v), from, to,
	    most != NULL ? want_int(r, *most, "replace") : -1);
}

static struct value
f_string(struct run *r, struct value v, struct args *a)
{
	(void)a;
	return (struct value){ .kind = V_TEXT, .u.text = as_text(r, v) };
}

static struct value
f_same(struct run *r, struct value v, struct args *a)
{
	(void)r;
	(void)a;
	return v;
}

static struct value
f_tojson(struct run *r, struct value v, struct args *a)
{
	struct value *indent = arg(a, 1, "indent");
	struct sink s = { .n = 0 };

	/* transformers has it as the first argument, with this value */
	if (arg(a, 0, "ensure_ascii") != NULL && truth(*arg(a, 0, "ensure_ascii")))
		run_fail(r, CHAT_EUNSUPPORTED, "tojson with ensure_ascii is not supported");
	put_json(r, &s, v, indent == NULL || indent->kind == V_NONE ? -1 :
	    (int)want_int(r, *indent, "tojson") & 15);
	return sink_value(r, &s);
}

static struct value
marked_int(int64_t i, unsigned char mark)
{
	struct value v = value_int(i);

	v.mark = mark;
	return v;
}

static struct value
f_int(struct run *r, struct value v, struct args *a)
{
	const struct value *otherwise = arg(a, 0, "default");
	const struct text *t;
	long long i;
	char *end;

	if (v.kind == V_INT || v.kind == V_BOOL)
		return marked_int(v.u.i, v.mark);
	if (v.kind == V_REAL && v.u.r > -1e15 && v.u.r < 1e15)
		return marked_int((int64_t)v.u.r, v.mark);
	if (v.kind == V_TEXT) {
		t = text_strip(r, v.u.text, NULL, STRIP_LEFT | STRIP_RIGHT).u.text;
		errno = 0;
		i = strtoll(terminated(r, t), &end, 10);
		if (errno != 0)
			run_fail(r, CHAT_EUNSUPPORTED, "an integer of more than 64 bits");
		if (t->n > 0 && *end == '\0')
			return marked_int(i, mark_of(r, t));
	}
	return otherwise != NULL ? *otherwise : value_int(0);
}

/* ---- lists and mappings ---- */

static struct value
f_length(struct run *r, struct value v, struct args *a)
{
	(void)a;
	switch (v.kind) {
	case V_TEXT:
		return value_int((int64_t)characters(r, v.u.text));
	case V_LIST:
		return value_int((int64_t)v.u.list->n);
	case V_DICT:
		return value_int((int64_t)v.u.dict->n);
	case V_UNDEFINED:
		return value_int(0);
	default:
		run_fail(r, CHAT_EINVALID, "%s has no length", kind_name(v));
	}
}

static struct value
f_default(struct run *r, struct value v, struct args *a)
{
	const struct value *d = arg(a, 0, "default_value"), *falsy = arg(a, 1, "boolean");

	if (v.kind == V_UNDEFINED || (falsy != NULL && truth(*falsy) && !truth(v)))
		return d != NULL ? *d : value_text(r, "", NULL, 0);
	return v;
}

static struct value
f_first(struct run *r, struct value v, struct args *a)
{
	const struct list *l = elements(r, v, "first");

	(void)a;
	return l->n > 0 ? l->at[0] : value_undefined("the first element");
}

static struct value
f_last(struct run *r, struct value v, struct args *a)
{
	const struct list *l = elements(r, v, "last");

	(void)a;
	return l->n > 0 ? l->at[l->n - 1] : value_undefined("the last element");
}

static struct value
f_list(struct run *r, struct value v, struct args *a)
{
	const struct list *from = elements(r, v, "list");
	struct value all = value_list(r);
	size_t i;

	(void)a;
	for (i = 0; i < from->n; i++)
		list_push(r, all.u.list, from->at[i]);
	return all;
}

static struct value
f_reverse(struct run *r, struct value v, struct args *a)
{
	const struct list *from = elements(r, v, "reverse");
	struct value all = value_list(r);
	size_t i;

	(void)a;
	if (v.kind == V_TEXT)
		run_fail(r, CHAT_EUNSUPPORTED, "the filter reverse of a text is not supported");
	for (i = from->n; i > 0; i--)
		list_push(r, all.u.list, from->at[i - 1]);
	return all;
}

static struct value
f_unique(struct run *r, struct value v, struct args *a)
{
	const struct list *from = elements(r, v, "unique");
	struct value all = value_list(r);
	size_t i;

	(void)a;
	for (i = 0; i < from->n; i++) {
		if (from->at[i].kind == V_TEXT)
			run_fail(r, CHAT_EUNSUPPORTED,
			    "the filter unique of texts is not supported");
		if (!contains(r, all, from->at[i]))
			list_push(r, all.u.list, from->at[i]);
	}
	return all;
}

static struct value
f_items(struct run *r, struct value v, struct args *a)
{
	(void)a;
	if (v.kind == V_UNDEFINED)
		return value_list(r);
	return dict_items(r, v);
}

struct sorted {
	struct value by, value;
};

/* to <- the merge of at[0..n) and at[n..all), which are sorted; stable. */
static void
merge(struct run *r, const struct sorted *at, size_t n, size_t all, struct sorted *to)
{
	size_t i = 0, k = n;

	while (i < n || k < all)
		if (k == all || (i < n && compare_values(r, at[i].by, at[k].by) <= 0))
			*to++ = at[i++];
		else
			*to++ = at[k++];
}

/* Sorts by merging runs of 1, 2, 4 and so on; room: as many. Returns the one of the two that
 * has the result. */
static const struct sorted *
sort(struct run *r, struct sorted *at, struct sorted *room, size_t n)
{
	struct sorted *from = at, *to = room, *other;
	size_t run, i;

	for (run = 1; run < n; run *= 2) {
		for (i = 0; i < n; i += 2 * run)
			merge(r, from + i, run < n - i ? run : n - i,
			    2 * run < n - i ? 2 * run : n - i, to + i);
		other = from;
		from = to;
		to = other;
	}
	return from;
}

/* l <- its elements, sorted by the key that `by` gives */
static void
sort_list(struct run *r, struct list *l, struct value (*by)(struct run *, struct value))
{
	struct sorted *all = run_alloc(r, 2 * l->n * sizeof(*all));
	const struct sorted *out;
	size_t i;

	for (i = 0; i < l->n; i++)
		all[i] = (struct sorted){ by(r, l->at[i]), l->at[i] };
	out = sort(r, all, all + l->n, l->n);
	for (i = 0; i < l->n; i++)
		l->at[i] = out[i].value;
}

static struct value
by_key(struct run *r, struct value pair)
{
	return text_case(r, pair.u.list->at[0].u.text, CASE_LOWER);
}

/* Sorts by key; ignores case, as Jinja does. */
static struct value
f_dictsort(struct run *r, struct value v, struct args *a)
{
	struct value all = dict_items(r, v);

	(void)a;
	sort_list(r, all.u.list, by_key);
	return all;
}

static struct value
by_itself(struct run *r, struct value v)
{
	if (v.kind == V_TEXT)
		run_fail(r, CHAT_EUNSUPPORTED, "the filter sort of texts is not supported");
	return v;
}

/* Sorts numbers. */
static struct value
f_sort(struct run *r, struct value v, struct args *a)
{
	struct value all = f_list(r, v, a);

	sort_list(r, all.u.list, by_itself);
	return all;
}

/* Returns the attribute "a.b" of a value, as for map and selectattr; `otherwise`, if not NULL,
 * for a missing one. */
static struct value
attribute_path(struct run *r, struct value v, const struct text *path,
    const struct value *otherwise)
{
	const char *name = terminated(r, path), *dot;
	char *part;

	for (; (dot = strchr(name, '.')) != NULL; name = dot + 1) {
		part = run_alloc(r, (size_t)(dot - name) + 1);
		memcpy(part, name, (size_t)(dot - name));
		part[dot - name] = '\0';
		v = attribute(r, v, part);
		if (v.kind == V_UNDEFINED && otherwise != NULL)
			v = *otherwise;
	}
	v = attribute(r, v, name);
	return v.kind == V_UNDEFINED && otherwise != NULL ? *otherwise : v;
}

static struct value
f_join(struct run *r, struct value v, struct args *a)
{
	const struct list *l = elements(r, v, "join");
	const struct value *between = arg(a, 0, "d"), *of = arg(a, 1, "attribute");
	struct sink s = { .n = 0 };
	struct value one;
	size_t i;

	run_charge(r, l->n, 0);
	for (i = 0; i < l->n; i++) {
		one = of == NULL ? l->at[i] :
		    attribute_path(r, l->at[i], want_text(r, *of, "join"), NULL);
		if (i > 0 && between != NULL)
			sink_put(r, &s, as_text(r, *between));
		sink_put(r, &s, as_text(r, one));
	}
	return sink_value(r, &s);
}

/* out <- the arguments after the first n, for a filter or a test that is called by name. */
static void
rest(struct args *a, unsigned n, struct args *out)
{
	unsigned i;

	memset(out, 0, sizeof(*out));
	for (i = n; i < a->n; i++) {
		out->at[out->n++] = a->at[i];
		a->used |= 1u << i;
	}
}

static struct value
f_map(struct run *r, struct value v, struct args *a)
{
	const struct list *l = elements(r, v, "map");
	struct value *of = a->n == 0 ? arg(a, 0, "attribute") : NULL, *otherwise, one;
	struct value all = value_list(r);
	struct args behind;
	const char *name = NULL;
	size_t i;

	otherwise = of != NULL ? arg(a, 1, "default") : NULL;
	if (of == NULL)
		name = terminated(r, want_text(r, *need(r, a, 0, "attribute", "map"), "map"));
	run_charge(r, l->n, 0);
	for (i = 0; i < l->n; i++) {
		if (of != NULL) {
			one = attribute_path(r, l->at[i], want_text(r, *of, "map"), otherwise);
		} else {
			rest(a, 1, &behind);
			one = filter(r, name, l->at[i], &behind);
		}
		list_push(r, all.u.list, one);
	}
	return all;
}

/* Returns the elements for which the test gives `wanted`; the test of an attribute if there is
 * one. */
static struct value
choose(struct run *r, struct value v, struct args *a, int by_attribute, int wanted)
{
	const struct list *l = elements(r, v, "select");
	const struct text *of = by_attribute ?
	    want_text(r, *need(r, a, 0, "attribute", "selectattr"), "selectattr") : NULL;
	const struct value *by = arg(a, by_attribute ? 1 : 0, "test");
	const char *name = by != NULL ? terminated(r, want_text(r, *by, "select")) : NULL;
	struct value all = value_list(r), one;
	struct args behind;
	size_t i;

	run_charge(r, l->n, 0);
	for (i = 0; i < l->n; i++) {
		one = of != NULL ? attribute_path(r, l->at[i], of, NULL) : l->at[i];
		rest(a, by_attribute ? 2 : 1, &behind);
		if ((name != NULL ? test(r, name, one, &behind) : truth(one)) == wanted)
			list_push(r, all.u.list, l->at[i]);
	}
	rest(a, by_attribute ? 2 : 1, &behind);
	return all;
}

static struct value
f_select(struct run *r, struct value v, struct args *a)
{
	return choose(r, v, a, 0, 1);
}

static struct value
f_reject(struct run *r, struct value v, struct args *a)
{
	return choose(r, v, a, 0, 0);
}

static struct value
f_selectattr(struct run *r, struct value v, struct args *a)
{
	return choose(r, v, a, 1, 1);
}

static struct value
f_rejectattr(struct run *r, struct value v, struct args *a)
{
	return choose(r, v, a, 1, 0);
}

/* ---- all of them ---- */

static const struct {
	const char *name;
	struct value (*run)(struct run *, struct value, struct args *);
} filters[] = {
	{ "capitalize", f_capitalize }, { "count", f_length }, { "d", f_default },
	{ "default", f_default }, { "dictsort", f_dictsort }, { "first", f_first },
	{ "int", f_int }, { "items", f_items }, { "join", f_join }, { "last", f_last },
	{ "length", f_length }, { "list", f_list }, { "lower", f_lower }, { "map", f_map },
	{ "reject", f_reject }, { "rejectattr", f_rejectattr }, { "replace", f_replace },
	{ "reverse", f_reverse }, { "safe", f_same }, { "select", f_select },
	{ "selectattr", f_selectattr }, { "sort", f_sort }, { "string", f_string },
	{ "title", f_title },
	{ "tojson", f_tojson }, { "trim", f_trim }, { "unique", f_unique }, { "upper", f_upper },
};

struct value
filter(struct run *r, const char *name, struct value v, struct args *a)
{
	struct value out;
	size_t i;

	run_enter(r);
	for (i = 0; i < sizeof(filters) / sizeof(filters[0]); i++)
		if (strcmp(filters[i].name, name) == 0)
			break;
	if (i == sizeof(filters) / sizeof(filters[0]))
		run_fail(r, CHAT_EUNSUPPORTED, "filter \"%s\" is not supported", name);
	out = filters[i].run(r, v, a);
	args_done(r, a, "filter", name);
	run_leave(r);
	return out;
}

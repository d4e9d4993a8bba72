/* jinja_compare.c - compares values of templates as Python does: equality, order, membership */
#include <string.h>

#include "chat/jinja_run.h"

int
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
		other = dict_get(r, b, a->key[i]->at, a->key[i]->n);
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

	run_charge(r, 1, 0);
	if (is_number(a) && is_number(b))
		return compare_numbers(a, b) == 0;
	if (a.kind != b.kind)
		return 0;
	run_enter(r);
	switch (a.kind) {
	case V_TEXT:
		same = a.u.text->n == b.u.text->n;
		if (same) {
			run_charge(r, 0, a.u.text->n);
			same = memcmp(a.u.text->at, b.u.text->at, a.u.text->n) == 0;
		}
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
	size_t n;
	int c;

	run_charge(r, 1, 0);
	if (is_number(a) && is_number(b))
		return compare_numbers(a, b);
	if (a.kind != V_TEXT || b.kind != V_TEXT)
		run_fail(r, CHAT_EINVALID, "%s and %s have no order", kind_name(a), kind_name(b));
	/* bytes of UTF-8 have the order of their characters */
	n = x->n < y->n ? x->n : y->n;
	run_charge(r, 0, n);
	c = memcmp(x->at, y->at, n);
	return c != 0 ? c : (x->n > y->n) - (x->n < y->n);
}

int
contains(struct run *r, struct value whole, struct value part)
{
	size_t i;

	switch (whole.kind) {
	case V_TEXT:
		return text_find(r, whole.u.text, want_text(r, part, "\"in\" a text")) != NULL;
	case V_LIST:
		for (i = 0; i < whole.u.list->n; i++)
			if (equal(r, whole.u.list->at[i], part))
				return 1;
		return 0;
	case V_DICT:
		return part.kind == V_TEXT &&
		    dict_get(r, whole.u.dict, part.u.text->at, part.u.text->n) != NULL;
	case V_UNDEFINED:
		return 0;
	default:
		run_fail(r, CHAT_EINVALID, "\"in\" is for texts, lists and mappings, not for %s",
		    kind_name(whole));
	}
}

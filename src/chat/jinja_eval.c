/* jinja_eval.c - the value of an expression */
#include <math.h>
#include <string.h>

#include "chat/jinja_run.h"

struct value
lookup(struct render *x, const char *name)
{
	const struct frame *f;
	const struct binding *b;
	size_t n = 0;

	for (f = x->frame; f != NULL; f = f->up, n++)
		for (b = f->first; b != NULL; b = b->next, n++)
			if (strcmp(b->name, name) == 0) {
				run_charge(&x->run, n / CHARGED_NAMES, 0);
				return b->value;
			}
	run_charge(&x->run, n / CHARGED_NAMES, 0);
	return global(&x->run, name, x->context->date);
}

/* In the innermost frame. */
void
bind(struct render *x, const char *name, struct value v)
{
	struct binding *b;
	size_t n = 0;

	for (b = x->frame->first; b != NULL && strcmp(b->name, name) != 0; b = b->next)
		n++;
	run_charge(&x->run, n / CHARGED_NAMES, 0);
	if (b != NULL) {
		b->value = v;
		return;
	}
	b = run_alloc(&x->run, sizeof(*b));
	b->name = name;
	b->value = v;
	b->next = x->frame->first;
	x->frame->first = b;
}

void
evaluate_args(struct render *x, const struct node *list, struct args *a)
{
	memset(a, 0, sizeof(*a));
	for (; list != NULL; list = list->next) {
		if (a->n == ARGS_MOST || a->n_named == ARGS_MOST)
			run_fail(&x->run, CHAT_EUNSUPPORTED, "more than %d arguments", ARGS_MOST);
		if (list->kind == N_KEYWORD) {
			a->name[a->n_named] = list->name;
			a->named[a->n_named++] = evaluate(x, list->a);
		} else {
			a->at[a->n++] = evaluate(x, list);
		}
	}
}

static struct value
call(struct render *x, const struct node *n)
{
	struct value f = evaluate(x, n->a), out;
	const struct callable *c = f.u.callable;
	struct args a;

	x->run.line = n->line;
	if (f.kind == V_UNDEFINED && f.u.name != NULL && strcmp(f.u.name, "strftime_now") == 0)
		run_fail(&x->run, CHAT_EREFUSED, "the template asks for the date");
	if (f.kind == V_UNDEFINED)
		run_fail(&x->run, CHAT_EUNSUPPORTED, "%s() is not a function that is supported",
		    f.u.name != NULL ? f.u.name : "");
	if (f.kind != V_CALLABLE)
		run_fail(&x->run, CHAT_EINVALID, "%s is called like a function", kind_name(f));
	evaluate_args(x, n->list, &a);
	x->run.line = n->line;
	out = c->call(&x->run, c, &a);
	args_done(&x->run, &a, "function", c->name);
	return out;
}

/* ---- operators ---- */

static struct value
integers(struct render *x, enum operator op, int64_t a, int64_t b)
{
	int64_t out = 0;
	int overflows = 0;

	switch (op) {
	case O_ADD:
		overflows = __builtin_add_overflow(a, b, &out);
		break;
	case O_SUBTRACT:
		overflows = __builtin_sub_overflow(a, b, &out);
		break;
	case O_MULTIPLY:
		overflows = __builtin_mul_overflow(a, b, &out);
		break;
	case O_FLOOR: case O_REST:
		if (b == 0)
			run_fail(&x->run, CHAT_EINVALID, "division by zero");
		overflows = a == INT64_MIN && b == -1;
		if (overflows)
			break;
		/* towards minus infinity; the rest has the sign of b */
		out = op == O_FLOOR ? a / b - (a % b != 0 && (a < 0) != (b < 0)) :
		    a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
		break;
	default:
		run_fail(&x->run, CHAT_EUNSUPPORTED, "** is not supported");
	}
	if (overflows)
		run_fail(&x->run, CHAT_EUNSUPPORTED, "an integer of more than 64 bits");
	return value_int(out);
}

static struct value
reals(struct render *x, enum operator op, double l, double r)
{
	struct value out = { .kind = V_REAL };

	if ((op == O_DIVIDE || op == O_FLOOR) && r == 0)
		run_fail(&x->run, CHAT_EINVALID, "division by zero");
	switch (op) {
	case O_ADD:
		out.u.r = l + r;
		break;
	case O_SUBTRACT:
		out.u.r = l - r;
		break;
	case O_MULTIPLY:
		out.u.r = l * r;
		break;
	case O_DIVIDE:
		out.u.r = l / r;
		break;
	case O_FLOOR:
		out.u.r = floor(l / r);
		break;
	default:
		run_fail(&x->run, CHAT_EUNSUPPORTED, "%% and ** of such numbers are not supported");
	}
	return out;
}

static struct value
numbers(struct render *x, enum operator op, struct value a, struct value b)
{
	struct value out;

	if (a.kind != V_REAL && b.kind != V_REAL && op != O_DIVIDE)
		out = integers(x, op, a.u.i, b.u.i);
	else
		out = reals(x, op, a.kind == V_REAL ? a.u.r : (double)a.u.i,
		    b.kind == V_REAL ? b.u.r : (double)b.u.i);
	out.mark = a.mark != 0 ? a.mark : b.mark;
	return out;
}

static struct value
join(struct render *x, struct value a, struct value b)
{
	struct sink s = { .n = 0 };

	sink_put(&x->run, &s, as_text(&x->run, a));
	sink_put(&x->run, &s, as_text(&x->run, b));
	return sink_value(&x->run, &s);
}

static struct value
repeat(struct render *x, const struct text *t, int64_t times)
{
	struct sink s = { .n = 0 };

	for (; times > 0 && t->n > 0; times--)
		sink_put(&x->run, &s, t);
	return sink_value(&x->run, &s);
}

static struct value
join_lists(struct render *x, const struct list *a, const struct list *b)
{
	struct value all = value_list(&x->run);
	size_t i;

	for (i = 0; i < a->n + b->n; i++)
		list_push(&x->run, all.u.list, i < a->n ? a->at[i] : b->at[i - a->n]);
	return all;
}

static struct value
binary(struct render *x, const struct node *n)
{
	static const char *const signs[] = { [O_ADD] = "+", [O_SUBTRACT] = "-", [O_MULTIPLY] = "*",
		[O_DIVIDE] = "/", [O_FLOOR] = "//", [O_REST] = "%", [O_POWER] = "**" };
	struct value a = evaluate(x, n->a), b = evaluate(x, n->b);
	const char *missing = a.kind == V_UNDEFINED ? a.u.name : b.kind == V_UNDEFINED ? b.u.name :
	    NULL;

	x->run.line = n->line;
	if (n->op == O_JOIN)
		return join(x, a, b);
	if (is_number(a) && is_number(b))
		return numbers(x, n->op, a, b);
	if (n->op == O_ADD && a.kind == V_TEXT && b.kind == V_TEXT)
		return join(x, a, b);
	if (n->op == O_ADD && a.kind == V_LIST && b.kind == V_LIST)
		return join_lists(x, a.u.list, b.u.list);
	if (n->op == O_MULTIPLY && a.kind == V_TEXT && b.kind == V_INT)
		return repeat(x, a.u.text, b.u.i);
	if (missing != NULL)
		run_fail(&x->run, CHAT_EINVALID, "\"%s\" is undefined, and %s wants it", missing,
		    signs[n->op]);
	run_fail(&x->run, CHAT_EINVALID, "%s %s %s cannot be computed", kind_name(a), signs[n->op],
	    kind_name(b));
}

static int
compare(struct render *x, const struct node *n)
{
	struct value a = evaluate(x, n->a), b = evaluate(x, n->b);

	x->run.line = n->line;
	switch (n->op) {
	case O_EQUAL:
		return equal(&x->run, a, b);
	case O_UNEQUAL:
		return !equal(&x->run, a, b);
	case O_LESS:
		return compare_values(&x->run, a, b) < 0;
	case O_LESS_EQUAL:
		return compare_values(&x->run, a, b) <= 0;
	case O_GREATER:
		return compare_values(&x->run, a, b) > 0;
	case O_GREATER_EQUAL:
		return compare_values(&x->run, a, b) >= 0;
	case O_IN:
		return contains(&x->run, b, a);
	default:
		return !contains(&x->run, b, a);
	}
}

static struct value
negative(struct render *x, struct value v)
{
	if (v.kind == V_REAL)
		v.u.r = -v.u.r;
	else
		v.u.i = integers(x, O_SUBTRACT, 0, want_int(&x->run, v, "-")).u.i;
	if (v.kind == V_BOOL)
		v.kind = V_INT;
	return v;
}

/* ---- operands ---- */

static struct value
make_list(struct render *x, const struct node *n)
{
	struct value v = value_list(&x->run);
	const struct node *e;

	for (e = n->list; e != NULL; e = e->next)
		list_push(&x->run, v.u.list, evaluate(x, e));
	return v;
}

static struct value
make_dict(struct render *x, const struct node *n)
{
	struct value v = value_dict(&x->run), key;
	const struct node *e;

	for (e = n->list; e != NULL; e = e->next) {
		key = evaluate(x, e->a);
		if (key.kind != V_TEXT)
			run_fail(&x->run, CHAT_EUNSUPPORTED, "%s as a key is not supported",
			    kind_name(key));
		dict_set(&x->run, v.u.dict, key.u.text, evaluate(x, e->b));
	}
	return v;
}

static struct value
make_slice(struct render *x, const struct node *n)
{
	struct value of = evaluate(x, n->a), from, to, step;

	if (n->b != NULL)
		from = evaluate(x, n->b);
	if (n->c != NULL)
		to = evaluate(x, n->c);
	if (n->d != NULL)
		step = evaluate(x, n->d);
	return slice(&x->run, of, n->b != NULL ? &from : NULL, n->c != NULL ? &to : NULL,
	    n->d != NULL ? &step : NULL);
}

/* A filter or a test with its arguments */
static struct value
apply(struct render *x, const struct node *n)
{
	struct value v = evaluate(x, n->a);
	struct args a;

	evaluate_args(x, n->list, &a);
	x->run.line = n->line;
	return n->kind == N_FILTER ? filter(&x->run, n->name, v, &a) :
	    value_bool(test(&x->run, n->name, v, &a));
}

static struct value
operand(struct render *x, const struct node *n)
{
	struct value a, b;

	switch (n->kind) {
	case N_LIST:
		return make_list(x, n);
	case N_DICT:
		return make_dict(x, n);
	case N_ATTRIBUTE:
		a = evaluate(x, n->a);
		x->run.line = n->line;
		return attribute(&x->run, a, n->name);
	case N_ITEM:
		a = evaluate(x, n->a);
		b = evaluate(x, n->b);
		x->run.line = n->line;
		return item(&x->run, a, b);
	case N_SLICE:
		return make_slice(x, n);
	case N_CALL:
		return call(x, n);
	case N_FILTER: case N_TEST:
		return apply(x, n);
	default:
		run_fail(&x->run, CHAT_EINVALID, "this is not an expression");
	}
}

static struct value
compute(struct render *x, const struct node *n)
{
	struct value a;

	switch (n->kind) {
	case N_CONST:
		return n->value;
	case N_PRINTED:
		return x->printed;
	case N_NAME:
		return lookup(x, n->name);
	case N_NOT:
		return value_bool(!truth(evaluate(x, n->a)));
	case N_AND:
		a = evaluate(x, n->a);
		return truth(a) ? evaluate(x, n->b) : a;
	case N_OR:
		a = evaluate(x, n->a);
		return truth(a) ? a : evaluate(x, n->b);
	case N_BINARY:
		return binary(x, n);
	case N_NEGATIVE:
		return negative(x, evaluate(x, n->a));
	case N_COMPARE:
		return value_bool(compare(x, n));
	case N_CHOICE:
		if (truth(evaluate(x, n->a)))
			return evaluate(x, n->b);
		return n->c != NULL ? evaluate(x, n->c) : value_undefined("a value without else");
	default:
		return operand(x, n);
	}
}

struct value
evaluate(struct render *x, const struct node *n)
{
	struct value v;

	run_enter(&x->run);
	x->run.line = n->line;
	v = compute(x, n);
	run_leave(&x->run);
	return v;
}

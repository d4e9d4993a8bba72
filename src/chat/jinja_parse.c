/* jinja_parse.c - the expressions of a template
 *
 * Precedence, from the loosest: x if y else z; or; and; not; comparisons; + -; ~; * / // %; **;
 * unary -; postfix: .name, [item], (arguments), |filter, is test. */
#include <string.h>

#include "chat/jinja_run.h"

struct node *
new_node(struct parser *p, enum node_kind kind)
{
	struct node *n = run_zalloc(p->run, sizeof(*n));

	n->kind = kind;
	n->line = p->t->line;
	return n;
}

static void
advance(struct parser *p)
{
	if (p->t->kind != T_END)
		p->t++;
	p->run->line = p->t->line;
}

int
at_name(const struct parser *p, const char *name)
{
	return p->t->kind == T_NAME && strcmp(p->t->at, name) == 0;
}

int
at_op(const struct parser *p, const char *op)
{
	return p->t->kind == T_OP && strcmp(p->t->at, op) == 0;
}

int
skip_name(struct parser *p, const char *name)
{
	int there = at_name(p, name);

	if (there)
		advance(p);
	return there;
}

int
skip_op(struct parser *p, const char *op)
{
	int there = at_op(p, op);

	if (there)
		advance(p);
	return there;
}

void
unexpected(struct parser *p, const char *wanted)
{
	static const char *const names[] = { [T_END] = "the end of the template", [T_TEXT] = "text",
		[T_BLOCK_BEGIN] = "{%", [T_BLOCK_END] = "%}", [T_PRINT_BEGIN] = "{{",
		[T_PRINT_END] = "}}", [T_STRING] = "a string", [T_INT] = "a number",
		[T_REAL] = "a number" };
	const int has_words = p->t->kind == T_NAME || p->t->kind == T_OP;

	run_fail(p->run, CHAT_EINVALID, "want %s, not %s", wanted,
	    has_words ? p->t->at : names[p->t->kind]);
}

void
expect_op(struct parser *p, const char *op)
{
	if (!skip_op(p, op))
		unexpected(p, op);
}

const char *
expect_name(struct parser *p, const char *what)
{
	const char *name = p->t->at;

	if (p->t->kind != T_NAME)
		unexpected(p, what);
	advance(p);
	return name;
}

static void
append_node(struct node ***last, struct node *n)
{
	**last = n;
	*last = &n->next;
}

/* ---- operands ---- */

static struct node *
constant(struct parser *p, struct value v)
{
	struct node *n = new_node(p, N_CONST);

	n->value = v;
	return n;
}

static struct node *
parse_strings(struct parser *p)
{
	struct sink s = { .n = 0 };
	struct node *n = new_node(p, N_CONST);

	for (; p->t->kind == T_STRING; advance(p))
		sink_bytes(p->run, &s, p->t->at, p->t->n);
	n->value = sink_value(p->run, &s);
	return n;
}

static struct node *
parse_name(struct parser *p)
{
	static const struct { const char *name; int kind; } words[] = {
		{ "true", 1 }, { "True", 1 }, { "false", 0 }, { "False", 0 }, { "none", 2 },
		{ "None", 2 } };
	struct node *n = new_node(p, N_NAME);
	size_t i;

	n->name = expect_name(p, "a name");
	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i].name, n->name) == 0) {
			n->kind = N_CONST;
			n->value = words[i].kind == 2 ? value_none() : value_bool(words[i].kind);
		}
	return n;
}

/* Parses the elements and the closing operator. */
static struct node *
parse_elements(struct parser *p, const char *close)
{
	struct node *n = new_node(p, N_LIST), **last = &n->list;

	while (!skip_op(p, close)) {
		append_node(&last, parse_expression(p));
		if (!at_op(p, close))
			expect_op(p, ",");
	}
	return n;
}

static struct node *
parse_dict(struct parser *p)
{
	struct node *n = new_node(p, N_DICT), **last = &n->list, *pair;

	while (!skip_op(p, "}")) {
		pair = new_node(p, N_PAIR);
		pair->a = parse_expression(p);
		expect_op(p, ":");
		pair->b = parse_expression(p);
		append_node(&last, pair);
		if (!at_op(p, "}"))
			expect_op(p, ",");
	}
	return n;
}

static struct node *
parse_in_brackets(struct parser *p)
{
	struct node *n, *tuple, **last;

	if (skip_op(p, ")"))
		return new_node(p, N_LIST);
	n = parse_expression(p);
	if (!at_op(p, ",")) {
		expect_op(p, ")");
		return n;
	}
	tuple = new_node(p, N_LIST);
	last = &tuple->list;
	append_node(&last, n);
	while (skip_op(p, ",") && !at_op(p, ")"))
		append_node(&last, parse_expression(p));
	expect_op(p, ")");
	return tuple;
}

static struct node *
parse_primary(struct parser *p)
{
	struct node *n;

	switch (p->t->kind) {
	case T_NAME:
		return parse_name(p);
	case T_STRING:
		return parse_strings(p);
	case T_INT: case T_REAL:
		n = constant(p, value_int(p->t->i));
		if (p->t->kind == T_REAL) {
			n->value.kind = V_REAL;
			n->value.u.r = p->t->r;
		}
		advance(p);
		return n;
	default:
		if (skip_op(p, "("))
			return parse_in_brackets(p);
		if (skip_op(p, "["))
			return parse_elements(p, "]");
		if (skip_op(p, "{"))
			return parse_dict(p);
		unexpected(p, "an expression");
	}
}

/* ---- postfix ---- */

void
parse_arguments(struct parser *p, struct node *call)
{
	struct node **last = &call->list, *n, *keyword;

	while (!skip_op(p, ")")) {
		if (at_op(p, "*") || at_op(p, "**"))
			run_fail(p->run, CHAT_EUNSUPPORTED, "arguments with %s are not supported",
			    p->t->at);
		n = parse_expression(p);
		if (n->kind == N_NAME && skip_op(p, "=")) {
			keyword = new_node(p, N_KEYWORD);
			keyword->name = n->name;
			keyword->a = parse_expression(p);
			n = keyword;
		}
		append_node(&last, n);
		if (!at_op(p, ")"))
			expect_op(p, ",");
	}
}

/* Parses after "[". */
static struct node *
parse_item(struct parser *p, struct node *of)
{
	struct node *n = new_node(p, N_ITEM);

	n->a = of;
	if (!at_op(p, ":"))
		n->b = parse_expression(p);
	if (skip_op(p, ":")) {
		n->kind = N_SLICE;
		if (!at_op(p, ":") && !at_op(p, "]"))
			n->c = parse_expression(p);
		if (skip_op(p, ":") && !at_op(p, "]"))
			n->d = parse_expression(p);
	}
	expect_op(p, "]");
	return n;
}

static struct node *
parse_call(struct parser *p, struct node *of)
{
	struct node *n = new_node(p, N_CALL);

	n->a = of;
	parse_arguments(p, n);
	return n;
}

static struct node *
parse_postfix(struct parser *p, struct node *of)
{
	struct node *n;

	for (;;) {
		if (skip_op(p, ".")) {
			n = new_node(p, N_ATTRIBUTE);
			n->a = of;
			if (p->t->kind == T_INT) {
				n->kind = N_ITEM;
				n->b = constant(p, value_int(p->t->i));
				advance(p);
			} else {
				n->name = expect_name(p, "a name");
			}
			of = n;
		} else if (skip_op(p, "[")) {
			of = parse_item(p, of);
		} else if (skip_op(p, "(")) {
			of = parse_call(p, of);
		} else {
			return of;
		}
	}
}

static struct node *
parse_filter(struct parser *p, struct node *of)
{
	struct node *n = new_node(p, N_FILTER);

	n->a = of;
	n->name = expect_name(p, "the name of a filter");
	if (skip_op(p, "("))
		parse_arguments(p, n);
	return n;
}

/* Returns whether the next token can begin the argument of a test without brackets. */
static int
begins_argument(const struct parser *p)
{
	switch (p->t->kind) {
	case T_NAME:
		return !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and") &&
		    !at_name(p, "is") && !at_name(p, "if") && !at_name(p, "in") &&
		    !at_name(p, "not");
	case T_STRING: case T_INT: case T_REAL:
		return 1;
	default:
		return at_op(p, "[") || at_op(p, "{");
	}
}

/* Parses after "is". */
static struct node *
parse_test(struct parser *p, struct node *of)
{
	struct node *n = new_node(p, N_TEST), *not = NULL;

	if (skip_name(p, "not"))
		not = new_node(p, N_NOT);
	n->a = of;
	n->name = expect_name(p, "the name of a test");
	if (skip_op(p, "("))
		parse_arguments(p, n);
	else if (begins_argument(p))
		n->list = parse_postfix(p, parse_primary(p));
	if (not == NULL)
		return n;
	not->a = n;
	return not;
}

struct node *
parse_filters(struct parser *p, struct node *of)
{
	for (;;) {
		if (skip_op(p, "|"))
			of = parse_filter(p, of);
		else if (skip_name(p, "is"))
			of = parse_test(p, of);
		else if (skip_op(p, "("))
			of = parse_call(p, of);
		else
			return of;
	}
}

/* ---- operators ---- */

/* filters: those after "-x" apply to the whole. */
static struct node *
parse_unary(struct parser *p, int filters)
{
	struct node *n;

	run_enter(p->run);
	if (skip_op(p, "-")) {
		n = new_node(p, N_NEGATIVE);
		n->a = parse_unary(p, 0);
	} else if (skip_op(p, "+")) {
		n = parse_unary(p, 0);
	} else {
		n = parse_postfix(p, parse_primary(p));
	}
	if (filters)
		n = parse_filters(p, n);
	run_leave(p->run);
	return n;
}

struct level {
	const char *op[4];
	enum operator means[4];
};

/* From the loosest to the tightest */
static const struct level levels[] = {
	{ { "+", "-" }, { O_ADD, O_SUBTRACT } },
	{ { "~" }, { O_JOIN } },
	{ { "*", "/", "//", "%" }, { O_MULTIPLY, O_DIVIDE, O_FLOOR, O_REST } },
	{ { "**" }, { O_POWER } },
};
#define LEVELS (sizeof(levels) / sizeof(levels[0]))

static struct node *
parse_level(struct parser *p, size_t level)
{
	struct node *left, *n;
	size_t i;

	if (level == LEVELS)
		return parse_unary(p, 1);
	left = parse_level(p, level + 1);
	for (;;) {
		for (i = 0; i < 4; i++)
			if (levels[level].op[i] != NULL && at_op(p, levels[level].op[i]))
				break;
		if (i == 4)
			return left;
		advance(p);
		n = new_node(p, N_BINARY);
		n->op = levels[level].means[i];
		n->a = left;
		n->b = parse_level(p, level + 1);
		left = n;
	}
}

/* Skips a comparison operator and returns it in *op. */
static int
comparison(struct parser *p, enum operator *op)
{
	static const struct level compare[] = {
		{ { "==", "!=", "<", "<=" }, { O_EQUAL, O_UNEQUAL, O_LESS, O_LESS_EQUAL } },
		{ { ">", ">=" }, { O_GREATER, O_GREATER_EQUAL } } };
	size_t i;

	for (i = 0; i < 8; i++)
		if (compare[i / 4].op[i % 4] != NULL && skip_op(p, compare[i / 4].op[i % 4])) {
			*op = compare[i / 4].means[i % 4];
			return 1;
		}
	if (skip_name(p, "in")) {
		*op = O_IN;
		return 1;
	}
	if (at_name(p, "not") && p->t[1].kind == T_NAME && strcmp(p->t[1].at, "in") == 0) {
		advance(p);
		advance(p);
		*op = O_NOT_IN;
		return 1;
	}
	return 0;
}

/* a < b < c is a < b and b < c */
static struct node *
parse_compare(struct parser *p)
{
	struct node *left = parse_level(p, 0), *all = NULL, *n, *and;
	enum operator op;

	while (comparison(p, &op)) {
		n = new_node(p, N_COMPARE);
		n->op = op;
		n->a = left;
		n->b = left = parse_level(p, 0);
		if (all == NULL) {
			all = n;
			continue;
		}
		and = new_node(p, N_AND);
		and->a = all;
		and->b = n;
		all = and;
	}
	return all != NULL ? all : left;
}

static struct node *
parse_not(struct parser *p)
{
	struct node *n;

	if (!at_name(p, "not"))
		return parse_compare(p);
	run_enter(p->run);
	n = new_node(p, N_NOT);
	advance(p);
	n->a = parse_not(p);
	run_leave(p->run);
	return n;
}

static struct node *
parse_and(struct parser *p)
{
	struct node *left = parse_not(p), *n;

	while (skip_name(p, "and")) {
		n = new_node(p, N_AND);
		n->a = left;
		n->b = parse_not(p);
		left = n;
	}
	return left;
}

struct node *
parse_or(struct parser *p)
{
	struct node *left = parse_and(p), *n;

	while (skip_name(p, "or")) {
		n = new_node(p, N_OR);
		n->a = left;
		n->b = parse_and(p);
		left = n;
	}
	return left;
}

struct node *
parse_expression(struct parser *p)
{
	struct node *n, *choice;

	run_enter(p->run);
	n = parse_or(p);
	while (skip_name(p, "if")) {
		choice = new_node(p, N_CHOICE);
		choice->b = n;
		choice->a = parse_or(p);
		if (skip_name(p, "else"))
			choice->c = parse_expression(p);
		n = choice;
	}
	run_leave(p->run);
	return n;
}

struct node *
parse_expression_or_tuple(struct parser *p)
{
	struct node *n = parse_expression(p), *tuple, **last;

	if (!at_op(p, ","))
		return n;
	tuple = new_node(p, N_LIST);
	last = &tuple->list;
	append_node(&last, n);
	while (skip_op(p, ",") && p->t->kind != T_BLOCK_END && p->t->kind != T_PRINT_END)
		append_node(&last, parse_expression(p));
	return tuple;
}

/* jinja_statement.c - the statements of a template */
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_run.h"

static struct node *parse_body(struct parser *, const char *const *until);

static void
end_tag(struct parser *p)
{
	if (p->t->kind != T_BLOCK_END)
		unexpected(p, "%}");
	p->t++;
	p->run->line = p->t->line;
}

/* Parses statements up to {% until[i] .. %}, and stops after that name, which it returns. */
static struct node *
parse_until(struct parser *p, const char *const *until, const char **which)
{
	struct node *body = parse_body(p, until);

	*which = expect_name(p, "the name of a tag");
	return body;
}

static struct node *
parse_if(struct parser *p)
{
	static const char *const until[] = { "elif", "else", "endif", NULL };
	struct node *first = new_node(p, S_IF), *n = first;
	const char *which;

	for (;;) {
		n->a = parse_expression_or_tuple(p);
		end_tag(p);
		n->b = parse_until(p, until, &which);
		if (strcmp(which, "elif") != 0)
			break;
		n = n->c = new_node(p, S_IF);
	}
	if (strcmp(which, "else") == 0) {
		end_tag(p);
		n->c = parse_until(p, until + 2, &which);
	}
	end_tag(p);
	return first;
}

/* Parses names separated by commas; a.b is an attribute of a namespace. */
static struct node *
parse_targets(struct parser *p)
{
	struct node *first = NULL, **last = &first, *n;
	int brackets = skip_op(p, "(");

	do {
		n = new_node(p, N_NAME);
		n->name = expect_name(p, "a name to set");
		if (skip_op(p, ".")) {
			n->kind = N_ATTRIBUTE;
			n->a = new_node(p, N_NAME);
			n->a->name = n->name;
			n->name = expect_name(p, "the name of an attribute");
		}
		*last = n;
		last = &n->next;
	} while (skip_op(p, ","));
	if (brackets)
		expect_op(p, ")");
	return first;
}

static struct node *
parse_for(struct parser *p)
{
	static const char *const until[] = { "else", "endfor", NULL };
	struct node *n = new_node(p, S_FOR), *all, **last;
	const char *which;

	n->list = parse_targets(p);
	if (!skip_name(p, "in"))
		unexpected(p, "in");
	/* an "if" after it is the condition of the loop, not of the expression */
	n->a = parse_or(p);
	if (at_op(p, ",")) {
		all = new_node(p, N_LIST);
		all->list = n->a;
		for (last = &n->a->next; skip_op(p, ","); last = &(*last)->next)
			*last = parse_or(p);
		n->a = all;
	}
	if (skip_name(p, "if"))
		n->d = parse_expression(p);
	if (at_name(p, "recursive"))
		run_fail(p->run, CHAT_EUNSUPPORTED, "a recursive loop is not supported");
	end_tag(p);
	p->loops++;
	n->b = parse_until(p, until, &which);
	p->loops--;
	if (strcmp(which, "else") == 0) {
		end_tag(p);
		n->c = parse_until(p, until + 1, &which);
	}
	end_tag(p);
	return n;
}

static struct node *
parse_set(struct parser *p)
{
	static const char *const until[] = { "endset", NULL };
	struct node *n = new_node(p, S_SET);
	const char *which;

	n->list = parse_targets(p);
	if (skip_op(p, "=")) {
		n->a = parse_expression_or_tuple(p);
		end_tag(p);
		return n;
	}
	n->kind = S_SET_BLOCK;
	n->a = parse_filters(p, new_node(p, N_PRINTED));
	end_tag(p);
	n->b = parse_until(p, until, &which);
	end_tag(p);
	return n;
}

static struct node *
parse_macro(struct parser *p)
{
	static const char *const until[] = { "endmacro", NULL };
	struct node *n = new_node(p, S_MACRO), **last = &n->list, *param;
	const char *which;
	unsigned loops = p->loops;

	n->name = expect_name(p, "the name of the macro");
	expect_op(p, "(");
	while (!skip_op(p, ")")) {
		param = new_node(p, N_KEYWORD);
		param->name = expect_name(p, "the name of a parameter");
		if (skip_op(p, "="))
			param->a = parse_expression(p);
		*last = param;
		last = &param->next;
		if (!at_op(p, ")"))
			expect_op(p, ",");
	}
	end_tag(p);
	p->loops = 0;
	n->b = parse_until(p, until, &which);
	p->loops = loops;
	end_tag(p);
	return n;
}

static struct node *
parse_filter_block(struct parser *p)
{
	static const char *const until[] = { "endfilter", NULL };
	struct node *n = new_node(p, S_FILTER), *f;
	const char *which;

	f = new_node(p, N_FILTER);
	f->a = new_node(p, N_PRINTED);
	f->name = expect_name(p, "the name of a filter");
	if (skip_op(p, "("))
		parse_arguments(p, f);
	n->a = parse_filters(p, f);
	end_tag(p);
	n->b = parse_until(p, until, &which);
	end_tag(p);
	return n;
}

/* {% generation %} marks an assistant's text for training: only its body matters here. */
static struct node *
parse_generation(struct parser *p)
{
	static const char *const until[] = { "endgeneration", NULL };
	struct node *n = new_node(p, S_GENERATION);
	const char *which;

	end_tag(p);
	n->b = parse_until(p, until, &which);
	end_tag(p);
	return n;
}

static struct node *
parse_statement(struct parser *p)
{
	static const struct { const char *name; struct node *(*parse)(struct parser *); } all[] = {
		{ "if", parse_if }, { "for", parse_for }, { "set", parse_set },
		{ "macro", parse_macro }, { "filter", parse_filter_block },
		{ "generation", parse_generation } };
	static const char *const others[] = { "block", "call", "extends", "from", "import",
	    "include",
		"with", "autoescape", "do", "trans", "debug" };
	const char *name = p->t->kind == T_NAME ? p->t->at : "";
	struct node *n;
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (skip_name(p, all[i].name))
			return all[i].parse(p);
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(name, others[i]) == 0)
			run_fail(p->run, CHAT_EUNSUPPORTED, "{%% %s %%} is not supported", name);
	if (p->loops > 0 && (at_name(p, "break") || at_name(p, "continue"))) {
		n = new_node(p, at_name(p, "break") ? S_BREAK : S_CONTINUE);
		p->t++;
		end_tag(p);
		return n;
	}
	unexpected(p, "a statement");
}

static int
is_one_of(const struct parser *p, const char *const *names)
{
	for (; names != NULL && *names != NULL; names++)
		if (at_name(p, *names))
			return 1;
	return 0;
}

/* Parses up to the end, or {% and one of the names, before which it stops. */
static struct node *
parse_body(struct parser *p, const char *const *until)
{
	struct node *first = NULL, **last = &first;

	run_enter(p->run);
	for (;; last = &(*last)->next) {
		p->run->line = p->t->line;
		if (p->t->kind == T_TEXT) {
			*last = new_node(p, S_TEXT);
			(*last)->value = value_text(p->run, p->t->at, NULL, p->t->n);
			p->t++;
		} else if (p->t->kind == T_PRINT_BEGIN) {
			*last = new_node(p, S_PRINT);
			p->t++;
			(*last)->a = parse_expression_or_tuple(p);
			if (p->t->kind != T_PRINT_END)
				unexpected(p, "}}");
			p->t++;
		} else if (p->t->kind == T_BLOCK_BEGIN) {
			p->t++;
			if (is_one_of(p, until))
				break;
			*last = parse_statement(p);
		} else {
			if (until != NULL)
				unexpected(p, until[1] == NULL ? until[0] : "the end of a block");
			break;
		}
	}
	run_leave(p->run);
	return first;
}

struct node *
parse_template(struct parser *p)
{
	return parse_body(p, NULL);
}

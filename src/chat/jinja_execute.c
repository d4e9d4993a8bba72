/* jinja_execute.c - executes the statements of a template; reading and rendering as a whole */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_run.h"

#define TEMPLATE_MOST ((size_t)256 << 20)
#ifndef FUZZ
#define RENDER_LEAST ((size_t)64 << 20)
#define STEPS_LEAST 20000000u
#else
#define RENDER_LEAST ((size_t)8 << 20)
#define STEPS_LEAST 20000u
#endif

/* ---- statements ---- */

/* Enters a frame inside `up`, which becomes the innermost one. It is in the arena, as every
 * frame is: a macro defined in it keeps it, and a namespace may carry the macro out. */
static void
push_frame(struct render *x, struct frame *up)
{
	struct frame *f = run_zalloc(&x->run, sizeof(*f));

	f->up = up;
	x->frame = f;
}

static void
pop_frame(struct render *x)
{
	x->frame = x->frame->up;
}

static void
assign(struct render *x, const struct node *target, struct value v)
{
	struct value to;

	if (target->kind == N_NAME) {
		bind(x, target->name, v);
		return;
	}
	to = evaluate(x, target->a);
	if (to.kind != V_DICT || !to.u.dict->is_namespace)
		run_fail(&x->run, CHAT_EINVALID, "%s.%s is set, and %s is not a namespace",
		    target->a->name, target->name, target->a->name);
	dict_set(&x->run, to.u.dict, value_word(&x->run, target->name).u.text, v);
}

/* Assigns to one target, or to several the elements of a value. */
static void
assign_all(struct render *x, const struct node *targets, struct value v)
{
	const struct list *parts;
	const struct node *t;
	size_t n = 0;

	if (targets->next == NULL) {
		assign(x, targets, v);
		return;
	}
	parts = elements(&x->run, v, "an assignment to several names");
	for (t = targets; t != NULL; t = t->next)
		n++;
	if (n != parts->n)
		run_fail(&x->run, CHAT_EINVALID, "%zu values for %zu names", parts->n, n);
	for (t = targets, n = 0; t != NULL; t = t->next)
		assign(x, t, parts->at[n++]);
}

/* Returns the elements of a for for which its condition holds. */
static const struct list *
loop_elements(struct render *x, const struct node *n)
{
	const struct list *all = elements(&x->run, evaluate(x, n->a), "a loop");
	struct value chosen;
	size_t i;

	if (n->d == NULL)
		return all;
	chosen = value_list(&x->run);
	for (i = 0; i < all->n; i++) {
		push_frame(x, x->frame);
		assign_all(x, n->list, all->at[i]);
		if (truth(evaluate(x, n->d)))
			list_push(&x->run, chosen.u.list, all->at[i]);
		pop_frame(x);
	}
	return chosen.u.list;
}

static enum ends
run_loop(struct render *x, const struct node *n)
{
	const struct list *all = loop_elements(x, n);
	struct loop *l;
	enum ends how = ENDS;
	size_t i;

	for (i = 0; i < all->n && how != BREAKS; i++) {
		l = run_alloc(&x->run, sizeof(*l));
		l->all = all;
		l->i = i;
		push_frame(x, x->frame);
		bind(x, "loop", (struct value){ .kind = V_LOOP, .u.loop = l });
		assign_all(x, n->list, all->at[i]);
		how = execute(x, n->b);
		pop_frame(x);
	}
	return all->n == 0 ? execute(x, n->c) : ENDS;
}

/* Returns the text that the body prints. */
static struct value
capture(struct render *x, const struct node *body, enum ends *how)
{
	struct sink s = { .n = 0 }, *outside = x->sink;

	x->sink = &s;
	*how = execute(x, body);
	x->sink = outside;
	return sink_value(&x->run, &s);
}

/* {% set x %}..{% endset %}, {% filter f %}..{% endfilter %}: applies filters, whose innermost
 * operand is N_PRINTED, to the text that the body prints. */
static enum ends
filtered(struct render *x, const struct node *n)
{
	const struct value outside = x->printed;
	enum ends how;
	struct value v;

	push_frame(x, x->frame);
	v = capture(x, n->b, &how);
	pop_frame(x);
	x->printed = v;
	v = evaluate(x, n->a);
	x->printed = outside;
	if (n->kind == S_FILTER)
		sink_put(&x->run, x->sink, as_text(&x->run, v));
	else
		assign_all(x, n->list, v);
	return how;
}

struct macro {
	struct callable callable;       /* the first member */
	struct frame *frame;            /* where it was made */
};

struct value
call_macro(struct run *r, const struct callable *c, struct args *a)
{
	struct render *x = (struct render *)r;
	struct frame *outside = x->frame;
	const struct node *p;
	struct value *given, v;
	enum ends how;
	unsigned i = 0;

	run_enter(r);
	push_frame(x, ((const struct macro *)c)->frame);
	for (p = c->macro->list; p != NULL; p = p->next, i++) {
		given = arg(a, i, p->name);
		bind(x, p->name, given != NULL ? *given : p->a != NULL ? evaluate(x, p->a) :
		    value_undefined(p->name));
	}
	v = capture(x, c->macro->b, &how);
	x->frame = outside;
	run_leave(r);
	return v;
}

static void
make_macro(struct render *x, const struct node *n)
{
	struct macro *m = run_zalloc(&x->run, sizeof(*m));

	m->callable.name = n->name;
	m->callable.macro = n;
	m->callable.call = call_macro;
	m->frame = x->frame;
	bind(x, n->name, (struct value){ .kind = V_CALLABLE, .u.callable = &m->callable });
}

static enum ends
execute_one(struct render *x, const struct node *n)
{
	switch (n->kind) {
	case S_TEXT:
		sink_put(&x->run, x->sink, n->value.u.text);
		break;
	case S_PRINT:
		sink_put(&x->run, x->sink, as_text(&x->run, evaluate(x, n->a)));
		break;
	case S_IF:
		return execute(x, truth(evaluate(x, n->a)) ? n->b : n->c);
	case S_FOR:
		return run_loop(x, n);
	case S_SET:
		assign_all(x, n->list, evaluate(x, n->a));
		break;
	case S_SET_BLOCK: case S_FILTER:
		return filtered(x, n);
	case S_MACRO:
		make_macro(x, n);
		break;
	case S_GENERATION:
		return execute(x, n->b);
	case S_BREAK:
		return BREAKS;
	case S_CONTINUE:
		return CONTINUES;
	default:
		run_fail(&x->run, CHAT_EINVALID, "this is not a statement");
	}
	return ENDS;
}

enum ends
execute(struct render *x, const struct node *list)
{
	enum ends how = ENDS;

	run_enter(&x->run);
	for (; list != NULL && how == ENDS; list = list->next) {
		x->run.line = list->line;
		how = execute_one(x, list);
	}
	run_leave(&x->run);
	return how;
}

/* ---- the whole ---- */

struct jinja {
	struct run run;                 /* its memory */
	char *name;
	struct node *body;
};

/* A function apart from jinja_read(), so that no variable changes after setjmp() in its frame. */
static int
read_into(struct jinja *t, const char *text, size_t len)
{
	struct parser p = { .run = &t->run };

	if (setjmp(t->run.out) != 0)
		return t->run.code;
	p.t = lex(&t->run, text, len);
	t->body = parse_template(&p);
	return 0;
}

int
jinja_read(const char *name, const char *text, size_t len, struct jinja **out, char *err,
    size_t errlen)
{
	struct jinja *t;
	json_t *checked = json_stringn(text, len);
	int rc;

	*out = NULL;
	json_decref(checked);
	if (checked == NULL) {
		snprintf(err, errlen, "%s: it is not UTF-8", name);
		return CHAT_EINVALID;
	}
	t = calloc(1, sizeof(*t));
	if (t == NULL || (t->name = strdup(name)) == NULL) {
		free(t);
		snprintf(err, errlen, "%s: no memory", name);
		return CHAT_ENOMEM;
	}
	t->run.name = t->name;
	t->run.err = err;
	t->run.errlen = errlen;
	t->run.most = TEMPLATE_MOST;
	t->run.most_steps = UINT64_MAX;
	if ((rc = read_into(t, text, len)) != 0) {
		jinja_free(t);
		return rc;
	}
	*out = t;
	return 0;
}

void
jinja_free(struct jinja *t)
{
	if (t == NULL)
		return;
	run_free(&t->run);
	free(t->name);
	free(t);
}

/* Returns the bytes of all texts in a value. */
static size_t
size_of(const json_t *v)
{
	json_t *object = (json_t *)(uintptr_t)v, *one;
	size_t i, n = 64;
	const char *key;

	json_object_foreach(object, key, one)
		n += strlen(key) + size_of(one);
	for (i = 0; i < json_array_size(v); i++)
		n += size_of(json_array_get(v, i));
	return n + (json_is_string(v) ? json_string_length(v) : 0);
}

static int
render_into(struct render *x, const struct jinja *t)
{
	json_t *variables = (json_t *)(uintptr_t)x->context->variables, *one;
	const char *key;

	if (setjmp(x->run.out) != 0)
		return x->run.code;
	x->run.line = 1;
	push_frame(x, NULL);
	json_object_foreach(variables, key, one) {
		const struct origin o = { x->context, key, key };

		bind(x, key, value_of_json(&x->run, one, &o));
	}
	execute(x, t->body);
	return 0;
}

int
jinja_render(const struct jinja *t, const struct jinja_context *context, struct marked_text *out,
    char *err, size_t errlen)
{
	const size_t n = size_of(context->variables);
	struct sink sink = { .n = 0 };
	struct render x = { .run = { .name = t->name, .err = err, .errlen = errlen,
	    .most = RENDER_LEAST + 64 * n, .most_steps = STEPS_LEAST + 8 * (uint64_t)n },
	    .context = context, .sink = &sink };
	int rc = render_into(&x, t);

	if (context->steps != NULL)
		*context->steps = x.run.steps;
	memset(out, 0, sizeof(*out));
	if (rc == 0) {
		out->text = malloc(sink.n + 1);
		out->mark = malloc(sink.n + 1);
		if (out->text == NULL || out->mark == NULL) {
			free(out->text);
			free(out->mark);
			memset(out, 0, sizeof(*out));
			snprintf(err, errlen, "%s: no memory", t->name);
			rc = CHAT_ENOMEM;
		}
	}
	if (rc == 0) {
		if (sink.n > 0) {
			memcpy(out->text, sink.at, sink.n);
			memcpy(out->mark, sink.mark, sink.n);
		}
		out->text[sink.n] = '\0';
		out->mark[sink.n] = 0;
		out->n = sink.n;
	}
	run_free(&x.run);
	return rc;
}

#ifdef FUZZ
/* make fuzz-chat: a template, and after its last zero byte the contents of a message. The
 * rendered text is UTF-8; a failure has a message. */
int LLVMFuzzerTestOneInput(const unsigned char *, size_t);

static void
fuzz_mark(const void *with, const char *variable, const char *key, const json_t *value,
    unsigned char *mark, size_t n)
{
	(void)with;
	(void)variable;
	(void)value;
	if (strcmp(key, "content") == 0)
		memset(mark, 1, n);
}

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	const unsigned char *zero = memrchr(data, 0, size);
	const size_t n = zero != NULL ? (size_t)(zero - data) : size;
	struct jinja_context c = { .mark = fuzz_mark, .date = "2024-07-26" };
	struct marked_text out;
	struct jinja *t;
	char err[256] = "";
	json_t *v = json_pack("{s:[{s:s, s:s%}, {s:s, s:s}], s:s, s:b}", "messages", "role", "user",
	    "content", zero != NULL ? (const char *)zero + 1 : "", zero != NULL ? size - n - 1 : 0,
	    "role", "assistant", "content", "\xe2\x82\xac ", "bos_token", "<s>",
	    "add_generation_prompt", 1);

	if (v == NULL)
		return 0;
	c.variables = v;
	if (jinja_read("fuzz", (const char *)data, n, &t, err, sizeof(err)) == 0 &&
	    jinja_render(t, &c, &out, err, sizeof(err)) == 0) {
		json_t *valid = json_stringn(out.text, out.n);

		if (valid == NULL || out.text[out.n] != '\0')
			abort();
		json_decref(valid);
		free(out.text);
		free(out.mark);
	} else if (err[0] == '\0') {
		abort();
	}
	jinja_free(t);
	json_decref(v);
	return 0;
}
#endif

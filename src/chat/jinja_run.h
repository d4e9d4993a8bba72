/* jinja_run.h - what the parts of the interpreter share: memory, values, the tree of a template
 *
 * All memory of a template, or of a rendering, is in an arena that is freed as a whole. An
 * error leaves all functions by run_fail(), a longjmp(): no function here returns an error. */
#ifndef KVPIPE_JINJA_RUN_H
#define KVPIPE_JINJA_RUN_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/jinja.h"

#define RUN_DEPTH 400           /* most nested expressions and statements */
#define ARGS_MOST 12
#define NAME_MOST 255           /* bytes of a name in a template */
#define CHARGED_BYTES 16        /* bytes, read or made, for one step of work */
#define CHARGED_NAMES 8         /* names compared for one step of work */
#define CHARGED_REAL 64         /* steps for printing a number with a fraction */

/* ---- memory and failure ---- */

struct arena_block;

struct run {
	jmp_buf out;
	int code;
	char *err;
	size_t errlen;
	const char *name;               /* of the template */
	unsigned line;                  /* current line of the template */
	unsigned depth;
	struct arena_block *blocks;
	size_t used, most;              /* bytes of the arena */
	uint64_t steps, most_steps;     /* of work */
};

/* Work is counted in steps, so that a rendering ends whatever its template says. A step is
 *
 *   a statement, an expression, a filter, a test, a value that is made from JSON, printed or
 *   compared;
 *   CHARGED_NAMES names that are compared until a variable or a key is found;
 *   CHARGED_BYTES bytes of memory that is allocated, or of a text that is read.
 *
 * So making a text, a list or a mapping is charged by its bytes, n / 16 for a text and n for a
 * list, in run_alloc(); reading through one is charged in addition:
 *
 *   length, [i], [i:j] of a text, find()           its bytes
 *   in, find(), replace, split() of a text         those up to the place, and of the text sought
 *   trim, strip() and so on                        the bytes removed; of "chars" for each character
 *   split() at white space, int                    the bytes
 *   == of texts of one length, < of texts          the bytes of the shorter one
 *   == of lists and mappings, in a list            the elements compared, and theirs
 *   a variable; [key], .name, get(), in            the names up to it, bytes of those of its length
 *   startswith(), endswith()                       each prefix, and its bytes
 *   join, map, select, reject, selectattr ...      the elements, and the work on each
 *   unique                                         for each element those kept so far
 *   sort, dictsort                                 n log n comparisons, and theirs
 *   tojson, string, join, ~, {{ }} of numbers      those with a fraction CHARGED_REAL
 *
 * Nothing else takes longer for a larger value: first, last, default, items, keys(), values(),
 * list, reverse, upper, range() are charged for their result, the others do not look inside. */
void run_charge(struct run *, size_t elements, size_t bytes);
/* Returns n bytes, aligned, not zeroed. Fails beyond run.most. */
void *run_alloc(struct run *, size_t n);
void *run_zalloc(struct run *, size_t n);
void run_free(struct run *);
/* Fails with a message that begins with name and line. */
void run_fail(struct run *, int code, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
/* Counts a step, and a level of nesting until run_leave(). */
void run_enter(struct run *);
void run_leave(struct run *);

/* ---- values ---- */

/* A text, not terminated, never changed once it is made. mark NULL: all zeros. */
struct text {
	const char *at;
	const unsigned char *mark;
	size_t n;
};

enum value_kind {
	V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_REAL, V_TEXT, V_LIST, V_DICT, V_LOOP, V_CALLABLE
};

struct value {
	enum value_kind kind;
	/* mark of the text that a number, true, false or none prints as */
	unsigned char mark;
	union {
		int64_t i;              /* V_INT, V_BOOL */
		double r;
		const struct text *text;
		struct list *list;
		struct dict *dict;
		const struct loop *loop;
		const struct callable *callable;
		const char *name;       /* V_UNDEFINED: name of the missing value */
	} u;
};

struct list {
	struct value *at;
	size_t n, cap;
};

struct dict {
	const struct text **key;
	struct value *at;
	size_t n, cap;
	int is_namespace;
};

/* `loop` inside a for */
struct loop {
	const struct list *all;
	size_t i;
};

struct args {
	struct value at[ARGS_MOST], named[ARGS_MOST];
	const char *name[ARGS_MOST];    /* of named[] */
	unsigned n, n_named;
	unsigned used, used_named;      /* bits: looked at by arg() */
};

/* A macro, a function, or a method with its object. */
struct callable {
	const char *name;
	const struct node *macro;
	struct value self;              /* V_UNDEFINED: a function */
	struct value (*call)(struct run *, const struct callable *, struct args *);
};

struct value value_bool(int b);
struct value value_int(int64_t i);
struct value value_text(struct run *, const char *at, const unsigned char *mark, size_t n);
struct value value_word(struct run *, const char *s);          /* a copy, mark 0 */
struct value value_none(void);
struct value value_undefined(const char *name);
struct value value_list(struct run *);
struct value value_dict(struct run *);
void list_push(struct run *, struct list *, struct value);
/* Returns the value of a key, which need not be terminated, or NULL. */
struct value *dict_get(struct run *, const struct dict *, const char *key, size_t n);
void dict_set(struct run *, struct dict *, const struct text *key, struct value);
/* The place of a value in the JSON input: arguments of jinja_context.mark. */
struct origin {
	const struct jinja_context *context;
	const char *variable, *key;
};
struct value value_of_json(struct run *, const json_t *, const struct origin *);

const char *terminated(struct run *, const struct text *);      /* a copy, for messages */
/* Returns the mark of a text as a whole: its first byte's mark that is not 0, or 0. */
unsigned char mark_of(struct run *, const struct text *);
int text_is(const struct text *, const char *word);
int is_text(struct value, const char *word);
const char *kind_name(struct value);
int truth(struct value);
int is_number(struct value);
int equal(struct run *, struct value, struct value);
int compare_values(struct run *, struct value, struct value);
int contains(struct run *, struct value whole, struct value part);
/* Returns what {{ }} prints of a value: Python's str(). */
const struct text *as_text(struct run *, struct value);
/* Returns the text of a V_TEXT; fails for other values. what: the caller, for the message. */
const struct text *want_text(struct run *, struct value, const char *what);
int64_t want_int(struct run *, struct value, const char *what);
/* Returns the elements over which a for iterates: a list, the keys of a dict, the characters of
 * a text. */
const struct list *elements(struct run *, struct value, const char *what);
size_t characters(struct run *, const struct text *);
/* Returns the offset of character i; text->n after the last one. */
size_t character_at(struct run *, const struct text *, size_t i);
struct value text_part(struct run *, const struct text *, size_t from, size_t to);
struct value slice(struct run *, struct value, const struct value *from, const struct value *to,
    const struct value *step);
struct value item(struct run *, struct value, struct value key);
struct value attribute(struct run *, struct value, const char *name);

/* A text that grows */
struct sink {
	char *at;
	unsigned char *mark;
	size_t n, cap;
};
void sink_put(struct run *, struct sink *, const struct text *);
void sink_bytes(struct run *, struct sink *, const char *at, size_t n);
struct value sink_value(struct run *, const struct sink *);
/* Append a value as Python's json.dumps(ensure_ascii=False), and as its repr(). indent: blanks
 * for each level, or -1: on one line. */
void put_json(struct run *, struct sink *, struct value, int indent);
void put_repr(struct run *, struct sink *, struct value);

/* ---- filters, tests, functions, methods ---- */

/* Returns the argument at place i or with this name; NULL if it is not given. */
struct value *arg(struct args *, unsigned i, const char *name);
/* Fails if an argument was given that arg() was never asked for. */
void args_done(struct run *, const struct args *, const char *kind, const char *name);

/* Apply a filter or a test by name; fail for an unknown name. */
struct value filter(struct run *, const char *name, struct value, struct args *);
int test(struct run *, const char *name, struct value, struct args *);
/* Returns the method of self with this name; V_UNDEFINED if it has none. */
struct value method(struct run *, struct value self, const char *name);
struct value global(struct run *, const char *name, const char *date);

/* Returns the first place of `part` in a text, or NULL. */
const char *text_find(struct run *, const struct text *, const struct text *part);
/* Shared by a filter and a method of the same name. */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
struct value text_strip(struct run *, const struct text *, const struct text *of, int sides);
struct value text_replace(struct run *, const struct text *, const struct text *from,
    const struct text *to, int64_t most);
/* most < 0: split at all places */
struct value text_split(struct run *, const struct text *, const struct text *at, int64_t most);
struct value text_words(struct run *, const struct text *);
enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE };
struct value text_case(struct run *, const struct text *, enum text_case);
struct value dict_items(struct run *, struct value dict);

/* ---- the tree ---- */

enum node_kind {
	/* expressions */
	N_CONST, N_NAME, N_LIST, N_DICT, N_PAIR, N_ATTRIBUTE, N_ITEM, N_SLICE, N_CALL, N_FILTER,
	N_TEST, N_KEYWORD, N_PRINTED, N_NOT, N_AND, N_OR, N_BINARY, N_NEGATIVE, N_COMPARE, N_CHOICE,
	/* statements */
	S_TEXT, S_PRINT, S_IF, S_FOR, S_SET, S_SET_BLOCK, S_MACRO, S_FILTER, S_GENERATION, S_BREAK,
	S_CONTINUE
};

enum operator {
	O_ADD, O_SUBTRACT, O_MULTIPLY, O_DIVIDE, O_FLOOR, O_REST, O_POWER, O_JOIN,
	O_EQUAL, O_UNEQUAL, O_LESS, O_LESS_EQUAL, O_GREATER, O_GREATER_EQUAL, O_IN, O_NOT_IN
};

struct node {
	enum node_kind kind;
	enum operator op;
	unsigned line;
	const char *name;               /* of variable, attribute, filter, test, macro, keyword */
	struct value value;             /* N_CONST, S_TEXT */
	/* operands; of statements a: the expression, b: body, c: else, d: condition of a for */
	struct node *a, *b, *c, *d;
	struct node *list;              /* elements, arguments, targets: chained by next */
	struct node *next;
};

/* ---- reading ---- */

enum token_kind {
	T_END, T_TEXT, T_BLOCK_BEGIN, T_BLOCK_END, T_PRINT_BEGIN, T_PRINT_END, T_NAME, T_STRING,
	T_INT, T_REAL, T_OP
};

struct token {
	enum token_kind kind;
	unsigned line;
	const char *at;                 /* the text; terminated for T_NAME and T_OP */
	size_t n;
	int64_t i;
	double r;
};

/* Returns all tokens; the last one is T_END. */
struct token *lex(struct run *, const char *text, size_t len);

struct parser {
	struct run *run;
	const struct token *t;          /* the next one */
	unsigned loops;                 /* loops around the current statement */
};

struct node *new_node(struct parser *, enum node_kind);
int at_name(const struct parser *, const char *name);
int at_op(const struct parser *, const char *op);
int skip_name(struct parser *, const char *name);
int skip_op(struct parser *, const char *op);
void expect_op(struct parser *, const char *op);
const char *expect_name(struct parser *, const char *what);
void unexpected(struct parser *, const char *wanted) __attribute__((noreturn));
struct node *parse_expression(struct parser *);                /* with "x if y else z" */
struct node *parse_expression_or_tuple(struct parser *);
struct node *parse_or(struct parser *);                        /* without */
void parse_arguments(struct parser *, struct node *call);      /* Parses the arguments after "(". */
struct node *parse_filters(struct parser *, struct node *);
struct node *parse_template(struct parser *);

/* ---- rendering ---- */

struct binding {
	struct binding *next;
	const char *name;
	struct value value;
};

struct frame {
	struct frame *up;
	struct binding *first;
};

/* A rendering: a run and its output. */
struct render {
	/* first member, so that a struct run * can be cast to this */
	struct run run;
	const struct jinja_context *context;
	struct frame *frame;            /* the innermost one */
	struct sink *sink;
	/* for N_PRINTED: the block's body, to which its filters are applied */
	struct value printed;
};

struct value evaluate(struct render *, const struct node *);
void evaluate_args(struct render *, const struct node *list, struct args *);
struct value lookup(struct render *, const char *name);
void bind(struct render *, const char *name, struct value);
enum ends { ENDS, BREAKS, CONTINUES };
enum ends execute(struct render *, const struct node *list);
/* the struct callable.call of a macro */
struct value call_macro(struct run *, const struct callable *, struct args *);

#endif

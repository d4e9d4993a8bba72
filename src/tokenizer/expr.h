/* expr.h - regular expressions of tokenizer.json, matched as Oniguruma with Unicode 16.0 does */
#ifndef KVPIPE_EXPR_H
#define KVPIPE_EXPR_H

#include <stddef.h>
#include <stdint.h>

/* *code <- the compiled expression, for expr_free(); *own: the kinds of young code points
 * (unicode.h) that are matched without stand-ins, because the expression names some of them.
 * Returns 0 or a TOKENIZER_E* code with a message. */
int expr_compile(const char *text, void **code, uint64_t *own, char *err, size_t errlen);
void expr_free(void *code);

/* A thread's memory for matching, and its remaining steps. An expression may take some hundred
 * steps for each byte that is matched; beyond that it is refused. */
struct expr_work;
struct expr_work *expr_work_new(void);          /* NULL: no memory */
void expr_work_free(struct expr_work *);

/* Returns text[len], well-formed UTF-8, with stand-ins for young code points of kinds not in
 * `own`, for matching: text itself, or in *buffer of *room bytes, which grows. NULL: no memory. */
const char *expr_prepare(uint64_t own, const char *text, size_t len, char **buffer, size_t *room);

/* The matches of an expression in text[len], in order. Zero the second part at first. */
struct expr_matches {
	const void *code;
	struct expr_work *work;         /* may be used otherwise between two calls */
	const char *expr;               /* the expression, for messages */
	const char *text;
	size_t len;
	size_t start, end;              /* the match */
	/* end of the previous match: the gap is text[done, start) */
	size_t done;
	size_t from;                    /* where to look next */
	int any;                        /* there was a match */
};

/* Finds the next match. Returns 1; 0 if there is none, and the last gap is text[done, len); or
 * a TOKENIZER_E* code with a message. */
int expr_next(struct expr_matches *, char *err, size_t errlen);

#endif

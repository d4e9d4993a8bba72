/* expr.h - regular expressions of tokenizer.json, matched as Oniguruma with Unicode 16.0 does */
#ifndef KVPIPE_EXPR_H
#define KVPIPE_EXPR_H

#include <stddef.h>
#include <stdint.h>

/* *code <- the expression, for expr_free(); *own: the kinds of young code points (unicode.h) that
 * are matched as they are, because the expression names some of them. Returns 0 or a TOKENIZER_E*
 * code with a message. */
int expr_compile(const char *text, void **code, uint64_t *own, char *err, size_t errlen);
void expr_free(void *code);

/* What one thread needs to match, and the steps that are left: matching takes no more than some
 * hundred for each byte of all that it is used for, whatever the expression, and is refused
 * then. */
struct expr_work;
struct expr_work *expr_work_new(void);          /* NULL: no memory */
void expr_work_free(struct expr_work *);

/* text[len], well-formed UTF-8, with stand-ins for young code points of other kinds than `own`:
 * this is what is to be matched. It is text itself, or lies in *buffer of *room bytes, which grows
 * as it must. NULL: no memory. */
const char *expr_prepare(uint64_t own, const char *text, size_t len, char **buffer, size_t *room);

/* The matches of an expression in text[len], one after the other, with the rest zeroed at first. */
struct expr_matches {
	const void *code;
	struct expr_work *work;         /* free for other use between two calls */
	const char *expr;               /* the expression, for messages */
	const char *text;
	size_t len;
	size_t start, end;              /* the match */
	/* where the one before it ended: the gap is text[done, start) */
	size_t done;
	size_t from;                    /* where to look next */
	int any;                        /* there was a match */
};

/* The next match: 1; 0 when there is none, and the last gap is text[done, len); or a TOKENIZER_E*
 * code with a message. */
int expr_next(struct expr_matches *, char *err, size_t errlen);

#endif

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

/* What one thread needs to match. */
struct expr_work;
struct expr_work *expr_work_new(void);          /* NULL: no memory */
void expr_work_free(struct expr_work *);

/* text[len], well-formed UTF-8, with stand-ins for young code points of other kinds than `own`:
 * this is what expr_match() is to get. It is text itself, or lies in *buffer of *room bytes, which
 * grows as it must. NULL: no memory. */
const char *expr_prepare(uint64_t own, const char *text, size_t len, char **buffer, size_t *room);

/* The next match in text[len] from `from` on. Returns 1; 0 when there is none; or a TOKENIZER_E*
 * code with a message, in which the expression is `text`. */
int expr_match(const void *code, struct expr_work *, const char *text, size_t len, size_t from,
    size_t *start, size_t *end, const char *expr, char *err, size_t errlen);

#endif

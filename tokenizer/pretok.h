/* pretok.h - cuts text into words, the pieces that byte pair encoding never crosses
 *
 * A list of regular expressions, one after the other: each cuts every piece that the one before
 * left into its matches and what lies between them (behaviour "Isolated"). An expression sees one
 * piece and nothing around it.
 *
 * What a letter or a number is, PCRE2's Unicode tables say (10.42: Unicode 14). A character younger
 * than they are is neither, and may be cut off from its word where newer tables keep it there. */
#ifndef KVPIPE_PRETOK_H
#define KVPIPE_PRETOK_H

#include <stddef.h>

#define PRETOK_MOST 16

struct pretok {
	unsigned n;
	struct {
		char *text;     /* as tokenizer.json has it; owned */
		void *code;     /* pcre2_code */
	} expr[PRETOK_MOST];
};

/* Takes text over, also when it fails. Returns 0 or a TOKENIZER_E* code with a message. */
int pretok_add(struct pretok *, char *text, char *err, size_t errlen);
void pretok_free(struct pretok *);

/* What one thread needs to match; none of it is kept in struct pretok, which is only read. */
struct pretok_work;
struct pretok_work *pretok_work_new(void);      /* NULL: no memory */
void pretok_work_free(struct pretok_work *);

/* Calls word(arg, ...) for each word of text[len], well-formed UTF-8, in order; none is empty.
 * Stops when it returns something other than 0 and returns that; or a TOKENIZER_E* code of its own
 * with a message. */
int pretok_run(const struct pretok *, struct pretok_work *, const char *text, size_t len,
    int (*word)(void *arg, const char *text, size_t len), void *arg, char *err, size_t errlen);

#endif

/* pretok.h - cuts text into words, the pieces that byte pair encoding never crosses
 *
 * A list of steps: each cuts or changes every piece that the previous step left. A step sees
 * one piece and nothing around it. */
#ifndef KVPIPE_PRETOK_H
#define KVPIPE_PRETOK_H

#include <stddef.h>
#include <stdint.h>

#define PRETOK_MOST 16

enum pretok_kind {
	PRETOK_EXPR,            /* split: matches of a regular expression */
	PRETOK_NUMERIC,         /* split: single characters of the classes in unicode.h */
	PRETOK_PUNCTUATION,
	PRETOK_SPACE,
	/* split: runs of word characters, runs of other visible characters */
	PRETOK_WORDS,
	PRETOK_METASPACE,       /* spaces become another character, which begins words */
	PRETOK_PREFIX_SPACE,    /* puts a space before a piece without one */
	PRETOK_SPELL            /* bytes become the characters that vocab_spell() reads */
};

/* Treatment of the matches of a split, and of the gaps between them. */
enum pretok_behavior {
	PRETOK_ISOLATED,
	PRETOK_REMOVED,
	PRETOK_CONTIGUOUS,
	PRETOK_MERGED_WITH_PREVIOUS,
	PRETOK_MERGED_WITH_NEXT
};

/* Metaspace: where the character is put before a piece that does not begin with it. */
enum pretok_prepend { PRETOK_NEVER, PRETOK_FIRST, PRETOK_ALWAYS };

struct pretok_step {
	enum pretok_kind kind;
	enum pretok_behavior behavior;
	int invert;             /* swap matches and gaps */
	char *text;             /* the expression as tokenizer.json has it; owned */
	void *code;             /* pcre2_code */
	uint64_t own;           /* kinds (unicode.h) that are matched without stand-ins */
	char meta[5];           /* Metaspace: the character */
	enum pretok_prepend prepend;
	int splits;             /* Metaspace: cut before each character */
};

struct pretok {
	unsigned n;
	struct pretok_step step[PRETOK_MOST];
};

/* Appends a step; the caller sets the rest of *out. Returns 0 or a TOKENIZER_E* code with a
 * message. */
int pretok_add(struct pretok *, enum pretok_kind, struct pretok_step **out, char *err,
    size_t errlen);
/* As pretok_add(), for PRETOK_EXPR. Owns text, also on failure. */
int pretok_add_expr(struct pretok *, char *text, struct pretok_step **out, char *err,
    size_t errlen);
void pretok_free(struct pretok *);

/* A thread's memory for matching; struct pretok itself is only read. */
struct pretok_work;
struct pretok_work *pretok_work_new(void);      /* NULL: no memory */
void pretok_work_free(struct pretok_work *);
/* Returns the part that matches expressions, for those of a normaliser. */
struct expr_work *pretok_expr(struct pretok_work *);

/* Calls word(arg, ...) for each word of text[len], well-formed UTF-8, in order; none is empty.
 * first: 1 if text begins the input, -1 if it continues a word, before which nothing is put.
 * Stops when word() returns nonzero and returns that; or returns a TOKENIZER_E* code of its own
 * with a message. */
int pretok_run(const struct pretok *, struct pretok_work *, const char *text, size_t len,
    int first, int (*word)(void *arg, const char *text, size_t len), void *arg, char *err,
    size_t errlen);

#endif

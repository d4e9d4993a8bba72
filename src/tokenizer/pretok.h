/* pretok.h - cuts text into words, the pieces that byte pair encoding never crosses
 *
 * A list of steps, one after the other: each cuts or changes every piece that the one before left.
 * A step sees one piece and nothing around it. */
#ifndef KVPIPE_PRETOK_H
#define KVPIPE_PRETOK_H

#include <stddef.h>
#include <stdint.h>

#define PRETOK_MOST 16

enum pretok_kind {
	PRETOK_EXPR,            /* split: what a regular expression matches */
	PRETOK_NUMERIC,         /* split: single characters of the kinds that unicode.h knows */
	PRETOK_PUNCTUATION,
	PRETOK_SPACE,
	PRETOK_WORDS,           /* split: runs of word characters, runs of other visible ones */
	PRETOK_METASPACE,       /* spaces become another character, which begins words */
	PRETOK_PREFIX_SPACE,    /* a space before what has none */
	PRETOK_SPELL            /* bytes become the characters that vocab_spell() reads */
};

/* What becomes of the matches of a split, and of what lies between them. */
enum pretok_behavior {
	PRETOK_ISOLATED,
	PRETOK_REMOVED,
	PRETOK_CONTIGUOUS,
	PRETOK_MERGED_WITH_PREVIOUS,
	PRETOK_MERGED_WITH_NEXT
};

/* Metaspace: where the character is put in front of a piece that does not begin with it. */
enum pretok_prepend { PRETOK_NEVER, PRETOK_FIRST, PRETOK_ALWAYS };

struct pretok_step {
	enum pretok_kind kind;
	enum pretok_behavior behavior;
	int invert;             /* matches are what lies between, and the other way round */
	char *text;             /* the expression as tokenizer.json has it; owned */
	void *code;             /* pcre2_code */
	uint64_t own;           /* kinds (unicode.h) that are matched as they are */
	char meta[5];           /* Metaspace: the character */
	enum pretok_prepend prepend;
	int splits;             /* Metaspace: cuts before each character */
};

struct pretok {
	unsigned n;
	struct pretok_step step[PRETOK_MOST];
};

/* Appends a step; *out is for the caller to fill in further. Returns 0 or a TOKENIZER_E* code with
 * a message. */
int pretok_add(struct pretok *, enum pretok_kind, struct pretok_step **out, char *err,
    size_t errlen);
/* The same for PRETOK_EXPR. Takes text over, also when it fails. */
int pretok_add_expr(struct pretok *, char *text, struct pretok_step **out, char *err,
    size_t errlen);
void pretok_free(struct pretok *);

/* What one thread needs to match; none of it is kept in struct pretok, which is only read. */
struct pretok_work;
struct pretok_work *pretok_work_new(void);      /* NULL: no memory */
void pretok_work_free(struct pretok_work *);
/* What it matches expressions with, for those of a normaliser. */
struct expr_work *pretok_expr(struct pretok_work *);

/* Calls word(arg, ...) for each word of text[len], well-formed UTF-8, in order; none is empty.
 * first: 1 when text is the beginning of all there is, -1 when it goes on in the middle of a word,
 * where nothing is put before it. Stops when word() returns something other than 0
 * and returns that; or a TOKENIZER_E* code of its own with a message. */
int pretok_run(const struct pretok *, struct pretok_work *, const char *text, size_t len,
    int first, int (*word)(void *arg, const char *text, size_t len), void *arg, char *err,
    size_t errlen);

#endif

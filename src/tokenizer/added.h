/* added.h - finds added tokens in text, as Hugging Face's AddedVocabulary does
 *
 * Matches are leftmost, longest, and do not overlap. A single_word token matches only between
 * characters that are not word characters; lstrip and rstrip include adjacent white space in
 * the match. A normalized token is searched for in normalised form, in normalised text; the
 * caller arranges that. */
#ifndef KVPIPE_ADDED_H
#define KVPIPE_ADDED_H

#include "tokenizer/vocab.h"

/* Most bytes of a token: each place of a text is compared with as many. */
#define ADDED_MOST 1024

struct added_token {
	char *text;             /* as it is looked for; owned */
	size_t len;             /* > 0 */
	uint32_t id;
	unsigned flags;         /* TOKEN_* */
	size_t order;           /* of added_add() */
};

struct added {
	struct added_token *token;      /* [n], sorted by added_ready() */
	size_t n;
	unsigned char first[256];       /* does one start with this byte? */
};

/* Adds a token and owns text, also on failure. Returns 0 or TOKENIZER_ENOMEM. */
int added_add(struct added *, char *text, size_t len, uint32_t id, unsigned flags);

/* Call once, after the last added_add(). Of equal texts the one added first wins. */
void added_ready(struct added *);
void added_free(struct added *);

struct added_hit {
	size_t start, end;      /* including white space; start may be before the previous end */
	uint32_t id;
	size_t resume;          /* where to continue: set it to 0 before the first call */
};

/* Finds the next hit in text[len]; `done` is the end of the previous one. Ignores tokens with a
 * flag in `skip`. mark, if not NULL, is not 0 for bytes of contents: no token with such a byte
 * is found, except tokens of white space only. Returns 1, or 0 if there is none. */
int added_next(const struct added *, const char *text, const unsigned char *mark, size_t len,
    size_t done, unsigned skip, struct added_hit *hit);

#endif

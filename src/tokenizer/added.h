/* added.h - finds added tokens in text, as Hugging Face's AddedVocabulary does
 *
 * Matches are leftmost, longest, and do not overlap. A token marked single_word counts only where
 * no word character touches it; lstrip and rstrip swallow the white space beside it. One marked
 * normalized is looked for in normalised form, in normalised text; that is the caller's to
 * arrange. */
#ifndef KVPIPE_ADDED_H
#define KVPIPE_ADDED_H

#include "tokenizer/vocab.h"

/* Bytes of one: each place of a text is compared with so many. */
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
	unsigned char first[256];       /* is there one that starts with this byte? */
};

/* Takes text over, also when it fails. 0 or TOKENIZER_ENOMEM. */
int added_add(struct added *, char *text, size_t len, uint32_t id, unsigned flags);

/* To be called once, after the last added_add(). Of equal texts the one added first wins. */
void added_ready(struct added *);
void added_free(struct added *);

struct added_hit {
	size_t start, end;      /* with the white space; start may lie before the previous end */
	uint32_t id;
	size_t resume;          /* where to go on: 0 before the first call, then left alone */
};

/* The next hit in text[len]; `done` is the end of the previous one. Tokens with a flag in
 * `skip` are passed over. mark, where it is not NULL, says of each byte whether it is contents
 * (not 0): no token is found that has such a byte, but for those of white space only. Returns
 * 1, or 0 when there is none. */
int added_next(const struct added *, const char *text, const unsigned char *mark, size_t len,
    size_t done, unsigned skip, struct added_hit *hit);

#endif

/* vocab.h - what each token id stands for, both ways; and the growing list of ids
 *
 * The keys of a byte-level vocabulary are spelled in an alphabet of 256 printable characters, one
 * for each byte (GPT-2's bytes_to_unicode). Everything behind this header deals in the bytes
 * themselves. Other vocabularies have one spelling in words ("\u2581the") and another one in the
 * text that comes out (" the"). */
#ifndef KVPIPE_VOCAB_H
#define KVPIPE_VOCAB_H

#include "tokenizer/tokenizer.h"

#define VOCAB_LIMIT (1u << 24)  /* ids are smaller; so is `vocabulary` in a snapshot */
#define VOCAB_NONE UINT32_MAX   /* no such token */

enum {
	TOKEN_USED = 1,         /* the id stands for something */
	TOKEN_BYTES = 2,        /* from the model's vocabulary: words of the text can become it */
	TOKEN_ADDED = 4,        /* from added_tokens: found before the text is cut into words */
	TOKEN_SPECIAL = 8,      /* marks structure: TOK_PLAIN does not look for it */
	TOKEN_NORMALIZED = 16,  /* these four say how an added token is found, see added.h */
	TOKEN_LSTRIP = 32,
	TOKEN_RSTRIP = 64,
	TOKEN_SINGLE_WORD = 128
};
#define TOKEN_IDENTITY 2 /* flags shifted right by this are what the fingerprint has of them */

struct token {
	size_t at;              /* its bytes in words are text[at], len of them and a zero */
	size_t shown_at;        /* those that it is decoded to */
	uint32_t len, shown_len;
	uint32_t flags;
};

struct vocab {
	struct token *token;    /* [size] */
	uint32_t size;          /* greatest id + 1 */
	char *text;
	size_t used, cap;       /* bytes of text */
	uint32_t *slot; /* [mask + 1] open addressing over TOKEN_BYTES, id + 1; 0 = free */
	size_t mask;
};

/* Room for ids 0 .. size - 1, of which about `words` are going to be found by their bytes. 0 or
 * TOKENIZER_ENOMEM. */
int vocab_init(struct vocab *, uint32_t size, size_t words);
void vocab_free(struct vocab *);

/* Sets what id stands for; flags without TOKEN_USED. 0 or TOKENIZER_ENOMEM. */
int vocab_set(struct vocab *, uint32_t id, const char *bytes, size_t len, unsigned flags);

/* Sets what id is decoded to, where that is not what vocab_set() said. 0 or TOKENIZER_ENOMEM. */
int vocab_show(struct vocab *, uint32_t id, const char *bytes, size_t len);

/* The TOKEN_BYTES token with exactly these bytes, or VOCAB_NONE. */
uint32_t vocab_find(const struct vocab *, const char *bytes, size_t len);

/* out <- the bytes that key[len] (well-formed UTF-8) spells; room for len. Returns their number,
 * or SIZE_MAX when a character is not of the alphabet. */
size_t vocab_spell(const char *key, size_t len, char *out);

/* The other way: out <- the characters that spell bytes[len]; room for 2 * len. Returns their
 * bytes. */
size_t vocab_unspell(const char *bytes, size_t len, char *out);

/* 0 or TOKENIZER_ENOMEM. */
int ids_push(struct ids *, uint32_t id);

#endif

/* vocab.h - maps token ids to bytes and back; and the growing list of ids
 *
 * The keys of a byte-level vocabulary are spelled in an alphabet of 256 printable characters,
 * one for each byte (GPT-2's bytes_to_unicode). Callers of this header see only the bytes.
 * Other vocabularies spell a token in words ("\u2581the") and in decoded text (" the"). */
#ifndef KVPIPE_VOCAB_H
#define KVPIPE_VOCAB_H

#include "tokenizer/tokenizer.h"

#define VOCAB_LIMIT (1u << 24)  /* ids are smaller; so is `vocabulary` in a snapshot */
#define VOCAB_NONE UINT32_MAX   /* no such token */

enum {
	TOKEN_USED = 1,         /* the id is in use */
	TOKEN_BYTES = 2,        /* from the model's vocabulary: words of a text can become it */
	TOKEN_ADDED = 4,        /* from added_tokens: found before the text is cut into words */
	TOKEN_SPECIAL = 8,      /* structural: not found with TOK_PLAIN */
	TOKEN_NORMALIZED = 16,  /* these four say how an added token is found, added.h */
	TOKEN_LSTRIP = 32,
	TOKEN_RSTRIP = 64,
	TOKEN_SINGLE_WORD = 128
};
#define TOKEN_IDENTITY 2 /* the fingerprint hashes the flags shifted right by this */

struct token {
	size_t at;              /* bytes in words: text[at], len of them and a zero */
	size_t shown_at;        /* decoded bytes */
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

/* Allocates ids 0 .. size - 1, of which about `words` will be found by their bytes. Returns 0
 * or TOKENIZER_ENOMEM. */
int vocab_init(struct vocab *, uint32_t size, size_t words);
void vocab_free(struct vocab *);

/* Sets what id stands for; flags without TOKEN_USED. Returns 0 or TOKENIZER_ENOMEM. */
int vocab_set(struct vocab *, uint32_t id, const char *bytes, size_t len, unsigned flags);

/* Sets the decoded bytes of id if they differ from those of vocab_set(). Returns 0 or
 * TOKENIZER_ENOMEM. */
int vocab_show(struct vocab *, uint32_t id, const char *bytes, size_t len);

/* Returns the TOKEN_BYTES token with exactly these bytes, or VOCAB_NONE. */
uint32_t vocab_find(const struct vocab *, const char *bytes, size_t len);

/* out <- the bytes that key[len] (well-formed UTF-8) spells; room for len. Returns their number,
 * or SIZE_MAX when a character is not of the alphabet. */
size_t vocab_spell(const char *key, size_t len, char *out);

/* out <- the characters that spell bytes[len], the inverse of vocab_spell(); room for 2 * len.
 * Returns their bytes. */
size_t vocab_unspell(const char *bytes, size_t len, char *out);

/* Returns 0 or TOKENIZER_ENOMEM. */
int ids_push(struct ids *, uint32_t id);

#endif

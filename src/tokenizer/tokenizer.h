/* tokenizer.h - byte pair encoding as tokenizer.json describes it
 *
 * Byte-level (GPT-2, Llama 3, Qwen), or on characters with byte fallback (SentencePiece: Llama
 * 2, Mistral, Gemma, Phi 3). Anything else in the file that changes the ids is refused by name:
 * other models (Unigram, WordPiece), other components. */
#ifndef KVPIPE_TOKENIZER_H
#define KVPIPE_TOKENIZER_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {
	TOKENIZER_OK = 0,
	TOKENIZER_EIO = -1,            /* the file is missing or cannot be read */
	TOKENIZER_EINVALID = -2,       /* damaged or contradictory */
	TOKENIZER_EUNSUPPORTED = -3,   /* valid, but not supported */
	TOKENIZER_ENOMEM = -4
};

struct tokenizer;

/* A growing list of ids. Zero it before first use; free(ids) when done. */
struct ids {
	uint32_t *ids;
	size_t n, cap;
};

/* Loads DIR/tokenizer.json, and the added tokens of DIR/tokenizer_config.json if it exists.
 * Returns 0, or a TOKENIZER_E* code with a message that names file and place. */
int tokenizer_open(const char *dir, struct tokenizer **out, char *err, size_t errlen);
/* As tokenizer_open(), of an object as tokenizer.json has it, from elsewhere: path names that in
 * messages. */
int tokenizer_open_json(const char *path, json_t *, struct tokenizer **out, char *err,
    size_t errlen);
void tokenizer_close(struct tokenizer *);                  /* NULL allowed */

/* hex[33] <- a hash of everything that determines ids and texts, formats/kv-snapshot.md section
 * 6. */
void tokenizer_fingerprint(const struct tokenizer *, char *hex);

uint32_t tokenizer_size(const struct tokenizer *);         /* greatest id + 1 */

enum {
	TOK_TEMPLATE = 1,       /* put the template's tokens (BOS, EOS) around the text */
	/* find no special tokens: "<|end_of_text|>" is plain text */
	TOK_PLAIN = 2,
	/* the text continues another one: no space or the like is put before it, as some
	 * tokenizers do before the first word */
	TOK_MIDDLE = 4,
	/* from tokenizer_behind(): the text follows an added token that is found before or
	 * after normalisation, and that includes the white space after it */
	TOK_BEHIND_RAW = 8,
	TOK_BEHIND_NORMAL = 16,
	TOK_STRIPPED = 32
};

/* Returns the flags by which a text that continues these tokens gets its ids as in the whole
 * text, except where a word continues across the border: 0 for no tokens, or only those of the
 * template; TOK_MIDDLE; or the flags for an added token. */
unsigned tokenizer_behind(const struct tokenizer *, const uint32_t *ids, size_t n);

/* Appends the ids of text[len], which must be UTF-8. Linear in len (a single giant word: n log
 * n). Returns 0 with err empty, or with a warning in err: characters without a token were left
 * out, as by Hugging Face, or the text begins with the token that TOK_TEMPLATE puts before it.
 * Returns TOKENIZER_EINVALID for invalid UTF-8 with the byte offset in err, for an error of
 * PCRE2, or if a needed unknown token is missing; TOKENIZER_ENOMEM. A failure leaves out as it
 * was. Threads may share the tokenizer. */
int tokenizer_encode(const struct tokenizer *, const char *text, size_t len, unsigned flags,
    struct ids *out, char *err, size_t errlen);

/* As tokenizer_encode(), for a text with bytes of contents, where mark[i] is not 0: they are
 * plain text whatever they say. No added token with such a byte is found, special or not,
 * except tokens of white space only. */
int tokenizer_encode_marked(const struct tokenizer *, const char *text, const unsigned char *mark,
    size_t len, unsigned flags, struct ids *out, char *err, size_t errlen);

/* Returns the bytes of one token (possibly part of a UTF-8 sequence); NULL for an unused id.
 * *special, if not NULL, <- 1 for added tokens marked special. */
const char *tokenizer_bytes(const struct tokenizer *, uint32_t id, size_t *len, int *special);

/* The state of a text decoded from its beginning, where some decoders drop a space. Zero it
 * before first use. */
struct text_start {
	int begun;
	size_t stripped;
};

/* out <- the bytes of tokenizer_bytes() as they appear in a text whose earlier tokens went
 * through this function too. out has room for len bytes. Returns their number. */
size_t tokenizer_begin(const struct tokenizer *, struct text_start *, uint32_t id, char *out);

/* Returns the id of an added or ordinary token by its bytes (" the", not as the file spells it;
 * for a vocabulary of characters as the file does), UINT32_MAX if there is none. */
uint32_t tokenizer_id(const struct tokenizer *, const char *text);

/* Turns a stream of token bytes into whole UTF-8 sequences. Zero it before first use. */
struct utf8_stream {
	char part[4];
	unsigned n;
};

/* Appends bytes to the stream and writes complete sequences to out (room for len + 4 bytes, or
 * 3 * (len + 4) when bytes can be invalid). Invalid bytes become U+FFFD. Returns the number of
 * bytes written. */
size_t utf8_push(struct utf8_stream *, const char *bytes, size_t len, char *out);

/* Ends the stream: out[3] <- one U+FFFD if a sequence is incomplete. Returns the number of
 * bytes. */
size_t utf8_flush(struct utf8_stream *, char *out);

#endif

/* tokenizer.h - byte pair encoding as tokenizer.json describes it
 *
 * Byte-level (GPT-2, Llama 3, Qwen) and of characters with bytes for the rest (SentencePiece:
 * Llama 2, Mistral, Gemma, Phi 3). Anything in the file that changes the ids and is not known here
 * is refused by name: other models (Unigram, WordPiece), other components. */
#ifndef KVPIPE_TOKENIZER_H
#define KVPIPE_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

enum {
	TOKENIZER_OK = 0,
	TOKENIZER_EIO = -1,            /* the file is missing or cannot be read */
	TOKENIZER_EINVALID = -2,       /* damaged or contradictory */
	TOKENIZER_EUNSUPPORTED = -3,   /* valid, but not a tokenizer that we compute */
	TOKENIZER_ENOMEM = -4
};

struct tokenizer;

/* Growing list of ids. Zero it before first use; free(ids) when done. */
struct ids {
	uint32_t *ids;
	size_t n, cap;
};

/* Loads DIR/tokenizer.json, and the added tokens of DIR/tokenizer_config.json where there is one.
 * Returns 0, or a TOKENIZER_E* code with a message that names file
 * and place. */
int tokenizer_open(const char *dir, struct tokenizer **out, char *err, size_t errlen);
void tokenizer_close(struct tokenizer *);                  /* NULL allowed */

/* Hash of what determines ids and texts, formats/kv-snapshot.md section 6; hex[33]. */
void tokenizer_fingerprint(const struct tokenizer *, char *hex);

uint32_t tokenizer_size(const struct tokenizer *);         /* greatest id + 1 */

enum {
	TOK_TEMPLATE = 1,       /* put the template's tokens (BOS, EOS) around the text */
	/* no special tokens out of the text: "<|end_of_text|>" is spelled out */
	TOK_PLAIN = 2,
	/* the text goes on in the middle of another one: nothing is put before it, as some
	 * tokenizers have a space before the first word */
	TOK_MIDDLE = 4,
	/* what tokenizer_behind() says of added tokens: the text begins behind one, that was found
	 * before or after normalisation, and that takes the white space behind it */
	TOK_BEHIND_RAW = 8,
	TOK_BEHIND_NORMAL = 16,
	TOK_STRIPPED = 32
};

/* The flags by which a text that continues these tokens gets the ids that it has in the whole, as
 * far as its words do not go on from theirs: 0 where they are none, or only those of the template;
 * TOK_MIDDLE; or those of an added token. */
unsigned tokenizer_behind(const struct tokenizer *, const uint32_t *ids, size_t n);

/* Appends the ids of text[len], which must be UTF-8. Linear in len for text (a single giant
 * word: n log n). Returns 0, and then err is empty or holds a warning: characters without a token
 * were left out, as Hugging Face does it, or the text begins with the token that TOK_TEMPLATE puts
 * before it; TOKENIZER_EINVALID for invalid UTF-8 with the byte offset
 * in err, when PCRE2 reports an error, or when the unknown token is needed and is none;
 * TOKENIZER_ENOMEM. After a failure out holds what it held before. Threads may share the
 * tokenizer. */
int tokenizer_encode(const struct tokenizer *, const char *text, size_t len, unsigned flags,
    struct ids *out, char *err, size_t errlen);

/* The same for a text of which some bytes are contents, where mark[i] is not 0: these are plain
 * text whatever they say. No added token is found that has such a byte, special or not, but for
 * those that are white space only. */
int tokenizer_encode_marked(const struct tokenizer *, const char *text, const unsigned char *mark,
    size_t len, unsigned flags, struct ids *out, char *err, size_t errlen);

/* The bytes of one token (may be a part of a UTF-8 sequence); NULL for an id that stands for
 * nothing. *special, where not NULL, becomes 1 for added tokens marked special. */
const char *tokenizer_bytes(const struct tokenizer *, uint32_t id, size_t *len, int *special);

/* A text that is decoded from its beginning: there some decoders leave out a space. Zero it before
 * first use. */
struct text_start {
	int begun;
	size_t stripped;
};

/* The bytes of a token of tokenizer_bytes() in a text of which the tokens before it went through
 * here, too. out has room for as many; returns their number. */
size_t tokenizer_begin(const struct tokenizer *, struct text_start *, uint32_t id, char *out);

/* The id of an added or ordinary token by its bytes (" the", not as the file spells it; of a
 * vocabulary of characters as the file does), UINT32_MAX when there is none. */
uint32_t tokenizer_id(const struct tokenizer *, const char *text);

/* Turns a stream of token bytes into whole UTF-8 sequences. Zero it before first use. */
struct utf8_stream {
	char part[4];
	unsigned n;
};

/* Appends bytes to the stream and writes what is complete to out (room for len + 4 bytes, or 3
 * * (len + 4) when bytes can be invalid). Invalid bytes become U+FFFD. Returns the number of
 * bytes written. */
size_t utf8_push(struct utf8_stream *, const char *bytes, size_t len, char *out);

/* What is left at the end: an incomplete sequence becomes one U+FFFD. out[3]. */
size_t utf8_flush(struct utf8_stream *, char *out);

#endif

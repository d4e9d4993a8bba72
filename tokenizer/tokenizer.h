/* tokenizer.h - byte-level BPE as tokenizer.json describes it
 *
 * The pre-tokenisers of Llama-3, Qwen and GPT-2 through PCRE2; merges, added and special
 * tokens, ignore_merges, a template that puts tokens before the text; NFC normalisation.
 * Anything else in the file that changes the ids is refused by name. */
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

/* Loads DIR/tokenizer.json. Returns 0, or a TOKENIZER_E* code with a message that names file
 * and place. */
int tokenizer_open(const char *dir, struct tokenizer **out, char *err, size_t errlen);
void tokenizer_close(struct tokenizer *);                  /* NULL allowed */

/* Hash of what determines ids and texts, formats/kv-snapshot.md section 6; hex[33]. */
void tokenizer_fingerprint(const struct tokenizer *, char *hex);

uint32_t tokenizer_size(const struct tokenizer *);         /* greatest id + 1 */

enum {
	TOK_TEMPLATE = 1,       /* put the template's tokens (BOS) before the text */
	/* no special tokens out of the text: "<|end_of_text|>" is spelled out */
	TOK_PLAIN = 2
};

/* Appends the ids of text[len], which must be UTF-8. Linear in len for text (a single giant
 * word: n log n). Returns 0; TOKENIZER_EINVALID for invalid UTF-8 with the byte offset in err, or
 * when PCRE2 reports an error; TOKENIZER_EUNSUPPORTED when the vocabulary lacks one of the 256
 * bytes and the text has it; TOKENIZER_ENOMEM. After a failure out holds what it held before.
 * Threads may share the tokenizer. */
int tokenizer_encode(const struct tokenizer *, const char *text, size_t len, unsigned flags,
    struct ids *out, char *err, size_t errlen);

/* The bytes of one token (may be a part of a UTF-8 sequence); NULL for an id that stands for
 * nothing. *special, where not NULL, becomes 1 for added tokens marked special. */
const char *tokenizer_bytes(const struct tokenizer *, uint32_t id, size_t *len, int *special);

/* The id of an added or ordinary token by its bytes (" the", not as the file spells it),
 * UINT32_MAX when there is none. */
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

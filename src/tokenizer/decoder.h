/* decoder.h - from a token's key in the vocabulary to its bytes
 *
 * Decoders of Hugging Face work on the list of all tokens. Their effect on a token depends on
 * the others only at the beginning of a text, where leading spaces are dropped:
 * tokenizer_begin() does that. */
#ifndef KVPIPE_DECODER_H
#define KVPIPE_DECODER_H

#include <stddef.h>

#define DECODER_MOST 16

enum decode_kind {
	DECODE_BYTE_LEVEL,      /* characters that spell bytes (GPT-2) become those bytes */
	DECODE_REPLACE,         /* `from` becomes `to` */
	DECODE_BYTE_FALLBACK,   /* <0x0A> becomes that byte */
	/* drops up to `start` times `from` at the front, up to `stop` at the end */
	DECODE_STRIP,
	DECODE_METASPACE        /* `from` becomes a space */
};

struct decode_step {
	enum decode_kind kind;
	char *from, *to;        /* owned */
	size_t start, stop;
};

struct decoder {
	unsigned n;
	struct decode_step step[DECODER_MOST];
	int fused;              /* later steps see the whole text at once */
	int drops;              /* Metaspace drops its characters in the first token */
	char strip[5];          /* after the fuse: dropped at the front, up to strip_most times */
	size_t strip_most;
};

void decoder_free(struct decoder *);

/* Appends a step and owns from and to, also on failure. Returns the step, or NULL after
 * DECODER_MOST. */
struct decode_step *decoder_add(struct decoder *, enum decode_kind, char *from, char *to);

/* out <- the bytes of a token in the middle of a text; key[len]: its key in the vocabulary.
 * first: the token begins a text, for DECODE_METASPACE. The caller frees *out. Returns 0 or
 * TOKENIZER_ENOMEM. */
int decoder_token(const struct decoder *, const char *key, size_t len, int first, char **out,
    size_t *outlen);

#endif

/* decoder.h - from what the vocabulary has for a token to the bytes that it stands for
 *
 * Decoders of Hugging Face work on the list of all tokens. What they do to one of them depends on
 * the others only at the beginning of a text, where leading spaces go: that part is
 * tokenizer_begin()'s. */
#ifndef KVPIPE_DECODER_H
#define KVPIPE_DECODER_H

#include <stddef.h>

#define DECODER_MOST 16

enum decode_kind {
	DECODE_BYTE_LEVEL,      /* the characters that spell bytes become those */
	DECODE_REPLACE,         /* `from` becomes `to` */
	DECODE_BYTE_FALLBACK,   /* <0x0A> becomes that byte */
	/* up to `start` times `from` goes away at the front, `stop` behind */
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
	int fused;              /* what comes now sees one text */
	int drops;              /* Metaspace leaves its characters out of the first token */
	char strip[5];          /* after the fuse: up to strip_most times, at the front */
	size_t strip_most;
};

void decoder_free(struct decoder *);

/* Appends a step and takes from and to over, also when it fails. Returns it, or NULL when there
 * are DECODER_MOST. */
struct decode_step *decoder_add(struct decoder *, enum decode_kind, char *from, char *to);

/* out <- the bytes of a token in the middle of a text; key[len] is what the vocabulary has.
 * first: of the first token of a text, as far as DECODE_METASPACE is concerned. The caller frees
 * *out. Returns 0 or TOKENIZER_ENOMEM. */
int decoder_token(const struct decoder *, const char *key, size_t len, int first, char **out,
    size_t *outlen);

#endif

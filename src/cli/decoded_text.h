/* decoded_text.h - the text of token ids with special tokens by name: the inverse of encode_text()
 *
 * Not for generated text: decode_print.h leaves special tokens out and looks for stop texts. */
#ifndef KVPIPE_DECODED_TEXT_H
#define KVPIPE_DECODED_TEXT_H

#include <stdio.h>

#include "tokenizer/tokenizer.h"

/* The caller sets the first part; the rest is zero. */
struct decoded_text {
	const struct tokenizer *tokenizer;
	const char *name;               /* source of the ids, for messages; NULL: none */
	int plain;                      /* leave special tokens out */
	FILE *to;
	struct text_start start;        /* begun: the ids continue others */
	struct utf8_stream utf8;
	char *bytes, *out;
	size_t room, n;                 /* n: ids so far */
};

/* Appends the text of id. Dies, also for an id without a token. */
void decoded_text_add(struct decoded_text *, uint32_t id);
/* Ends an incomplete character (as U+FFFD); more ids may follow. Dies. */
void decoded_text_break(struct decoded_text *);
void decoded_text_free(struct decoded_text *);

#endif

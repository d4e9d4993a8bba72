/* decoded_text.h - the text of token ids, special tokens by their names: the other way of
 * encode_text()
 *
 * What a model generates is printed by decode_print.h, which leaves special tokens out and looks
 * for stop texts. */
#ifndef KVPIPE_DECODED_TEXT_H
#define KVPIPE_DECODED_TEXT_H

#include <stdio.h>

#include "tokenizer/tokenizer.h"

/* The caller fills in the first part; the rest is zero. */
struct decoded_text {
	const struct tokenizer *tokenizer;
	const char *name;               /* of what the ids are from, for messages; NULL: none */
	int plain;                      /* special tokens are left out */
	FILE *to;
	struct text_start start;        /* begun: the ids go on behind others */
	struct utf8_stream utf8;
	char *bytes, *out;
	size_t room, n;                 /* n: ids so far */
};

/* Both die, of an id that no token has, too. */
void decoded_text_add(struct decoded_text *, uint32_t id);
/* A character that is cut off ends here; the text may go on. */
void decoded_text_break(struct decoded_text *);
void decoded_text_free(struct decoded_text *);

#endif

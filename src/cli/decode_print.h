/* decode_print.h - prints generated tokens to standard output or a stream, as text up to a stop
 * text, or as ids */
#ifndef KVPIPE_DECODE_PRINT_H
#define KVPIPE_DECODE_PRINT_H

#include "cli/tool.h"
#include "tokenizer/tokenizer.h"

/* The caller sets the first three fields, and may set `to`; the rest is zero. Text that may be
 * the beginning of a stop text is held back until that is decided. */
struct token_printer {
	const struct tokenizer *tokenizer;      /* may be NULL with ids and without stop texts */
	const struct strings *stops;    /* none of them empty */
	/* print ids, one per line (in a stream separated by blanks); stop texts still count */
	int ids;
	/* output stream; NULL: standard output, with a final newline on a terminal */
	FILE *to;
	const char *stopped;            /* the stop text that was found, or NULL */
	uint64_t total;                 /* bytes of text so far, printed or held back */
	uint64_t ended;                 /* if stopped: offset of the stop text */
	/* print_tokens_end() keeps an incomplete character for a later run */
	int goes_on;
	struct utf8_stream utf8;
	char *held;
	size_t n, capacity;
	char last;                      /* the last byte written, of text or ids; 0: none */
};

/* Starts the text after ids[n], completing a character that they have begun. */
void print_tokens_behind(struct token_printer *, const uint32_t *ids, size_t n);
/* Returns whether the token is special, so that it prints nothing, and its name is a stop text.
 * Then do not call print_token() for it. */
int token_stops(struct token_printer *, uint32_t id);
/* Prints one token. Returns 1 once a stop text is found. Dies. */
int print_token(struct token_printer *p, uint32_t id);
/* Returns the first offset, in bytes of text, at which a stop text may begin; p->total if none
 * can. An incomplete character may be the first one of a stop text. */
uint64_t print_held_from(const struct token_printer *p);
/* Prints what is held back, followed by a newline on a terminal, and frees. Dies. */
void print_tokens_end(struct token_printer *p);

#endif

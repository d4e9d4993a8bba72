/* decode_print.h - generated tokens on standard output or into a stream, as text that ends before
 * a stop text, or as ids */
#ifndef KVPIPE_DECODE_PRINT_H
#define KVPIPE_DECODE_PRINT_H

#include "cli/tool.h"
#include "tokenizer/tokenizer.h"

/* The caller fills in the first three, and may fill in `to`; the rest is zero. What may be the
 * beginning of a stop text is held back until it is clear that it is not. */
struct token_printer {
	const struct tokenizer *tokenizer;      /* may be NULL with ids and without stop texts */
	const struct strings *stops;    /* none of them empty */
	/* print ids, one a line, into a stream with a blank between them; stop texts count
	 * nevertheless */
	int ids;
	/* where it goes; NULL: standard output, with a newline at its end where that is a
	 * terminal */
	FILE *to;
	const char *stopped;            /* the stop text that has come, or NULL */
	uint64_t total;                 /* bytes of text so far, printed or held back */
	uint64_t ended;                 /* stopped: where it begins */
	/* print_tokens_end() leaves an unfinished character to a later run */
	int goes_on;
	struct utf8_stream utf8;
	char *held;
	size_t n, capacity;
	char last;                      /* the last byte written, of text or ids; 0: none */
};

/* The text begins behind these tokens: a character that they have begun goes on. */
void print_tokens_behind(struct token_printer *, const uint32_t *ids, size_t n);
/* Is the token a special one, of which nothing is printed, and its name a stop text? Then it is not
 * for print_token(). */
int token_stops(struct token_printer *, uint32_t id);
/* Prints one token. Returns 1 when a stop text has come. Dies. */
int print_token(struct token_printer *p, uint32_t id);
/* Where a stop text may begin, as far as is known, in bytes from the beginning: p->total where none
 * has. A character that is not finished may be one's first. */
uint64_t print_held_from(const struct token_printer *p);
/* Prints what is held back, on a terminal a newline behind it, and frees. Dies. */
void print_tokens_end(struct token_printer *p);

#endif

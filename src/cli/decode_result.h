/* decode_result.h - the text that kv-decode has generated, as a JSON object */
#ifndef KVPIPE_DECODE_RESULT_H
#define KVPIPE_DECODE_RESULT_H

#include <jansson.h>

#include "cli/decode_print.h"

enum stop {
	STOP_TOKENS,                    /* limit reached */
	STOP_EOS,                       /* an end token */
	STOP_TEXT
};

/* All zero at the start. */
struct decode_result {
	uint32_t n;                     /* generated tokens, without an end token */
	enum stop stop;                 /* why it ended */
	const char *stop_text;          /* NULL: none was found */
	double load, generate;          /* seconds */
	/* set by decode_result_collect(). text: without the stop text; ids: with its tokens */
	FILE *stream;                   /* NULL: nothing is collected */
	char *text;
	size_t size;
	json_t *ids;
};

/* Redirects the printer's text into the result; decode_result_add() collects the ids. Dies. */
void decode_result_collect(struct decode_result *, struct token_printer *);
/* Appends id, if collecting. */
void decode_result_add(struct decode_result *, uint32_t id);

/* Returns the collected result as JSON and frees it; kv-decode(1) explains the keys. Call after
 * print_tokens_end(). name: of the snapshot. Dies. */
json_t *decode_result_json(struct decode_result *, const char *name);
/* Prints one answer of several as a line, with newline, CR and backslash as \n, \r and \\
 * (printf %b decodes it). Dies. */
void print_answer_line(const char *text, size_t size);
/* Returns the collected text, *size bytes, to be freed by the caller. Dies. */
char *decode_result_text(struct decode_result *, size_t *size);

#endif

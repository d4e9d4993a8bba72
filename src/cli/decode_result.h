/* decode_result.h - what kv-decode has generated, as a JSON object */
#ifndef KVPIPE_DECODE_RESULT_H
#define KVPIPE_DECODE_RESULT_H

#include <jansson.h>

#include "cli/decode_print.h"

enum stop {
	STOP_TOKENS,                    /* as many as were wanted */
	STOP_EOS,                       /* an end token */
	STOP_TEXT
};

/* All zero at the start. */
struct decode_result {
	uint32_t n;                     /* tokens, without an end token */
	enum stop stop;                 /* why it ended */
	const char *stop_text;          /* NULL: none has come */
	double load, generate;          /* seconds */
	/* decode_result_collect()'s: text without the stop text, ids with those that make it up */
	FILE *stream;                   /* NULL: nothing is collected */
	char *text;
	size_t size;
	json_t *ids;
};

/* From now on the printer's text, and the ids, are kept instead of printed. Dies. */
void decode_result_collect(struct decode_result *, struct token_printer *);
/* Does nothing where nothing is collected. */
void decode_result_add(struct decode_result *, uint32_t id);

/* What was collected, which is freed; kv-decode(1) explains the keys. The printer has ended.
 * name: of the snapshot. Dies. */
json_t *decode_result_json(struct decode_result *, const char *name);
/* Prints a text of several as one line, with a newline, a CR and a backslash in it as \n, \r and \\
 * (printf %b gives it back). Dies. */
void print_answer_line(const char *text, size_t size);
/* The text alone, which becomes the caller's: *size bytes. Dies. */
char *decode_result_text(struct decode_result *, size_t *size);

#endif

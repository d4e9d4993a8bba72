/* generated.h - what kv-decode has generated, as a JSON object */
#ifndef KVPIPE_GENERATED_H
#define KVPIPE_GENERATED_H

#include <jansson.h>

#include "cli/token_printer.h"

enum stop {
	STOP_TOKENS,                    /* as many as were wanted */
	STOP_EOS,                       /* an end token */
	STOP_TEXT
};

/* All zero at the start. */
struct generated {
	uint32_t n;                     /* tokens, without an end token */
	enum stop stop;                 /* why it ended */
	const char *stop_text;          /* NULL: none has come */
	double load, generate;          /* seconds */
	/* generated_collect()'s: text without the stop text, ids with those that make it up */
	FILE *stream;                   /* NULL: nothing is collected */
	char *text;
	size_t size;
	json_t *ids;
};

/* From now on the printer's text, and the ids, are kept instead of printed. Dies. */
void generated_collect(struct generated *, struct token_printer *);
void generated_add(struct generated *, uint32_t id);    /* nothing where nothing is collected */

/* What was collected, which is freed; kv-decode(1) explains the keys. The printer has ended.
 * name: of the snapshot. Dies. */
json_t *generated_json(struct generated *, const char *name);
/* Prints a text of several as one line, with a newline, a CR and a backslash in it as \n, \r and \\
 * (printf %b gives it back). Dies. */
void print_answer_line(const char *text, size_t size);
/* The text alone, which becomes the caller's: *size bytes. Dies. */
char *generated_text(struct generated *, size_t *size);

#endif

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

/* Prints what was collected, and frees it; kv-decode(1) explains the keys. The printer has ended.
 * name: of the snapshot; retrieval: a member of that name, whose reference it takes, or NULL. Dies. */
void print_generated(struct generated *, const char *name, json_t *retrieval);
/* The same in one line, as the answer to a question. */
void print_answer(struct generated *, const char *name, json_t *asked);

#endif

/* decode_forced.h - kv-decode --force (teacher forcing): runs a given text instead of generating
 * one, and reports the likelihood of each of its tokens
 *
 * All functions die. */
#ifndef KVPIPE_DECODE_FORCED_H
#define KVPIPE_DECODE_FORCED_H

#include <jansson.h>

#include "cli/session.h"
#include "engine/decode.h"
#include "engine/likelihood.h"

struct decode_forced_options {
	const char *text;               /* a file of text, or of ids; NULL: none is given */
	int ids;                        /* 1: of ids */
	/* output file for the logits before each token; NULL: none */
	const char *logits;
	const char *against;            /* logits file of a reference run; NULL: none */
};

struct decode_forced {
	struct ids ids;
	struct token_likelihood *each;  /* [ids.n] */
	struct likelihood_sum sum;
};

extern struct decode_forced_options decode_forced_options;

/* Dies with EXIT_USAGE when an option has no effect without --force. */
void opt_forced(void);
/* Reads the text. flags: as for encode_text(); tokenizer NULL: only ids */
void decode_forced_read(struct decode_forced *, const struct session *, unsigned flags);
/* Runs the text on an initialised decode whose cache has logits. keep: also runs the last
 * token. */
void decode_forced_run(struct decode_forced *, struct decode *, int keep);
/* Prints the summary, a header and a line; the other returns everything, for --json. */
void decode_forced_print(const struct decode_forced *, const char *name);
json_t *decode_forced_json(const struct decode_forced *, const char *name);
void decode_forced_free(struct decode_forced *);

#endif

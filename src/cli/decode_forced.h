/* decode_forced.h - kv-decode --force (teacher forcing): runs a given text instead of generating
 * one, and scores how likely each of its tokens is
 *
 * Dies. */
#ifndef KVPIPE_DECODE_FORCED_H
#define KVPIPE_DECODE_FORCED_H

#include <jansson.h>

#include "cli/session.h"
#include "engine/decode.h"
#include "engine/likelihood.h"

struct decode_forced_options {
	const char *text;               /* a file of text, or of ids; NULL: none is given */
	int ids;                        /* 1: of ids */
	const char *logits;             /* takes the logits before each token; NULL: no file */
	const char *against;            /* those of a reference run; NULL: none */
};

struct decode_forced {
	struct ids ids;
	struct token_likelihood *each;  /* [ids.n] */
	struct likelihood_sum sum;
};

extern struct decode_forced_options decode_forced_options;

/* Dies with EXIT_USAGE when an option has nothing to do. */
void opt_forced(void);
/* Reads the text. flags: those of encode_text(); tokenizer NULL: only ids */
void decode_forced_read(struct decode_forced *, const struct session *, unsigned flags);
/* Runs it, behind what has been decode_init()ed, with logits in the cache. keep: the last token
 * runs, too. */
void decode_forced_run(struct decode_forced *, struct decode *, int keep);
/* The summary as a line under a header; or, for --json, all of it. */
void decode_forced_print(const struct decode_forced *, const char *name);
json_t *decode_forced_json(const struct decode_forced *, const char *name);
void decode_forced_free(struct decode_forced *);

#endif

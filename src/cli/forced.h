/* forced.h - a text that kv-decode is given instead of generating one: how likely each of its
 * tokens is
 *
 * Dies. */
#ifndef KVPIPE_FORCED_H
#define KVPIPE_FORCED_H

#include <jansson.h>

#include "cli/session.h"
#include "engine/decode.h"
#include "engine/likelihood.h"

struct forced_options {
	const char *text;               /* a file of text, or of ids; NULL: none is given */
	int ids;                        /* 1: of ids */
	const char *logits;             /* takes the logits that each token was judged by; NULL: no file */
	const char *against;            /* those of a reference run; NULL: none */
};

struct forced {
	struct ids ids;
	struct token_likelihood *each;  /* [ids.n] */
	struct likelihood_sum sum;
};

extern struct forced_options forced_options;

/* Dies with EXIT_USAGE when an option has nothing to do. */
void opt_forced(void);
/* Reads the text. flags: those of encode_text(); tokenizer NULL: only ids */
void forced_read(struct forced *, const struct session *, unsigned flags);
/* Runs it, behind what has been decode_init()ed, with logits in the cache. keep: the last token
 * runs, too. */
void forced_run(struct forced *, struct decode *, int keep);
/* The summary as a line under a header; or, for --json, all of it. */
void forced_print(const struct forced *, const char *name);
json_t *forced_json(const struct forced *, const char *name);
void forced_free(struct forced *);

#endif

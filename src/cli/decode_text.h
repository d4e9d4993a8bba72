/* decode_text.h - generates a text after a snapshot, token by token: samples the next token,
 * prints it, and decides when the text ends
 *
 * Between two tokens the caller runs the model, for one text or for a batch. */
#ifndef KVPIPE_DECODE_TEXT_H
#define KVPIPE_DECODE_TEXT_H

#include "cli/decode_result.h"
#include "cli/options.h"
#include "cli/session.h"
#include "engine/cut_points.h"
#include "forward/sample.h"

struct decode_text_options {
	uint32_t limit;                 /* tokens at most */
	double temperature, top_p, min_p;
	uint64_t seed;
	struct strings stops;
	int ignore_eos;
	int ids;                        /* print ids instead of text */
};

/* The caller sets the first part; the rest is zero. */
struct decode_text {
	const struct decode_text_options *options;
	const struct tokenizer *tokenizer;      /* may be NULL with ids and without stop texts */
	int keep;                       /* 1: the cache is saved and must end where the text ends */
	int collect;                    /* 1: collect text and ids in `generated` */
	struct decode_result generated;
	/* private to decode_text.c */
	struct sampler sampler;
	struct token_printer printer;
	struct cut_points points;       /* used with keep and stop texts */
	int stopped;
};

/* Starts the text after the tokens of the cache. */
void decode_text_start(struct decode_text *, const struct cache *);
/* Samples and prints the next token. *id on entry: the token that the device has chosen, or
 * UINT32_MAX to sample from the cache's logits. Returns 1 with the token to run in *id, 0 at
 * the end of the text, or an ENGINE_* code below 0. Dies if printing fails. */
int decode_text_next(struct decode_text *, struct decode *, uint32_t *id, struct engine_error *);
/* Cuts the cache where the text ends, before it is saved. If a stop text begins inside a token,
 * the text before it is tokenized and run anew; if that is impossible, it is left out with a
 * warning that names `name`. Returns an ENGINE_* code. */
int decode_text_cut(struct decode_text *, struct decode *, const char *name, struct engine_error *);
/* Prints what is held back. */
void decode_text_end(struct decode_text *, struct decode *);

/* Generates the whole text, on a decode that is initialised for it. Dies. */
void decode_text_run(struct decode_text *, const struct session *, struct decode *);

/* Returns whether progress is to be shown: not while text appears on a terminal token by token,
 * where it would be mixed with the text. */
int decode_text_shows_progress(void);

#endif

/* decode_text.h - generates a text after a snapshot, token by token: chooses the next token, prints
 * it, and knows when the text is over
 *
 * Between two tokens the caller runs the model, for one text or for many at once. */
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
	int ids;                        /* ids are printed instead of text */
};

/* The caller fills in the first part; the rest is zero. */
struct decode_text {
	const struct decode_text_options *options;
	const struct tokenizer *tokenizer;      /* may be NULL with ids and without stop texts */
	int keep;                       /* 1: the cache must end where the text does */
	int collect;                    /* 1: generated keeps the text, and its ids */
	struct decode_result generated;
	/* the rest is decode_text.c's */
	struct sampler sampler;
	struct token_printer printer;
	struct cut_points points;       /* of use with keep and stop texts */
	int stopped;
};

/* The text begins behind the tokens of the cache. */
void decode_text_start(struct decode_text *, const struct cache *);
/* Chooses and prints the next token behind the cache: *id, in: the likeliest one where the
 * device has chosen, and else UINT32_MAX: then it comes from the cache's logits. Returns 1, and
 * *id is to be run; 0: the text is over; or an ENGINE_* code below 0. Dies where it cannot be
 * printed. */
int decode_text_next(struct decode_text *, struct decode *, uint32_t *id, struct engine_error *);
/* The text is over, and the cache is to be saved: it ends where the text does. Where a stop text
 * begins inside a token, what stands there before it is run as a text of its own; where that is not
 * possible it is left out, with a warning that has this name. Returns an ENGINE_* code. */
int decode_text_cut(struct decode_text *, struct decode *, const char *name, struct engine_error *);
/* What is held back is printed. */
void decode_text_end(struct decode_text *, struct decode *);

/* Runs the model, which has been opened for the text, from its first token to its end. Dies. */
void decode_text_run(struct decode_text *, const struct session *, struct decode *);

/* Where text comes on a terminal token by token, it shows how far it is, and a line of progress
 * would be mixed up with it. */
int decode_text_shows_progress(void);

#endif

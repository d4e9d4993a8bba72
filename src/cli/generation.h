/* generation.h - a text that is generated behind a snapshot, token by token: which one comes
 * next, what is printed of it, and when it is over
 *
 * Between two tokens the caller runs the model, for one text or for many at once. */
#ifndef KVPIPE_GENERATION_H
#define KVPIPE_GENERATION_H

#include "cli/generated.h"
#include "cli/session.h"
#include "engine/cut_points.h"
#include "forward/sample.h"

struct generation_options {
	uint32_t limit;                 /* tokens at most */
	double temperature, top_p, min_p;
	uint64_t seed;
	struct strings stops;
	int ignore_eos;
	int ids;                        /* ids are printed instead of text */
};

/* The caller fills in the first part; the rest is zero. */
struct generation {
	const struct generation_options *options;
	const struct tokenizer *tokenizer;      /* may be NULL with ids and without stop texts */
	int keep;                       /* 1: the cache is to end where the text does, for a snapshot */
	int collect;                    /* 1: generated keeps the text, and its ids */
	struct generated generated;
	/* the rest is generation.c's */
	struct sampler sampler;
	struct token_printer printer;
	struct cut_points points;       /* of use with keep and stop texts */
	int stopped;
};

/* The text begins behind the tokens of the cache. */
void generation_start(struct generation *, const struct cache *);
/* Chooses and prints the next token behind the cache: *id, in: the likeliest one where the
 * device has chosen, and else UINT32_MAX: then it comes from the cache's logits. Returns 1, and
 * *id is to be run; 0: the text is over; or an ENGINE_* code below 0. Dies where it cannot be
 * printed. */
int generation_next(struct generation *, struct decode *, uint32_t *id, struct engine_error *);
/* The text is over, and the cache is to be saved: it ends where the text does. Where a stop text
 * begins inside a token, what stands there before it is run as a text of its own; where that is not
 * possible it is left out, with a warning that has this name. Returns an ENGINE_* code. */
int generation_cut(struct generation *, struct decode *, const char *name, struct engine_error *);
/* What is held back is printed. */
void generation_end(struct generation *, struct decode *);

/* Runs the model, which has been opened for the text, from its first token to its end. Dies. */
void generation_run(struct generation *, const struct session *, struct decode *);

/* Where text comes on a terminal token by token, it shows how far it is, and a line of progress
 * would be mixed up with it. */
int generation_shows_progress(void);

#endif

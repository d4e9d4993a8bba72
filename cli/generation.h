/* generation.h - a text that is generated behind a snapshot, token by token: which one comes
 * next, what is printed of it, and when it is over
 *
 * Between two tokens the caller runs the model, for one text or for many at once. */
#ifndef KVPIPE_GENERATION_H
#define KVPIPE_GENERATION_H

#include "cli/generated.h"
#include "cli/session.h"
#include "engine/decode.h"
#include "model/cache.h"
#include "model/sample.h"

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
	int keep;                       /* 1: the last token runs, too, for the snapshot behind the text */
	int collect;                    /* 1: generated keeps the text, and its ids */
	struct generated generated;
	/* the rest is generation.c's */
	struct sampler sampler;
	struct token_printer printer;
	int stopped;
};

void generation_start(struct generation *);
/* Chooses and prints the next token behind the cache: *id, in: the likeliest one where the
 * device has chosen, and else UINT32_MAX: then it comes from the cache's logits. Returns 1, and
 * *id is to be run; 0: the text is over; or an ENGINE_* code below 0. Dies where it cannot be
 * printed. */
int generation_next(struct generation *, const struct cache *, uint32_t *id, struct engine_error *);
/* What is held back is printed. */
void generation_end(struct generation *);

/* Runs the model, which has been opened for the text, from its first token to its end. Dies. */
void generation_run(struct generation *, const struct session *, struct decode *);

/* Where text comes on a terminal token by token, it shows how far it is, and a line of progress would be mixed
 * up with it. */
int generation_shows_progress(void);

#endif

/* generate.h - token after token, the likeliest one next: what is chosen stays on the device
 *
 * run_tokens() brings the logits to the host, for sample() to choose from. Where the choice is that
 * of the greatest, the device makes it, and only the chosen token's id comes to the host. */
#ifndef KVPIPE_GENERATE_H
#define KVPIPE_GENERATE_H

#include "model/forward.h"

struct generator;

/* Uses the cache and the workspace, which both stay the caller's and outlive it; meanwhile nobody
 * else runs anything in that workspace. NULL without memory. */
struct generator *generator_new(struct cache *, struct workspace *);
void generator_free(struct generator *);                            /* NULL allowed */

/* Appends one token at next_position, as run_tokens() does, and *next <- what sample() would choose
 * at temperature 0. The logits stay on the device: c->logits is then NULL until
 * generator_logits(). Between two calls the caller may do with the cache what it likes. Returns as
 * run_tokens(). */
int generator_run(struct generator *, uint32_t id, struct observation *obs, uint32_t *next, char *err,
    size_t errlen);

/* The same in two steps. The first returns before the device is done: the cache has its row, and what
 * is done to it meanwhile comes behind. The second waits for the token, and not for that. */
int generator_begin(struct generator *, uint32_t id, struct observation *obs, char *err, size_t errlen);
int generator_end(struct generator *, uint32_t *next, char *err, size_t errlen);

/* c->logits <- those after the last token that generator_run() ran, if there was one since c->logits
 * was set. Returns 0, or MODEL_ENOMEM. */
int generator_logits(struct generator *);

/* How many of the tokens ran as a repetition of a step that the device had recorded (generate.c) */
uint64_t generator_replayed(const struct generator *);
/* Should some have done so, but the device could not record one? describe() may say why. */
int generator_refused(const struct generator *);

#endif

/* generate.h - greedy decoding: the chosen token stays on the device
 *
 * run_tokens() copies the logits to the host, where sample() chooses. Greedy sampling is an op
 * (argmax): only the id of the chosen token is copied to the host. */
#ifndef KVPIPE_GENERATE_H
#define KVPIPE_GENERATE_H

#include "forward/forward.h"

struct generator;

/* Uses the sequence and the workspace, which both stay the caller's and outlive it; meanwhile
 * nobody else runs anything in that workspace. NULL without memory. */
struct generator *generator_new(struct sequence *, struct workspace *);
void generator_free(struct generator *);                            /* NULL allowed */

/* Appends one token at next_position, as run_tokens() does, and *next <- what sample() would
 * choose at temperature 0. The logits stay on the device: the cache's are then NULL until
 * generator_logits(). Between two calls the caller may do with the cache what it likes.
 * Returns as run_tokens(). */
int generator_run(struct generator *, uint32_t id, struct observation *obs, uint32_t *next,
    char *err, size_t errlen);

/* The same in two steps. The first returns before the device is done: the cache counts the
 * new row, and later work on the cache is queued behind the step. The second waits for the
 * token, but not for that later work. */
int generator_begin(struct generator *, uint32_t id, struct observation *obs, char *err,
    size_t errlen);
int generator_end(struct generator *, uint32_t *next, char *err, size_t errlen);

/* The cache's logits <- those after the last token that generator_run() ran, unless they are set
 * already. Returns 0, or MODEL_ENOMEM. */
int generator_logits(struct generator *);

/* How many of the tokens ran as launches of a captured graph (step_graph.h) */
uint64_t generator_launches(const struct generator *);
/* Did the device fail to capture a step? describe() may say why. */
int generator_capture_failed(const struct generator *);

#endif

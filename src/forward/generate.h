/* generate.h - greedy decoding: the chosen token stays on the device
 *
 * run_tokens() copies the logits to the host, where sample() chooses. Greedy sampling is an op
 * (argmax): only the id of the chosen token is copied to the host. */
#ifndef KVPIPE_GENERATE_H
#define KVPIPE_GENERATE_H

#include "forward/forward.h"

struct generator;

/* Returns a generator; NULL without memory. Sequence and workspace are the caller's and outlive it;
 * nothing else may run in the workspace meanwhile. */
struct generator *generator_new(struct sequence *, struct workspace *);
void generator_free(struct generator *);                            /* NULL allowed */

/* Appends one token at next_position, as run_tokens(), and *next <- the token that sample() chooses
 * at temperature 0. The logits stay on the device: the cache's are NULL until generator_logits().
 * Between two calls the caller may change the cache. Returns as run_tokens(). */
int generator_run(struct generator *, uint32_t id, struct observation *obs, uint32_t *next,
    char *err, size_t errlen);

/* generator_run() in two parts. The first returns before the device has run the step: the cache
 * counts the new row, and later work on the cache is ordered after the step. The second waits for
 * the token, but not for that later work. */
int generator_begin(struct generator *, uint32_t id, struct observation *obs, char *err,
    size_t errlen);
int generator_end(struct generator *, uint32_t *next, char *err, size_t errlen);

/* The cache's logits <- the logits after the last token, unless they are set already. Returns 0, or
 * MODEL_ENOMEM. */
int generator_logits(struct generator *);

/* Returns how many of the tokens ran as launches of a captured graph (step_graph.h) */
uint64_t generator_launches(const struct generator *);
/* Did the device fail to capture a step? describe() may say why. */
int generator_capture_failed(const struct generator *);

#endif

/* ahead.h - tokens that run before it is known whether they belong to the text: the verification of
 * speculative decoding (Leviathan et al. 2023; Chen et al. 2023)
 *
 * A pass runs several tokens at once, and the weights and the rows of the cache are read once for
 * all of them. The rows of the tokens are in memory behind those of the cache, which does not count
 * them; ahead_take() appends them one after another, as the text goes on. So after each token the
 * cache is what it is when that token runs by itself: rows, logits and log, on a CPU byte by byte,
 * on a GPU but for the rounding of products of several rows. Tokens that are not taken leave
 * nothing. */
#ifndef KVPIPE_AHEAD_H
#define KVPIPE_AHEAD_H

#include "forward/forward.h"

/* Tokens of a pass, at most: up to so many rows a GPU reads the weights as for a single one
 * (gpu/gpu_gemv.cu). Their sums have another order there; on a CPU the same, up to BATCH_MOST. */
enum { AHEAD_MOST = 8 };

struct ahead;

/* Returns memory for passes; NULL without memory. */
struct ahead *ahead_new(const struct model *);
void ahead_free(struct ahead *);                       /* NULL allowed */

/* Forgets the tokens that have run and were not taken. Call it when the cache has changed in
 * another way than by ahead_take(). */
void ahead_forget(struct ahead *);

/* Drops rows that no later query sees, as run_tokens() before each token. If there are some, the
 * tokens that have run are forgotten: their rows are not where they were. Returns 0, or
 * MODEL_ENOMEM. */
int ahead_slide(struct ahead *, struct cache *);

/* Returns how many of the next n tokens have a position. */
uint32_t ahead_positions(const struct cache *, uint32_t n);

/* Runs ids[n] after the tokens of the sequence, n <= AHEAD_MOST. Call ahead_slide() before, and
 * with n > 1 have a position for each. The sequence has no retrieval, no attention mass, no query
 * statistics, and no full rows behind quantised ones. Returns as run_tokens(). */
int ahead_run(struct ahead *, struct sequence *, const uint32_t *ids, uint32_t n, char *err,
    size_t errlen);

/* Return how many tokens of the pass were taken, and how many were not. */
uint32_t ahead_taken(const struct ahead *);
uint32_t ahead_left(const struct ahead *);
/* Returns whether this is the next one that was not. */
int ahead_is_next(const struct ahead *, uint32_t id);

/* Appends the next one to the cache, whose logits become NULL. *next <- the likeliest token after
 * it, UINT32_MAX: no finite logit. Returns 0, or MODEL_ENOMEM. */
int ahead_take(struct ahead *, struct sequence *, uint32_t *next);
/* The cache's logits <- those after the token that was taken last, unless they are set. Returns 0,
 * or MODEL_ENOMEM. */
int ahead_logits(struct ahead *, struct cache *);

#endif

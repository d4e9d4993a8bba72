/* forward.h - the transformer: runs rows through layers
 *
 * One function does this, forward(); prefill, resume and decode call it. Letters as in ops.h. */
#ifndef KVPIPE_FORWARD_H
#define KVPIPE_FORWARD_H

#include "cache/observation.h"
#include "forward/sequence.h"

struct adapter;

/* Buffers for up to N rows, allocated once. */
struct workspace;
struct workspace *workspace_new(const struct model *m, uint32_t rows);   /* NULL without memory */
/* Returns the bytes of device memory of such a workspace. */
uint64_t workspace_bytes(const struct model *m, uint32_t rows);
void workspace_free(struct workspace *, const struct model *m);          /* NULL allowed */
uint32_t workspace_rows(const struct workspace *);
/* device [N][D]: the residual stream */
float *workspace_x(struct workspace *);
/* Sets the workspace's x to this device memory, which has room for the rows of each call; NULL: to
 * the workspace's own. */
void workspace_use(struct workspace *, float *x);

/* Runs the N rows in the workspace's x, at positions pos[N] (host, ascending), through layers l0 ..
 * l1-1. Appends their keys and values to the cache, in which the caller has reserved room; x <- the
 * output. Copies the queries of rows from obs->first on to obs (NULL = none), which expects them,
 * and adds the attention weights to s->cache->mass, the queries to s->cache->query_stats, and the
 * numbers of the rows to s->cache->lists, if they are wanted. Parts of one call have the same
 * gate. */
void forward(const struct model *m, struct sequence *s, struct workspace *ws, const uint32_t *pos,
    uint32_t N, uint32_t l0, uint32_t l1, const struct observation *obs);

/* Returns how many of the `left` rows from `position` on run at once, at most `most`: with
 * non-causal attention no chunk of it is cut, unless `most` is less. */
uint32_t rows_of_tile(const struct cache *, uint32_t position, size_t left, uint32_t most);

/* Is called during the work, with how much of it is done. */
struct step_hook {
	void (*call)(void *with, uint64_t done);
	void *with;                    /* the caller's, passed on */
};

/* out[N][V] <- the logits after rows x[N][D], which have run through all layers; N is at most the
 * workspace's rows. out and x are on the device. */
void make_logits(const struct model *m, struct workspace *ws, float *out, const float *x,
    uint32_t N);

/* c->logits <- the logits after row x[D] (device), which has run through all layers. Returns 0, or
 * MODEL_ENOMEM. */
int last_logits(const struct model *m, struct cache *c, struct workspace *ws, const float *x);

/* Appends n tokens at next_position, next_position + 1, ... in chunks of at most the
 * workspace's rows, and leaves the logits after the last one in the cache. step (NULL = none)
 * is called after each chunk, with the tokens done so far. Returns 0, MODEL_ENOMEM, or MODEL_EIO
 * when the device failed or a chunk's last row is not finite (err says how, and in which layer). */
int run_tokens(const struct model *m, struct sequence *s, struct workspace *ws, const uint32_t *ids,
    size_t n, struct observation *obs, const struct step_hook *step, char *err, size_t errlen);

/* Runs n tokens at the same positions as run_tokens(), but does not store them: the cache is the
 * same afterwards, without new logits. Copies their queries and their own keys to obs (NULL = none;
 * its window must hold them all), and adds their attention weights to s->probe_mass if it is
 * wanted. The cache must not want mass, and there must be no retrieval. Returns as run_tokens(); do
 * not use the cache after a failure. */
int run_unstored(const struct model *m, struct sequence *s, struct workspace *ws,
    const uint32_t *ids, size_t n, struct observation *obs, const struct step_hook *step,
    char *err, size_t errlen);

/* As run_unstored(), for rows without token ids, such as learned tokens: x[n][D] (host) is in place
 * of the embeddings, and the LoRA of the adapter (NULL = none), which is on the device, acts on the
 * rows. Such rows cannot be stored: a cache, and a snapshot, have an id for every token that the
 * cache has seen. */
int run_unstored_embeddings(const struct model *m, struct sequence *s, struct workspace *ws,
    const float *x, size_t n, const struct adapter *adapter, struct observation *obs,
    const struct step_hook *step, char *err, size_t errlen);

/* As run_unstored_embeddings(), in layer l only: runs rows x[N][D] (device) at positions pos[N]
 * (host) through layer l, x <- the output. N is at most the workspace's rows. obs expects their
 * queries. The layer's rows do not change; the keys of these N stay in memory after them, until
 * others are appended. Logs a run. Returns 0, or MODEL_ENOMEM (err says so). */
int run_unstored_layer(const struct model *m, struct sequence *s, struct workspace *ws, float *x,
    const uint32_t *pos, uint32_t N, uint32_t l, const struct adapter *adapter,
    const struct observation *obs, char *err, size_t errlen);

#endif

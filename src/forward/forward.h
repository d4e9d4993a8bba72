/* forward.h - the transformer: runs rows through layers
 *
 * One function does (forward()); prefill, resume and decode are callers of it. Letters as in
 * ops.h. */
#ifndef KVPIPE_FORWARD_H
#define KVPIPE_FORWARD_H

#include "cache/observation.h"
#include "forward/sequence.h"

struct adapter;

/* Buffers for up to N rows, allocated once. */
struct workspace;
struct workspace *workspace_new(const struct model *m, uint32_t rows);   /* NULL without memory */
/* Bytes of the device that they take. */
uint64_t workspace_bytes(const struct model *m, uint32_t rows);
void workspace_free(struct workspace *, const struct model *m);          /* NULL allowed */
uint32_t workspace_rows(const struct workspace *);
/* device [N][D]: the residual stream */
float *workspace_x(struct workspace *);
/* From now on x is this memory (device, room for the rows of each call) instead of the
 * workspace's own; NULL: its own again. */
void workspace_use(struct workspace *, float *x);

/* Runs the N rows in the workspace's x, standing at positions pos[N] (host, ascending), through
 * layers l0 .. l1-1. Their keys and values are appended to the cache (the caller has reserved
 * room); x becomes the output. Queries of rows from obs->first on go to obs (NULL = none), which
 * expects them, their attention weights to s->cache->mass where it is wanted. */
void forward(const struct model *m, struct sequence *s, struct workspace *ws, const uint32_t *pos,
    uint32_t N, uint32_t l0, uint32_t l1, const struct observation *obs);

/* What is called as work goes on, with how much of it is done. */
struct step_hook {
	void (*call)(void *with, uint64_t done);
	void *with;                    /* the caller's, passed on */
};

/* out[N][V] <- the logits after rows x[N][D] that have run through all layers, at most as many as
 * the workspace has; out and x on the device. */
void make_logits(const struct model *m, struct workspace *ws, float *out, const float *x,
    uint32_t N);

/* c->logits <- the logits after a row x[D] (device) that has run through all layers.
 * Returns 0, or MODEL_ENOMEM. */
int last_logits(const struct model *m, struct cache *c, struct workspace *ws, const float *x);

/* Appends n tokens at next_position, next_position + 1, ... in chunks of at most the
 * workspace's rows, and leaves the logits after the last one in the cache. step (NULL = none)
 * is called after each chunk, with the tokens done so far. Returns 0, MODEL_ENOMEM, or MODEL_EIO
 * when the device failed or a chunk's last row is not finite (err says how, and in which layer). */
int run_tokens(const struct model *m, struct sequence *s, struct workspace *ws, const uint32_t *ids,
    size_t n, struct observation *obs, const struct step_hook *step, char *err, size_t errlen);

/* Runs n tokens at the same positions, and leaves the cache as it was: not stored, no logits.
 * Their queries go to obs (NULL = none; its window must hold them all) together with their
 * own keys, their attention weights to s->probe_mass where it is wanted. The cache must not
 * want mass, and there must be no retrieval. Returns as run_tokens(); after a failure the cache
 * is of no use. */
int run_unstored(const struct model *m, struct sequence *s, struct workspace *ws,
    const uint32_t *ids, size_t n, struct observation *obs, const struct step_hook *step,
    char *err, size_t errlen);

/* The same with rows that are not token ids, for instance learned tokens: x[n][D] (host)
 * takes the place of their embeddings, and the LoRA of the adapter (NULL = none), which is on the
 * device, acts on them. Such rows cannot be stored: a cache, and a snapshot, have an id for every
 * token that the cache has seen. */
int run_unstored_embeddings(const struct model *m, struct sequence *s, struct workspace *ws,
    const float *x, size_t n, const struct adapter *adapter, struct observation *obs,
    const struct step_hook *step, char *err, size_t errlen);

/* The same of one layer: rows x[N][D] (device), at most those of the workspace, at positions pos[N]
 * (host) go through layer l, and x becomes the output. obs expects their queries. The layer has its
 * rows as before; the keys of these N are in memory still, behind its rows, until others are
 * appended. Logged as a run. Returns 0, or MODEL_ENOMEM (err says so). */
int run_unstored_layer(const struct model *m, struct sequence *s, struct workspace *ws, float *x,
    const uint32_t *pos, uint32_t N, uint32_t l, const struct adapter *adapter,
    const struct observation *obs, char *err, size_t errlen);

#endif

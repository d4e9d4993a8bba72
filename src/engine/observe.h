/* observe.h - runs tokens on top of a cache without storing them, and keeps what they look at:
 * their queries, or the attention mass that the stored rows get from them
 *
 * Some tokens are run, once; or the learned tokens of an adapter (LookaheadKV); or the context
 * itself is run again as if the model repeated it, chunk by chunk (KVzip, Kim et al. 2025): in
 * front of each chunk stand tokens that ask for it and the last tokens of the chunk before, and the
 * rows of the chunk alone get mass from it. The rows of the first positions (sinks) are part of
 * each softmax; their mass is set to +inf. */
#ifndef KVPIPE_OBSERVE_H
#define KVPIPE_OBSERVE_H

#include "engine/engine_error.h"
#include "forward/forward.h"

struct adapter;

struct observe_options {
	/* its learned tokens are run, instead of ids; NULL = none. The caller's, on the device */
	const struct adapter *adapter;
	int repeat;                     /* the context again; 0: the tokens alone */
	uint32_t chunk, sink;           /* repeat: tokens of a chunk, at least 1; first positions */
	int mass;                       /* s->probe_mass instead of queries; with repeat always */
	enum over_queries over;                 /* mass: over the queries */
};

/* n: of the tokens that observe() gets. Tokens of the longest run behind a context that ends before
 * next_position, and of all runs together. */
size_t observe_longest(const struct observe_options *, uint32_t next_position, size_t n);
uint64_t observe_total(const struct observe_options *, uint32_t next_position, size_t n);
/* How many rows of a run of n tokens go through the model at once: those of the workspace. */
uint32_t observe_rows(const struct ops *, size_t n);

/* Fails unless the context can be repeated: token i stands at position i, there are more than the
 * sinks, and each id is one of the model's. name: of the snapshot. Returns an ENGINE_* code. */
int observe_check(const struct observe_options *, const struct cache *c, const char *name,
    struct engine_error *);

/* Runs ids[n], or the n tokens of the adapter, or, after observe_check(), the context; then ids ask
 * for the repetition, and n may be 0. The cache is afterwards as it was, but for its event log,
 * which has each run, and for s->probe_mass, which is made here with o->mass. obs: gets the
 * queries, its window holds them; NULL with o->mass. step (NULL = none) is called with the tokens
 * done so far. *ran <- tokens that were run. Returns an ENGINE_* code; after a failure the cache is
 * of no use. */
int observe(struct sequence *s, const struct observe_options *o, const uint32_t *ids, size_t n,
    struct observation *obs, const struct step_hook *step, size_t *ran, struct engine_error *);

#endif

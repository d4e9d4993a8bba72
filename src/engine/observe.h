/* observe.h - runs probe tokens on a cache without storing them, and keeps their queries, or the
 * attention mass that the stored rows get from them
 *
 * The probe tokens are given ones; or the learned tokens of an adapter (LookaheadKV); or the
 * context itself, as if the model repeated it, chunk by chunk (KVzip, Kim et al. 2025): before each
 * chunk run tokens that ask for it and the last tokens of the chunk before, and only the rows of
 * the chunk get mass from it. The rows of the first positions (sinks) are in each softmax; their
 * mass is set to +inf. */
#ifndef KVPIPE_OBSERVE_H
#define KVPIPE_OBSERVE_H

#include "engine/engine_error.h"
#include "forward/forward.h"

struct adapter;

struct observe_options {
	/* runs its learned tokens instead of ids; NULL = none. The caller's, on the device */
	const struct adapter *adapter;
	int repeat;                     /* 1: run the context again; 0: only the tokens */
	uint32_t chunk, sink;           /* repeat: tokens of a chunk, at least 1; number of sinks */
	/* 1: keep s->probe_mass instead of queries; always with repeat */
	int mass;
	enum over_queries over;                 /* mass: sum or maximum over the queries */
	/* mass: as KVzip+, divided by the length of the query token's hidden state, and times the
	 * norm of the row's value output */
	int weigh;
};

/* Return the tokens of the longest run, and of all runs together, on a context that ends before
 * next_position. n: as for observe(). */
size_t observe_longest(const struct observe_options *, uint32_t next_position, size_t n);
uint64_t observe_total(const struct observe_options *, uint32_t next_position, size_t n);
/* Returns the rows of the workspace for a run of n tokens. */
uint32_t observe_rows(const struct ops *, size_t n);

/* Fails unless the context can be repeated: token i is at position i, there are more tokens than
 * sinks, and each id is one of the model's. name: of the snapshot. Returns an ENGINE_* code. */
int observe_check(const struct observe_options *, const struct cache *c, const char *name,
    struct engine_error *);

/* Runs ids[n], or the n tokens of the adapter, or, after observe_check(), the context; for the
 * context ids are the tokens that ask for it, and n may be 0. Does not change the cache, except
 * that it logs each run, and makes s->probe_mass if o->mass. obs gets the queries, for which its
 * window has room; NULL if o->mass. Calls step (NULL = none) with the tokens done so far. *ran <-
 * the number of tokens run. Returns an ENGINE_* code; do not use the cache after a failure. */
int observe(struct sequence *s, const struct observe_options *o, const uint32_t *ids, size_t n,
    struct observation *obs, const struct step_hook *step, size_t *ran, struct engine_error *);

#endif

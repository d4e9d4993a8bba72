/* prefill_layers.h - kv-prefill that judges and evicts on its way: after each chunk, or layer by layer
 *
 * What comes out is what kv-prefill | kv-score | kv-evict would write, chunk by chunk in the first
 * case; but the full cache is never there as a whole. One set of options for a process. */
#ifndef KVPIPE_PREFILL_LAYERS_H
#define KVPIPE_PREFILL_LAYERS_H

#include "model/forward.h"

/* What the command line says; kv-prefill(1). */
struct fused_options {
	const char *score;      /* "snapkv kernel=7"; NULL = not given */
	const char *evict;      /* "budget=1024 sink=4"; NULL = not given */
	int once;
	uint32_t patch;         /* tokens of the prompt's end that judge each chunk; 0 = none */
	uint32_t chunk;         /* evict after so many tokens; 0 = layer by layer */
	uint32_t observe;       /* queries that are to be saved */
};
extern struct fused_options fused;

/* Any of it was given. */
int fused_wanted(void);
/* Judges the options together, when all have been set. Dies. */
void fused_check(void);

/* Queries that have to be kept while the prompt runs: those to be saved, and those that the
 * method looks at. Without anything wanted: the former. */
uint32_t fused_window(void);
/* Attention received has to be added up. */
int fused_needs_mass(void);
/* For how many of n tokens a cache to be continued should have room. */
size_t fused_room(size_t n);
/* How many layers are there at a time with all rows that run, without --chunk. */
uint32_t fused_full_layers(const struct model *m);
/* Judges the options against the model and a prompt of n tokens, in front of which `have` queries
 * are known. Dies with EXIT_USAGE. */
void fused_fit(const struct model *m, size_t n, uint32_t have);

/* Runs n > 0 tokens, as run_tokens() would, and evicts; logs and shows progress. Leaves in obs
 * (NULL = none) the queries that are to be saved. Dies. */
void fused_run(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs);

/* Tells the options to the provenance (sign_text() and so on). */
void fused_sign(void);

#endif

/* opt_prefill.h - the options of kv-prefill that score and evict while the prompt runs; and its
 * progress */
#ifndef KVPIPE_OPT_PREFILL_H
#define KVPIPE_OPT_PREFILL_H

#include "engine/prefill.h"

/* What the command line says; kv-prefill(1). */
struct prefill_options {
	const char *score;      /* "snapkv kernel=7"; NULL = not given */
	const char *evict;      /* "budget=1024 sink=4"; NULL = not given */
	int once;
	uint32_t patch;         /* 0 = not given */
	const char *adapter;    /* opt_prefill()'s: the folder of the learned tokens; NULL = none */
};
extern struct prefill_options prefill_options;

/* Checks the options together, when all have been set, and fills *p, but for p->select, which is
 * there already: PREFILL_PLAIN when none was given. chunk: 0 = layer by layer; observe: queries
 * that are to be saved. Dies with EXIT_USAGE. */
void opt_prefill(struct prefill *p, uint32_t chunk, uint32_t observe);

/* prefill_run(), with progress. Dies. */
void opt_prefill_run(struct prefill *p, struct sequence *s, struct workspace *ws,
    const uint32_t *ids, size_t n, struct observation *obs);

/* Tells the options to the provenance (sign_text() and so on). */
void opt_prefill_sign(const struct prefill *p);

#endif

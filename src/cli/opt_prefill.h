/* opt_prefill.h - the options of kv-prefill that score and evict during prefill, and its
 * progress */
#ifndef KVPIPE_OPT_PREFILL_H
#define KVPIPE_OPT_PREFILL_H

#include "engine/prefill.h"

/* The options as given; kv-prefill(1). */
struct prefill_options {
	const char *score;      /* "snapkv kernel=7"; NULL = not given */
	const char *evict;      /* "budget=1024 sink=4"; NULL = not given */
	int once;
	uint32_t patch;         /* 0 = not given */
	/* set by opt_prefill(): folder of the learned tokens; NULL = none */
	const char *adapter;
};
extern struct prefill_options prefill_options;

/* Checks the options together, after all have been set, and fills *p except p->select, which
 * the caller has set: PREFILL_PLAIN if none was given. chunk: 0 = layer by layer; observe:
 * number of queries to save. Dies with EXIT_USAGE. */
void opt_prefill(struct prefill *p, uint32_t chunk, uint32_t observe);

/* prefill_run(), with progress. Dies. */
void opt_prefill_run(struct prefill *p, struct sequence *s, struct workspace *ws,
    const uint32_t *ids, size_t n, struct observation *obs);

/* text <- how rows are scored and dropped, for the names of stored blocks (prefix_store.h). Dies if
 * an option names a file, whose content would have to be in it. */
void opt_prefill_name(const struct prefill *p, char *text, size_t size);

/* Adds the options to the provenance (sign_text() and so on). */
void opt_prefill_sign(const struct prefill *p);

#endif

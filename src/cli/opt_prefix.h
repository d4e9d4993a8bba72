/* opt_prefix.h - kv-prefill --reuse and --store: reuse of rows that an earlier prefill has
 * computed, from a snapshot or a store (prefix cache) */
#ifndef KVPIPE_OPT_PREFIX_H
#define KVPIPE_OPT_PREFIX_H

#include "cli/session.h"
#include "engine/prefill.h"
#include "engine/prefix_store.h"
#include "engine/reuse.h"

/* The options as given; kv-prefill(1). */
struct prefix_options {
	const char *reuse;      /* a snapshot; NULL = not given */
	const char *store;      /* a folder; NULL = not given */
	uint64_t store_size;    /* its limit in bytes; 0 = not given */
};
extern struct prefix_options prefix_options;

/* The source of a prompt's first rows. All zero: the whole prompt runs. */
struct prefix {
	struct kv_reader *from; /* NULL: --reuse was not given */
	struct reuse part;
	struct prefix_store store;      /* dir NULL: --store was not given */
	/* tokens to reuse: set by prefix_find(); prefix_load() lowers it if a file of the store
	 * is unusable; and their rows, in all KV heads of all layers, at most */
	uint32_t tokens;
	uint64_t rows;
	char evicted[1024];     /* store.evicted */
	int kept;                       /* prefix_keep() has been called */
};

/* Dies with EXIT_USAGE if other options exclude them. prompt: the operand. */
void opt_prefix(const struct prefill *, const char *prompt, const char *resume, int mass,
    int query_stats, int gate);
/* Opens the snapshot. Dies. */
void prefix_open(struct prefix *);
/* Finds the reusable rows for the prompt (which must stay valid), whose last `least` tokens
 * must run, for a cache whose rows have these types. Reads no rows. */
void prefix_find(struct prefix *, const struct model *, const struct kv_head *stored,
    const struct prefill *, const struct ids *, uint32_t least);
/* Loads the rows into an empty cache. tile: as the prompt would be run. Dies. */
void prefix_load(struct prefix *, const struct session *, struct cache *c, uint32_t tile);
/* Adds the missing rows to the store, after the prompt has run and its snapshot is written.
 * evicted: the cache lacks rows. */
void prefix_keep(struct prefix *, const struct cache *c, int evicted);
void prefix_close(struct prefix *);

#endif

/* opt_prefix.h - the options of kv-prefill that take rows which an earlier prefill has computed,
 * from a snapshot or a store */
#ifndef KVPIPE_OPT_PREFIX_H
#define KVPIPE_OPT_PREFIX_H

#include "cli/session.h"
#include "engine/prefill.h"
#include "engine/prefix_store.h"
#include "engine/reuse.h"

/* What the command line says; kv-prefill(1). */
struct prefix_options {
	const char *reuse;      /* a snapshot; NULL = not given */
	const char *store;      /* a folder; NULL = not given */
	uint64_t store_size;    /* its limit in bytes; 0 = not given */
};
extern struct prefix_options prefix_options;

/* Where the first rows of a prompt come from. All zero: the prompt runs from its first token on. */
struct prefix {
	struct kv_reader *from; /* NULL: --reuse was not given */
	struct reuse part;
	struct prefix_store store;      /* dir NULL: --store was not given */
	/* what is taken: that is known after prefix_find(), or, when a file of the store cannot
	 * be used, less after prefix_load() */
	uint32_t rows;
	int kept;                       /* prefix_keep() has been called */
};

/* Dies with EXIT_USAGE when other options do not go with them. prompt: the operand. */
void opt_prefix(const struct prefill *, const char *prompt, const char *resume, int mass);
/* Opens the snapshot. Dies. */
void prefix_open(struct prefix *);
/* Which rows there are for the prompt (which must stay), of which the last `least` tokens must
 * run, into a cache of this type; reads no row. Dies. */
void prefix_find(struct prefix *, const struct model *, enum kv_dtype dtype, const struct ids *,
    uint32_t least);
/* Into an empty cache. tile: as the prompt would be run. Dies. */
void prefix_load(struct prefix *, const struct session *, struct cache *c, uint32_t tile);
/* The prompt has run, and its snapshot is written: the store gets what it has not got. evicted:
 * rows are missing. */
void prefix_keep(struct prefix *, const struct cache *c, int evicted);
void prefix_close(struct prefix *);

#endif

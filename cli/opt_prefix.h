/* opt_prefix.h - the option of kv-prefill that takes rows which an earlier prefill has computed */
#ifndef KVPIPE_OPT_PREFIX_H
#define KVPIPE_OPT_PREFIX_H

#include "cli/session.h"
#include "engine/prefill.h"
#include "engine/reuse.h"

/* What the command line says; kv-prefill(1). */
struct prefix_options {
	const char *reuse;      /* a snapshot; NULL = not given */
};
extern struct prefix_options prefix_options;

/* Where the first rows of a prompt come from. All zero: the prompt runs from its first token on. */
struct prefix {
	struct kv_reader *from; /* NULL: --reuse was not given */
	struct reuse part;
};

/* Dies with EXIT_USAGE when other options do not go with it. prompt: the operand. */
void opt_prefix(const struct prefill *, const char *prompt, const char *resume);
/* Opens the snapshot. Dies. */
void prefix_open(struct prefix *);
/* Which rows there are for the prompt, of which the last `least` tokens must run, into a cache of this
 * type; reads no row. Dies. */
void prefix_find(struct prefix *, enum kv_dtype dtype, const struct ids *, uint32_t least);
/* Into an empty cache. tile: as the prompt would be run. Dies. */
void prefix_load(struct prefix *, const struct session *, struct cache *c, uint32_t tile);
void prefix_close(struct prefix *);

#endif

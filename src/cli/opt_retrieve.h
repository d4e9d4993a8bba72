/* opt_retrieve.h - --retrieve 'METHOD budget=N [NAME=VALUE ...]': which rows a decoding step reads
 *
 * Shared by kv-decode and kv-diff, which tries retrieval on a snapshot. Needs no model. One set
 * of options in a process. */
#ifndef KVPIPE_OPT_RETRIEVE_H
#define KVPIPE_OPT_RETRIEVE_H

#include "cli/tool.h"
#include "retrieval/retrieval.h"

/* --retrieve: for struct tool's more */
extern const struct opt retrieve_opts[];

/* Fills *o except audit, overlap and offload; call after all options have been set. Returns 1,
 * or 0 if --retrieve was not given. Dies with EXIT_USAGE. */
int opt_retrieve(struct retrieval_options *o);
/* Returns the folder of the retrieval head (head=DIR); NULL: not given. */
const char *opt_retrieve_head(void);
/* Returns the value of reduce= for it: "max" and so on. */
const char *opt_retrieve_reduce(enum reduce);
/* Returns the word for whose choices are made, "query-head" or "kv-head". */
const char *opt_retrieve_per(enum choice_per);
/* Adds the options to the provenance. */
void opt_retrieve_sign(const struct retrieval_options *);

#endif

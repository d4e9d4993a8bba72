/* opt_retrieve.h - --retrieve 'METHOD budget=N [NAME=VALUE ...]': which rows a step reads
 *
 * What kv-decode shares with kv-diff, which tries retrieval out on a snapshot. It knows no model.
 * One set of options for a process. */
#ifndef KVPIPE_OPT_RETRIEVE_H
#define KVPIPE_OPT_RETRIEVE_H

#include "cli/tool.h"
#include "retrieval/retrieval.h"

/* --retrieve: for struct tool's more */
extern const struct opt retrieve_opts[];

/* Fills *o, but for audit, overlap and offload, when all options have been set. Returns 1, or 0
 * when --retrieve was not given. Dies with EXIT_USAGE. */
int opt_retrieve(struct retrieval_options *o);
/* The folder of the retrieval head (head=DIR); NULL: not given. */
const char *opt_retrieve_head(void);
/* "max" and so on: the value of reduce=. */
const char *opt_retrieve_reduce(enum reduce);
/* Adds them to the provenance. */
void opt_retrieve_sign(const struct retrieval_options *);

#endif

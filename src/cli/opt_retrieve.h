/* opt_retrieve.h - the options of retrieval: what kv-decode shares with kv-diff, which tries
 * retrieval out on a snapshot
 *
 * It knows no model. One set of options for a process. */
#ifndef KVPIPE_OPT_RETRIEVE_H
#define KVPIPE_OPT_RETRIEVE_H

#include "cli/tool.h"
#include "retrieval/retrieval.h"

/* Options of --retrieve specontext, which goes by a retrieval head: for the table of a program that
 * runs one. NOT_GIVEN and NULL: not given */
extern struct ahead_options {
	uint32_t sinks, recent;
	const char *head;
} ahead_options;

/* --retrieve, --budget, --reduce, --dense-layers: for struct tool's more */
extern const struct opt retrieve_opts[];

/* Checks the options together, when all have been set, and fills *o but for audit. Returns 1, or 0
 * when --retrieve was not given. Dies with EXIT_USAGE. */
int opt_retrieve(struct retrieval_options *o);
/* "max" and so on: the value of --reduce. */
const char *opt_retrieve_reduce(enum reduce);
/* Adds them to the provenance. */
void opt_retrieve_sign(const struct retrieval_options *);

#endif

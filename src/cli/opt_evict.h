/* opt_evict.h - the budget options of kv-evict, which other programs take as words of --evict */
#ifndef KVPIPE_OPT_EVICT_H
#define KVPIPE_OPT_EVICT_H

#include "cli/tool.h"
#include "engine/evictor.h"

/* Prints a line for each policy. */
void opt_evict_list(void);

/* For struct tool's more. One set of values in a process. */
extern const struct opt evict_opts[];

/* *v <- an evictor with the options; call after all have been set. Reads the head mask. looks:
 * the caller will show all layers to evictor_look() if evictor_looks_ahead(); without it
 * policies that need that are refused. Dies with EXIT_USAGE, or EXIT_DAMAGED for the mask. */
void opt_evict(struct evictor *v, int looks);
/* As opt_evict(), from the text of --evict, "budget=1024 sink=4". */
void opt_evict_words(struct evictor *v, const char *text);

/* *v <- an evictor that keeps the rows listed in the file; the other options are refused. Adds
 * the list to the provenance. Dies with EXIT_USAGE, or EXIT_DAMAGED for the list. */
void opt_evict_list_of_rows(struct evictor *v, const char *path);

/* Reports, once after all eviction, by how much a budget was smaller than the always-kept rows,
 * and that the policy gave the layers more than their budgets together. usual: the first is
 * expected, so it is a note and not a warning. */
void opt_evict_tell(const struct evictor *v, int usual);

/* Returns text, that of --evict, with an alias replaced by the policy's name; valid until the next
 * call. */
const char *opt_evict_text(const struct evictor *v, const char *text);

/* Adds the options to the provenance (sign_count() and so on). */
void opt_evict_sign(const struct evictor *v);

#endif

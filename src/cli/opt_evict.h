/* opt_evict.h - the budget options: those of kv-evict, which other programs take as words */
#ifndef KVPIPE_OPT_EVICT_H
#define KVPIPE_OPT_EVICT_H

#include "cli/tool.h"
#include "engine/evictor.h"

/* One line for each policy, on standard output. */
void opt_evict_list(void);

/* For struct tool's more. One set of values for a process. */
extern const struct opt evict_opts[];

/* *v <- an evictor with the options, when all have been set; reads the head mask. looks: the
 * caller will show all layers to evictor_look() if evictor_looks_ahead(); otherwise policies that
 * want that are refused. Dies: with EXIT_USAGE, or EXIT_DAMAGED for the mask. */
void opt_evict(struct evictor *v, int looks);
/* The same from the text of --evict, "budget=1024 sink=4". */
void opt_evict_words(struct evictor *v, const char *text);

/* *v <- an evictor that keeps the rows listed in the file, with none of the options, which are
 * refused. Dies: with EXIT_USAGE, or EXIT_DAMAGED for the list. Tells the provenance. */
void opt_evict_list_of_rows(struct evictor *v, const char *path);

/* When all has been evicted, once: says that a budget was smaller than what is always kept, and by
 * how much; and that the policy has given the layers more than their budgets together. usual: the
 * former was to be expected, so it is a note and no warning. */
void opt_evict_tell(const struct evictor *v, int usual);

/* text, that of --evict, with the name of the policy where it has an alias; it stays */
const char *opt_evict_text(const struct evictor *v, const char *text);

/* Tells them to the provenance (sign_count() and so on). */
void opt_evict_sign(const struct evictor *v);

#endif

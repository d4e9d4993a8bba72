/* opt_evict.h - the budget options, and the choice of the rows of a layer that stay: what kv-evict
 * shares with programs that evict in process
 *
 * It knows no snapshot and moves no data. One set of options for a process. */
#ifndef KVPIPE_OPT_EVICT_H
#define KVPIPE_OPT_EVICT_H

#include "methods/methods.h"
#include "cli/tool.h"

extern const struct opt evicting_opts[];        /* for struct tool's more */

/* Judges the options together, when all have been set, and reads the head mask. Dies: with
 * EXIT_USAGE, or EXIT_DAMAGED for the mask. */
void evicting_check(void);

/* Tells them to the provenance (sign_count() and so on). */
void evicting_sign(void);

/* From now on rows before this position all stay, on top of the budget, as with --since. */
void evicting_since(uint32_t position);

/* Nothing can be dropped, whatever the rows (--rate 1). */
int evicting_keeps_all(void);

/* This layer cannot be chosen without scores. */
int evicting_needs_scores(uint32_t layer);

/* out <- the rows of a layer that stay; to be freed by kept_free(). Of in: layer, layers, rows,
 * score (NULL where it is not needed), next_position, and tokens, the number of token ids seen
 * so far. Dies: with EXIT_USAGE when the budget is smaller than what is always kept or rows or
 * scores do not fit the options, with EXIT_DAMAGED when the head mask is of another shape. */
void evicting_choose(const struct evict_input *in, struct kept *out);

/* Some policies compare the scores of all layers. They are refused by evicting_check(), unless
 * the caller says before that it will show them: every layer, in order, to evicting_look(), if
 * evicting_looks_ahead(), before the first choice. */
void evicting_will_look(void);
int evicting_looks_ahead(void);
void evicting_look(const struct evict_input *in);

#endif

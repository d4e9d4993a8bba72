/* evicting.h - the budget options, and the choice of the rows of a layer that stay: what kv-evict
 * shares with programs that evict in process
 *
 * It knows no snapshot and moves no data. One set of options for a process. */
#ifndef KVPIPE_EVICTING_H
#define KVPIPE_EVICTING_H

#include "methods/methods.h"
#include "tools/tool.h"

extern const struct opt evicting_opts[];        /* for struct tool's more */

/* Judges the options together, when all have been set. Dies with EXIT_USAGE. */
void evicting_check(void);

/* Tells them to the provenance (sign_count() and so on). */
void evicting_sign(void);

/* Nothing can be dropped, whatever the rows (--rate 1). */
int evicting_keeps_all(void);

/* out <- the rows of a layer that stay; to be freed by kept_free(). Dies: with EXIT_USAGE when
 * the budget is smaller than what is always kept. */
void evicting_choose(const struct evict_input *in, struct kept *out);

#endif

/* opt_select.h - kv-prefill --select: which tokens run through later layers
 *
 * --select 'RULE [NAME=VALUE ...]', in the form of --score. Also the settings of FastKV's token
 * selection (TSP) as options, for kv-tsp-layer. */
#ifndef KVPIPE_OPT_SELECT_H
#define KVPIPE_OPT_SELECT_H

#include "cli/tool.h"
#include "engine/token_select.h"

/* --rate, --window, --kernel, --pool of TSP: for struct tool's more */
extern const struct opt tsp_opts[];
/* Checks the options, after all have been set, and returns them with the paper's defaults. Dies
 * with EXIT_USAGE. */
struct tsp opt_tsp(void);

/* Fills *t from the words of --select; NULL: no selection. Each selection is printed as a note.
 * Dies with EXIT_USAGE. */
void opt_select(struct token_select *t, const char *words);
/* Adds the options to the provenance (sign_count() and so on). */
void opt_select_sign(const struct token_select *t);

#endif

/* opt_select.h - kv-prefill --select: which tokens go through later layers
 *
 * --select 'RULE [NAME=VALUE ...]', as --score takes a method. Also the settings of FastKV's token
 * selection (TSP) as options, for kv-tsp-layer. */
#ifndef KVPIPE_OPT_SELECT_H
#define KVPIPE_OPT_SELECT_H

#include "cli/tool.h"
#include "engine/token_select.h"

/* --rate, --window, --kernel, --pool of TSP: for struct tool's more */
extern const struct opt tsp_opts[];
/* Checks them, when all have been set, and returns them with the defaults of the paper. Dies with
 * EXIT_USAGE. */
struct tsp opt_tsp(void);

/* Fills *t by the words of --select; NULL: all tokens go on. Each selection is a note. Dies with
 * EXIT_USAGE. */
void opt_select(struct token_select *t, const char *words);
/* Adds the options to the provenance (sign_count() and so on). */
void opt_select_sign(const struct token_select *t);

#endif

/* opt_tokens.h - the options of token selection, and of the search for a layer */
#ifndef KVPIPE_OPT_TOKENS_H
#define KVPIPE_OPT_TOKENS_H

#include "cli/tool.h"
#include "engine/tsp_search.h"

extern const struct opt token_opts[];   /* for struct tool's more */

/* --find-tsp-layer was given: nothing else is to be done. */
int opt_tsp_search_wanted(void);

/* Checks the options together, when all have been set, and fills both; each selection is a note.
 * Dies with EXIT_USAGE. */
void opt_tokens(struct token_select *t, struct tsp_search *search);

/* tsp_search_run(), with progress. *chosen <- the layer. Returns the distances, tsp_search_max()
 * + 1; to be freed. Dies. */
struct tsp_distance *opt_tsp_search_run(struct tsp_search *search, const struct model *m,
    struct workspace *ws, enum kv_dtype dtype, const struct prompt *prompts, size_t n,
    uint32_t *chosen);

/* Tells the options to the provenance (sign_count() and so on). */
void opt_tokens_sign(const struct token_select *t);

#endif

/* token_select.h - a prompt of which only chosen tokens reach later layers, or the model at all: the
 * options for it, and the run
 *
 * Token-selective propagation, GemFilter, PyramidInfer. The rules are in methods/tokens.h, the
 * running in model/prompt_stream.h. One set of options for a process. */
#ifndef KVPIPE_TOKEN_SELECT_H
#define KVPIPE_TOKEN_SELECT_H

#include "methods/tokens.h"
#include "model/prompt_stream.h"
#include "cli/tool.h"

extern const struct opt selecting_opts[];       /* for struct tool's more */

/* Judges the options together, when all have been set. Dies with EXIT_USAGE. */
void selecting_check(void);

/* Tokens are to be selected: selecting_run() instead of run_tokens(). */
int selecting_wanted(void);
/* Layers that hold rows of the whole prompt, at least. */
uint32_t selecting_layers(void);

/* Judges them against a prompt of n tokens, with `observe` queries to keep. Dies with
 * EXIT_USAGE. */
void selecting_fit(const struct model *m, size_t n, uint32_t observe, int resumed);

/* Runs the tokens, as run_tokens() would all of them; logs and shows progress. Dies. */
void selecting_run(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs);

/* Tells the options to the provenance (sign_count() and so on). */
void selecting_sign(void);

/* ---- the search for a layer (tsp_search.c) ---- */

/* --find-tsp-layer was given: nothing else is to be done. */
int finding_wanted(void);

struct prompt {
	const uint32_t *ids;
	size_t n;
};

/* Prints how far TSP at each layer takes n prompts away from what they are without, and the
 * layer to choose. Keys and values are of the type given. Dies. */
void finding_run(const struct model *m, struct workspace *ws, enum kv_dtype dtype,
    const struct prompt *prompts, size_t n);

/* What the search needs: the rows of s that go on after the layer it watches, which has run;
 * to be freed. *k <- how many. Dies. */
uint32_t *selecting_tsp(struct prompt_stream *s, uint32_t *k);
/* Watches the queries that TSP at layer l needs. Dies. */
void selecting_watch_tsp(struct prompt_stream *s, uint32_t l);
/* --max-layer and --tol. */
uint32_t finding_max_layer(const struct model *m);
double finding_tolerance(void);

#endif

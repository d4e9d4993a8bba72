/* token_select.h - a prompt of which only chosen tokens reach later layers, or the model at all
 *
 * Token-selective propagation, GemFilter, PyramidInfer. The rules are in methods/tokens.h, the
 * running in model/prompt_stream.h. */
#ifndef KVPIPE_TOKEN_SELECT_H
#define KVPIPE_TOKEN_SELECT_H

#include "engine/memory_plan.h"
#include "methods/tokens.h"
#include "model/prompt_stream.h"

enum token_rule {
	TOKENS_ALL,             /* nothing is selected */
	TOKENS_TSP,             /* after `layer` only some rows go on */
	TOKENS_GEMFILTER,       /* `layer` selects tokens, which are run alone */
	TOKENS_PYRAMIDINFER     /* rows are dropped after several layers */
};

struct token_select {
	enum token_rule rule;
	uint32_t layer;
	struct tsp tsp;
	uint32_t budget;        /* GemFilter: so many tokens; 0 = a rate of them */
	double rate;
	struct pyramidinfer pyramid;
	struct step_hook step;  /* told how many tokens have gone through all layers, as it were */
	/* told how many rows go on after a layer, of GemFilter how many are run again; call NULL =
	 * nobody */
	struct {
		void (*call)(void *with, uint32_t layer, uint32_t rows);
		void *with;
	} selected;
};

/* d->rows, d->stream <- what n tokens take at least: the layers up to the first that selects hold
 * rows of the whole prompt. */
void token_select_demand(const struct token_select *, const struct model *m, size_t n,
    struct memory_demand *d);
/* ENGINE_EOPTION unless the rule suits the model and a prompt of n tokens, with `observe` queries
 * to keep. resumed: rows stand in front of the prompt. */
int token_select_fit(const struct token_select *, const struct model *m, size_t n, uint32_t observe,
    int resumed, struct engine_error *);
/* What `step` counts to. */
uint64_t token_select_total(const struct token_select *, const struct model *m, size_t n);

/* Runs the tokens, as run_tokens() would all of them; logs. */
int token_select_run(const struct token_select *, struct cache *c, struct workspace *ws,
    const uint32_t *ids, size_t n, struct observation *obs, struct engine_error *);

/* ---- what the search for a layer needs, too (tsp_search.h) ---- */

/* ENGINE_EOPTION unless the rule suits a prompt of n tokens. */
int tsp_fit(const struct tsp *, size_t n, struct engine_error *);
/* *keep <- the k rows of s that go on after the layer that it watches (prompt_watch() of the tsp's
 * window), which has run; to be freed. */
int tsp_select(const struct tsp *, struct prompt_stream *s, uint32_t **keep, uint32_t *k,
    struct engine_error *);

#endif

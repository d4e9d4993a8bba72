/* token_select.h - selects which tokens of a prompt reach later layers, or the model at all
 *
 * Token-selective propagation, GemFilter, PyramidInfer. The rules are in methods/tokens.h.
 * prefill.h runs the layers, and calls this to learn after which layer to drop rows, and which. */
#ifndef KVPIPE_TOKEN_SELECT_H
#define KVPIPE_TOKEN_SELECT_H

#include "engine/memory_plan.h"
#include "forward/layer_by_layer.h"
#include "methods/tokens.h"

enum token_rule {
	TOKENS_ALL,             /* nothing is selected */
	TOKENS_TSP,             /* only some rows go on after `layer` */
	TOKENS_GEMFILTER,       /* `layer` selects tokens, and only these run again */
	TOKENS_PYRAMIDINFER     /* rows are dropped after several layers */
};

struct token_select {
	enum token_rule rule;
	uint32_t layer;
	struct tsp tsp;
	uint32_t budget;        /* GemFilter: how many tokens; 0 = by rate */
	double rate;
	struct pyramidinfer pyramid;
	/* is told how many rows go on after a layer, or, with GemFilter, run again; call NULL =
	 * none */
	struct {
		void (*call)(void *with, uint32_t layer, uint32_t rows);
		void *with;
	} selected;
};

/* Returns how many layers have rows of the whole prompt at the same time. evicted: each layer is
 * evicted after it has run. */
uint64_t token_select_full_layers(const struct token_select *, int evicted);
/* Returns how many tokens at the end of a prompt of n always go through all layers; UINT32_MAX when
 * nothing is selected. */
uint32_t token_select_tail(const struct token_select *, size_t n);
/* Can layer l choose among the tokens of a prompt of n, which it then has to see? */
int token_select_at(const struct model *, uint32_t l, size_t n);
/* Fails with ENGINE_EUNSUPPORTED if one of the layers l0 .. l1-1 has a sliding window shorter than
 * a prompt of n tokens. option: the option that selects by these layers, for the message. */
int token_select_sees(const struct model *, uint32_t l0, uint32_t l1, size_t n, const char *option,
    struct engine_error *);
/* Fails with ENGINE_EOPTION unless the rule suits the model and a prompt of n tokens, with
 * `observe` queries to keep. resumed: there are rows before the prompt. */
int token_select_fit(const struct token_select *, const struct model *m, size_t n, uint32_t observe,
    int resumed, struct engine_error *);
/* Returns the rows that run, summed over the layers, GemFilter's first run included. */
uint64_t token_select_rows(const struct token_select *, const struct model *m, size_t n);

/* ---- while the prompt runs ---- */

/* Returns 1 + the first layer from l0 on after which rows are dropped, or `layers`. */
uint32_t token_select_next(const struct token_select *, uint32_t l0, uint32_t layers);
/* Returns of how many of the last rows of a prompt of n tokens the queries select, to be watched
 * (prompt_watch()) in layers after which rows are dropped. 0: no layer drops rows. */
uint32_t token_select_window(const struct token_select *, size_t n);
/* Returns how many of the N rows that ran through layer l go on to the next one. *window <-
 * token_select_window(), or 0: all rows go on. */
uint32_t token_select_after(const struct token_select *, uint32_t l, uint32_t layers, size_t n,
    uint32_t N, uint32_t *window);
/* *keep <- the k rows of s that go on, to be freed. Call it after the watched layer has run. */
int token_select_choose(const struct token_select *, struct prompt_stream *s, uint32_t k,
    uint32_t **keep, struct engine_error *);
/* Calls `selected`. */
void token_select_tell(const struct token_select *, uint32_t layer, uint32_t rows);

/* GemFilter: returns how many of n tokens run again. */
uint32_t gemfilter_tokens(const struct token_select *, size_t n);
/* Does GemFilter's first run, through the layers up to the one that selects. picked[k] <- the ids
 * of the tokens to run again. Afterwards the cache has no rows, but all n ids, and has logged the
 * run. step (NULL = none): as for prompt_run(). */
int gemfilter_pick(const struct token_select *, struct sequence *q, struct workspace *ws,
    const uint32_t *ids, size_t n, const struct step_hook *step, uint32_t *picked, uint32_t k,
    struct engine_error *);

/* ---- shared with the search for a layer (tsp_search.h) ---- */

/* Fails with ENGINE_EOPTION unless the rule suits a prompt of n tokens. */
int tsp_fit(const struct tsp *, size_t n, struct engine_error *);
/* Returns how many of N rows go on. */
uint32_t tsp_rows(const struct tsp *, uint32_t N);
/* *keep <- the k rows of s that go on, to be freed. Call it after the layer that is watched with
 * the tsp's window has run. */
int tsp_select(const struct tsp *, struct prompt_stream *s, uint32_t k, uint32_t **keep,
    struct engine_error *);

#endif

/* token_select.h - which tokens of a prompt reach later layers, or the model at all
 *
 * Token-selective propagation, GemFilter, PyramidInfer. The rules are in methods/tokens.h. What
 * runs the layers is prefill.h: it asks here after which layer rows are dropped, and which. */
#ifndef KVPIPE_TOKEN_SELECT_H
#define KVPIPE_TOKEN_SELECT_H

#include "engine/memory_plan.h"
#include "forward/layer_by_layer.h"
#include "methods/tokens.h"

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
	/* told how many rows go on after a layer, of GemFilter how many are run again; call NULL =
	 * nobody */
	struct {
		void (*call)(void *with, uint32_t layer, uint32_t rows);
		void *with;
	} selected;
};

/* Layers that hold rows of the whole prompt at the same time. evicted: each layer is evicted when
 * it has run. */
uint64_t token_select_full_layers(const struct token_select *, int evicted);
/* So many tokens at the end of a prompt of n are sure to go through all layers; UINT32_MAX when
 * nothing is selected. */
uint32_t token_select_tail(const struct token_select *, size_t n);
/* ENGINE_EUNSUPPORTED where one of the layers l0 .. l1-1 has a sliding window that does not reach
 * over a prompt of n tokens. option: what would choose there. */
int token_select_sees(const struct model *, uint32_t l0, uint32_t l1, size_t n, const char *option,
    struct engine_error *);
/* ENGINE_EOPTION unless the rule suits the model and a prompt of n tokens, with `observe` queries
 * to keep. resumed: rows stand in front of the prompt. */
int token_select_fit(const struct token_select *, const struct model *m, size_t n, uint32_t observe,
    int resumed, struct engine_error *);
/* Rows that run, summed over the layers, GemFilter's first run included. */
uint64_t token_select_rows(const struct token_select *, const struct model *m, size_t n);

/* ---- while the prompt runs ---- */

/* The layer behind the first one from l0 on after which rows are dropped, or the last layer. */
uint32_t token_select_next(const struct token_select *, uint32_t l0, uint32_t layers);
/* How many of the last rows decide in the layers after which rows are dropped, of a prompt of n
 * tokens: their queries have to be watched (prompt_watch()). 0: no layer drops rows. */
uint32_t token_select_window(const struct token_select *, size_t n);
/* How many of the N rows that ran through layer l go on to the next one. *window <-
 * token_select_window(), or 0: all rows go on. */
uint32_t token_select_after(const struct token_select *, uint32_t l, uint32_t layers, size_t n,
    uint32_t N, uint32_t *window);
/* The watched layer has run: *keep <- the k rows of s that go on; to be freed. */
int token_select_choose(const struct token_select *, struct prompt_stream *s, uint32_t k,
    uint32_t **keep, struct engine_error *);
/* Tells `selected`. */
void token_select_tell(const struct token_select *, uint32_t layer, uint32_t rows);

/* GemFilter: how many of n tokens are run again. */
uint32_t gemfilter_tokens(const struct token_select *, size_t n);
/* GemFilter's first run, through the layers up to the one that selects. picked[k] <- the ids of the
 * tokens to run again. The cache is empty afterwards, but knows all n ids; its log has the run.
 * step (NULL = none): as of prompt_run(). */
int gemfilter_pick(const struct token_select *, struct sequence *q, struct workspace *ws,
    const uint32_t *ids, size_t n, const struct step_hook *step, uint32_t *picked, uint32_t k,
    struct engine_error *);

/* ---- what the search for a layer needs, too (tsp_search.h) ---- */

/* ENGINE_EOPTION unless the rule suits a prompt of n tokens. */
int tsp_fit(const struct tsp *, size_t n, struct engine_error *);
/* How many of N rows go on. */
uint32_t tsp_rows(const struct tsp *, uint32_t N);
/* *keep <- the k rows of s that go on after the layer that it watches (prompt_watch() of the tsp's
 * window), which has run; to be freed. */
int tsp_select(const struct tsp *, struct prompt_stream *s, uint32_t k, uint32_t **keep,
    struct engine_error *);

#endif

/* evictor.h - which rows of a cache stay, layer by layer, by one budget with its policy
 *
 * An evictor knows no snapshot and no cache and moves no data: it adds to methods/evict.c what
 * holds for all layers of a cache (layers that are skipped, a head mask, a budget for all layers
 * together). Several may be in use at the same time. */
#ifndef KVPIPE_EVICTOR_H
#define KVPIPE_EVICTOR_H

#include "engine/engine_error.h"
#include "methods/methods.h"

enum { EVICTOR_LAYERS = 4096 };         /* kv-snapshot(5), 4.1 */

struct evictor {
	struct evict_options options;
	int of_tokens;                  /* options.rate is a share of tokens seen, not rows */
	/* only the head mask chooses, options.rate is 1: no layer needs scores */
	int mask_alone;
	/* where the budget was smaller than what is always kept: the most rows that a KV head keeps
	 * beyond it, or the whole cache under a policy that looks ahead; over all choices */
	uint64_t beyond;
	/* of all choices so far: struct kept */
	uint64_t given, budgets;
	double budget;
	/* the rest is evictor.c's */
	uint8_t skip[EVICTOR_LAYERS];   /* 1 = the layer keeps all rows */
	uint32_t skip_end;              /* behind the last one; 0 = none is skipped */
	const char *mask_name, *rows_name;
	struct head_mask mask;          /* full NULL = none */
	/* line NULL = none; else the list chooses the rows, and options are not used */
	struct row_list rows;
	uint8_t *streaming;             /* [layers][heads] of the mask */
	struct global *all_layers;
	const uint32_t *all_counts;     /* [L][G] rows that stay, when all have been seen */
};

/* Without skipped layers, without a mask. */
void evictor_init(struct evictor *, const struct evict_options *);
/* What it holds; all zero is allowed. */
void evictor_free(struct evictor *);

/* Layers first .. last, last < EVICTOR_LAYERS, keep all rows. */
void evictor_skip(struct evictor *, uint32_t first, uint32_t last);
/* Some heads stream: those that the mask in text[len] (methods.h; text[len] is zero) says, or
 * with a sparsity >= 0 this share of them. name: for messages, it outlives the evictor. Once.
 * ENGINE_EDAMAGED: the text is no mask. */
int evictor_mask(struct evictor *, const char *name, const char *text, size_t len, double sparsity,
    struct engine_error *);

/* The rows of the list in text[len] stay (methods.h), and no others: scores and options count for
 * nothing. name as for evictor_mask(). Once. ENGINE_EDAMAGED: the text is no list. */
int evictor_list(struct evictor *, const char *name, const char *text, size_t len,
    struct engine_error *);

/* Nothing can be dropped, whatever the rows (a rate of 1). */
int evictor_keeps_all(const struct evictor *);
/* This layer cannot be chosen without scores. */
int evictor_needs_scores(const struct evictor *, uint32_t layer);
/* The policy compares the scores of all layers: every layer, in order, must be shown to
 * evictor_look() before the first choice. */
int evictor_looks_ahead(const struct evictor *);

/* out <- the rows of a layer that stay; to be freed by kept_free(). Of in: layer, layers, rows,
 * score (NULL where it is not needed), next_position, and tokens, the number of token ids seen so
 * far. ENGINE_EOPTION when the budget is smaller than what is always kept and that is refused, or
 * rows or scores do not fit the options, ENGINE_EDAMAGED when the head mask is of another shape, or
 * the list does not fit the rows. */
int evictor_choose(struct evictor *, const struct evict_input *, struct kept *out,
    struct engine_error *);
/* evict_plans(), evict_plan() of methods.h with the same: a choice that a device makes. */
int evictor_plans(const struct evictor *, const struct evict_input *);
int evictor_plan(struct evictor *, const struct evict_input *, const uint32_t *scored,
    struct evict_plan *out, struct engine_error *);
int evictor_look(struct evictor *, const struct evict_input *, struct engine_error *);

#endif
